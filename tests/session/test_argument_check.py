"""A session checks the arguments of a call before the user is asked and before the server is called."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.record import AuditKind
from holdfast.connect.call import ToolResult
from holdfast.model.call import ToolCall
from holdfast.model.door import PermissionQuestion
from holdfast.model.event import Decision
from holdfast.model.permission import Mode
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory, make_host
from tests.session.support import ScriptedUser, audit_records

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-05")]

SCHEMA = {"type": "object", "properties": {"size": {"type": "number", "default": 7}}, "required": ["name"]}


def entry(schema: Any) -> dict[str, Any]:
    script = str(Path(__file__).with_name("schema_server.py"))
    return {"command": sys.executable, "args": ["-I", "-S", script, json.dumps(schema)]}


class AgreeingUser(ScriptedUser):
    """Allows every call."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        self.asked.append(f"{question.call.server}.{question.call.tool}")
        return Decision.ALLOW_ONCE


async def ask_and_call(session: Session, arguments: bytes) -> tuple[ToolResult, list[str]]:
    """The result of a call, and the tools that the user was asked about."""
    user = AgreeingUser()
    session.attach(user)
    call = ToolCall(call_id="call_1", server="", tool="s.t", arguments=arguments)
    return await session.perform(call), user.asked


async def test_call_with_wrong_arguments_is_refused_before_the_user_is_asked(
    make_host: HostFactory, tmp_path: Path
):
    async with (
        make_host({"s": entry(SCHEMA)}) as host,
        host.session(cwd=tmp_path, permission=Mode.ASK) as session,
    ):
        result, asked = await ask_and_call(session, b'{"size": "sk-secret"}')
        records = await audit_records(host, AuditKind.CALL)

    message = (
        "s.t was not called: its arguments do not fit its schema. "
        "“name”: It is required. “size” must be a number, not a string."
    )
    assert (result.code, result.outcome, asked) == ("BAD_ARGUMENT", "refused", [])
    assert result.message == message
    assert [(record.outcome, record.reason) for record in records] == [("refused", "BAD_ARGUMENT")]


async def test_arguments_are_sent_byte_for_byte_and_without_defaults(make_host: HostFactory, tmp_path: Path):
    arguments = rb'{"name":"\u00e9", "other" :  1.50e2}'
    async with (
        make_host({"s": entry(SCHEMA)}) as host,
        host.session(cwd=tmp_path, permission=Mode.ASK) as session,
    ):
        result, asked = await ask_and_call(session, arguments)

    assert (arguments.decode() in result.text, asked) == (True, ["s.t"])


async def test_schema_that_cannot_be_used_does_not_stop_calls(make_host: HostFactory, tmp_path: Path):
    schema = {"type": "object", "properties": {"name": {"$ref": "https://example.org/name.json"}}}
    async with (
        make_host({"s": entry(schema)}) as host,
        host.session(cwd=tmp_path, permission=Mode.ASK) as session,
    ):
        result, asked = await ask_and_call(session, b'{"name": 1}')

    assert (result.ok, asked) == (True, ["s.t"])
