"""The sessions and events in `v1/`: make_v1_fixture.py stored them there, and test_upgrade.py expects them after the upgrade.

It uses only what the code of version 1 has, too.
"""

from holdfast.model.event import (
    Decision,
    ModeChanged,
    Outcome,
    PermissionDecided,
    Planned,
    Prompted,
    Replied,
    ServersResolved,
    SessionClosed,
    SessionOpened,
    StopReason,
    Thought,
    Titled,
    ToolCalled,
    ToolEnded,
    ToolStarted,
    TrustLowered,
    TurnEnded,
)
from holdfast.model.ids import SessionId
from holdfast.model.resolution import Refusal, Stage
from holdfast.model.trust import Trust

SHOP = SessionId("sess_00000000000000000000000000000001")
INTERRUPTED = SessionId("sess_00000000000000000000000000000002")
ROOTS = ("/home/ada/shop", "/srv/prices")
REFUSAL = Refusal(server="shell", stage=Stage.ADMIT, reason="Not for this session.")
EVENTS = (
    SessionOpened(cwd=ROOTS[0], roots=ROOTS, trust_level=Trust.DIRECT),
    ServersResolved(servers=("files",), refusals=(REFUSAL,)),
    Prompted(turn_id="turn_1", message_id="msg_1", blocks=({"type": "text", "text": "What do roses cost?"},)),
    Titled(title="Price of roses"),
    Thought(message_id="msg_2", text="The price list will say."),
    Planned(entries=({"content": "Read the list", "status": "pending"},)),
    ToolCalled(call_id="call_1", server="files", tool="read", arguments={"path": "prices.txt"}, kind="read"),
    PermissionDecided(call_id="call_1", decision=Decision.ALLOW_ALWAYS),
    ToolStarted(call_id="call_1"),
    ToolEnded(call_id="call_1", outcome=Outcome.COMPLETED, content=({"type": "text", "text": "roses 3.20"},)),
    Replied(message_id="msg_3", text="Roses cost "),
    Replied(message_id="msg_3", text="3.20 each: 薔薇."),
    TurnEnded(turn_id="turn_1", reason=StopReason.END_TURN, usage={"used": 12, "size": 1000}),
    ModeChanged(mode="ask"),
    TrustLowered(trust_level=Trust.SANDBOXED),
    Prompted(turn_id="turn_2", message_id="msg_4", blocks=({"type": "text", "text": "Make them cheaper."},)),
    ToolCalled(call_id="call_2", server="files", tool="write", arguments={"path": "prices.txt"}),
    PermissionDecided(call_id="call_2", decision=Decision.REJECT),
    ToolEnded(call_id="call_2", outcome=Outcome.REFUSED, code="REJECTED"),
    TurnEnded(turn_id="turn_2", reason=StopReason.END_TURN),
    SessionClosed(reason="closed"),
)
