"""Permission for calls: by the mode, by the tool's hint, and by asking the user."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.audit.record import AuditKind
from holdfast.connect.catalog import CatalogTool, build_catalog
from holdfast.model.door import PermissionQuestion
from holdfast.model.event import Decision
from holdfast.model.permission import Access, Mode, PermissionRestriction
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.tool_pattern import parse_tool_pattern
from holdfast.session.permission import tool_kind
from holdfast.session.permission_rules import NO_RULES, decide
from holdfast.wire.mcp.tools import Tool
from tests.connect.conftest import HostFactory, counter_entry, make_host
from tests.session.support import ScriptedUser, audit_records, text_prompt

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("ACP-09")]

COUNT = "/call c.count"


def catalog_tool(annotations: Any = None, *, source: Source = Source.CLIENT, meta: Any = None) -> CatalogTool:
    definition: dict[str, Any] = {"name": "t", "inputSchema": {"type": "object"}}
    if annotations is not None:
        definition["annotations"] = annotations
    if meta is not None:
        definition["_meta"] = meta
    spec = ServerSpec(name="s", transport=Stdio(command="x"), source=source)
    tool = msgspec.json.decode(msgspec.json.encode(definition), type=Tool)
    return build_catalog([(spec, (tool,))]).tools[0]


@pytest.mark.parametrize(
    ("annotations", "mode", "expected"),
    [
        ({"readOnlyHint": True}, Mode.ASK, Access.ALLOWED),
        ({"readOnlyHint": True}, Mode.READ_ONLY, Access.ALLOWED),
        ({"readOnlyHint": False}, Mode.ASK, Access.MUST_ASK),
        ({"readOnlyHint": "yes"}, Mode.ASK, Access.MUST_ASK),
        (None, Mode.ASK, Access.MUST_ASK),
        (None, Mode.AUTO, Access.ALLOWED),
        (None, Mode.READ_ONLY, Access.REFUSED),
    ],
)
def test_access_follows_from_the_mode_and_the_read_only_hint(annotations: Any, mode: Mode, expected: Access):
    assert decide(catalog_tool(annotations), mode).access is expected


def test_only_a_built_in_server_declares_the_kind_of_its_tools():
    meta = {"dev.holdfast/kind": "edit"}

    kinds = [tool_kind(catalog_tool(source=source, meta=meta)) for source in (Source.BUILTIN, Source.CLIENT)]

    assert kinds == ["edit", "other"]


class SlowUser(ScriptedUser):
    """Answers when `may_answer` is set, and counts the questions."""

    def __init__(self, *decisions: Decision) -> None:
        super().__init__(*decisions)
        self.questions = 0
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        self.questions += 1
        self.is_asked.set()
        await self.may_answer.wait()
        return await super().request_permission(question)


async def test_mode_read_only_refuses_a_tool_that_was_always_allowed(make_host: HostFactory, tmp_path: Path):
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        session.attach(ScriptedUser(Decision.ALLOW_ALWAYS))
        for mode in (Mode.ASK, Mode.READ_ONLY, Mode.ASK):
            await session.permission.change_mode(mode)
            await session.prompt(text_prompt(COUNT))
        records = await audit_records(host, AuditKind.CALL)

    assert [record.outcome for record in records] == ["completed", "refused", "completed"]


async def test_mode_read_only_refuses_a_call_allowed_after_the_mode_changed(
    make_host: HostFactory, tmp_path: Path
):
    user = SlowUser(Decision.ALLOW_ONCE)
    async with (
        make_host({"c": counter_entry()}) as host,
        host.session(cwd=tmp_path, permission=Mode.ASK) as session,
    ):
        session.attach(user)
        turn = asyncio.create_task(session.prompt(text_prompt(COUNT)))
        await user.is_asked.wait()
        await session.permission.change_mode(Mode.READ_ONLY)
        user.may_answer.set()
        await turn
        records = await audit_records(host, AuditKind.CALL)

    assert [(record.outcome, record.reason) for record in records] == [("refused", "NOT_PERMITTED")]


@pytest.mark.promise("SES-04")
async def test_an_ask_rule_asks_about_every_call_in_every_mode_and_a_deny_rule_asks_about_none(
    make_host: HostFactory, tmp_path: Path
):
    user = SlowUser(Decision.ALLOW_ALWAYS, Decision.REJECT, Decision.ALLOW_ONCE)
    user.may_answer.set()
    asking = NO_RULES.restrict(PermissionRestriction(ask=(parse_tool_pattern("c.count"),)), "the client")
    denying = asking.restrict(PermissionRestriction(deny=(parse_tool_pattern("c"),)), "the agent 'reviewer'")
    async with make_host({"c": counter_entry()}) as host, host.session(cwd=tmp_path) as session:
        session.attach(user)
        outcomes: list[str] = []
        for rules in (asking, denying):
            session.permission.rules = rules
            for mode in (Mode.ASK, Mode.AUTO, Mode.AUTO):
                await session.permission.change_mode(mode)
                result = await session.call("c.count")
                outcomes.append("ran" if result.ok else result.message)

    denied = "c.count is denied by the rule 'c.*' of the agent 'reviewer'. Remove the rule to allow it."
    assert outcomes == [
        "ran",
        "c.count was not permitted: the question about this call was rejected.",
        "ran",
        *[denied] * 3,
    ]
    assert user.questions == 3


async def test_concurrent_calls_of_a_tool_ask_once_if_the_answer_is_always(
    make_host: HostFactory, tmp_path: Path
):
    user = SlowUser(Decision.ALLOW_ALWAYS)
    async with (
        make_host({"c": counter_entry()}) as host,
        host.session(cwd=tmp_path, permission=Mode.ASK) as session,
    ):
        await session.wait_ready_and_store()
        session.attach(user)
        turn = asyncio.create_task(session.prompt(text_prompt("\n".join([COUNT] * 3))))
        await user.is_asked.wait()
        user.may_answer.set()
        await turn
        records = await audit_records(host, AuditKind.CALL)

    assert (user.questions, [record.outcome for record in records]) == (1, ["completed"] * 3)


async def test_concurrent_calls_of_a_tool_ask_one_by_one_if_the_first_is_refused(
    make_host: HostFactory, tmp_path: Path
):
    user = SlowUser(Decision.REJECT, Decision.ALLOW_ONCE, Decision.REJECT)
    user.may_answer.set()
    async with (
        make_host({"c": counter_entry()}) as host,
        host.session(cwd=tmp_path, permission=Mode.ASK) as session,
    ):
        session.attach(user)
        await session.prompt(text_prompt("\n".join([COUNT] * 3)))
        records = await audit_records(host, AuditKind.CALL)

    assert (user.questions, sorted(record.outcome for record in records)) == (
        3,
        ["completed", "refused", "refused"],
    )
