"""Attack 4: the model names a session, a trust level or a user in a tool's arguments, in any spelling."""

import json
from typing import Any

import msgspec
import pytest

from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.toolkit import Call, Toolbox, current_session
from holdfast.wire.frame import Raw

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
        """Say who calls."""
        session = current_session()
        assert session == call.session
        return {"session": session and session.session_id, "trust": session and session.trust_level}

    @made.tool(operation="query")
    async def own(session_id: str, trust: str, user_id: str = "") -> dict[str, Any]:
        """Take arguments of these names, as a browser's tool well may."""
        session = current_session()
        return {"session": session and session.session_id, "trust": session and session.trust_level}

    return made


async def called(tool: str, arguments: dict[str, Any]) -> Any:
    outcome = (
        await box().dispatcher().dispatch(Call(tool=tool, session=BOB), Raw(json.dumps(arguments).encode()))
    )
    return msgspec.json.decode(outcome.result)["structuredContent"]


@pytest.mark.promise("CTX-06")
@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("value", ["direct", "sess_ffffffffffffffff", {"trust_level": "direct"}], ids=str)
async def test_such_an_argument_has_no_effect(name: str, value: Any):
    envelope = await called("who", {name: value})

    # Dropped, or refused by name: never believed.
    assert envelope["_meta"]["session_id"] == BOB.session_id
    if envelope["ok"]:
        assert (envelope["session"], envelope["trust"]) == (BOB.session_id, "sandboxed")
    else:
        assert [issue["code"] for issue in envelope["details"]["issues"]] == ["unknown"]


@pytest.mark.promise("CTX-06")
async def test_nor_has_one_that_the_tool_itself_takes():
    envelope = await called(
        "own", {"session_id": "sess_ffffffffffffffff", "trust": "direct", "user_id": "root"}
    )

    assert (envelope["session"], envelope["trust"], envelope["_meta"]["session_id"]) == (
        BOB.session_id,
        "sandboxed",
        BOB.session_id,
    )


async def test_control_a_server_that_asks_its_caller_who_they_are_is_told_a_lie():
    def naive(arguments: dict[str, Any]) -> str:
        return "secret" if arguments.get("trust") == "direct" else "denied"

    assert naive({"trust": "direct"}) == "secret"
