"""Attack 4, in the toolkit: the model passes a session, trust level or user as a tool argument, in any spelling."""

import json
from typing import Any

import msgspec
import pytest

from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.toolkit import Call, Toolbox, current_session
from holdfast.wire.messages import Raw

pytestmark = pytest.mark.anyio

BOB = SessionContext(
    session_id=SessionId("sess_bbbbbbbbbbbbbbbb"), workspace_id="shop", trust_level=Trust.SANDBOXED
)
SPELLINGS = [
    "session_id",
    "sessionId",
    "SESSION_ID",
    "session-id",
    "ѕession_id",  # a Cyrillic letter
    "ｓｅｓｓｉｏｎ＿ｉｄ",  # full width
    "session\u200b_id",
    "trust",
    "trust_level",
    "trustLevel",
    "TRUST",
    "trυst",  # a Greek letter
    "_meta",
    "dev.holdfast/session",
    "HOLDFAST_TRUST_LEVEL",
    "workspace_id",
    "user_id",
    "call",
    "self",
]


def box() -> Toolbox:
    made = Toolbox("box")

    @made.tool(operation="query")
    async def who(call: Call, text: str = "") -> dict[str, Any]:
        """Return the caller."""
        session = current_session()
        assert session == call.session
        return {"session": session and session.session_id, "trust": session and session.trust_level}

    @made.tool(operation="query")
    async def own(session_id: str, trust: str, user_id: str = "") -> dict[str, Any]:
        """Declare arguments of these names, as a browser tool might."""
        session = current_session()
        return {"session": session and session.session_id, "trust": session and session.trust_level}

    return made


async def call_tool(tool: str, arguments: dict[str, Any]) -> Any:
    outcome = (
        await box().dispatcher().dispatch(Call(tool=tool, session=BOB), Raw(json.dumps(arguments).encode()))
    )
    return msgspec.json.decode(outcome.result)["structuredContent"]


@pytest.mark.promise("CTX-06")
@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("value", ["direct", "sess_ffffffffffffffff", {"trust_level": "direct"}], ids=str)
async def test_look_alike_argument_has_no_effect(name: str, value: Any):
    envelope = await call_tool("who", {name: value})

    # The argument is either dropped or refused, never trusted.
    assert envelope["_meta"]["session_id"] == BOB.session_id
    if envelope["ok"]:
        assert (envelope["session"], envelope["trust"]) == (BOB.session_id, "sandboxed")
    else:
        assert [issue["code"] for issue in envelope["details"]["issues"]] == ["unknown"]


@pytest.mark.promise("CTX-06")
async def test_declared_argument_of_the_same_name_has_no_effect():
    envelope = await call_tool(
        "own", {"session_id": "sess_ffffffffffffffff", "trust": "direct", "user_id": "root"}
    )

    assert (envelope["session"], envelope["trust"], envelope["_meta"]["session_id"]) == (
        BOB.session_id,
        "sandboxed",
        BOB.session_id,
    )


async def test_control_server_that_trusts_its_arguments_is_deceived():
    def naive(arguments: dict[str, Any]) -> str:
        return "secret" if arguments.get("trust") == "direct" else "denied"

    assert naive({"trust": "direct"}) == "secret"
