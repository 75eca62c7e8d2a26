"""Attack 62: a run inside a session, or the session itself when it is resumed or joined, gets more rights than the session had."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.agent.agent import Agent, TurnContext
from holdfast.connect.call import ToolResult
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import StopReason
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.model.tool_pattern import parse_tool_patterns
from holdfast.model.trust import Trust
from holdfast.session.session import Session
from tests.connect.conftest import HostFactory, folder, make_host, open_for_block

__all__ = ["folder", "make_host"]
pytestmark = pytest.mark.anyio
READ_ONLY = OpenOptions(mode=Mode.READ_ONLY, tools=(parse_tool_patterns(["files.read"]),))


async def write(session: Session, text: str = "x") -> ToolResult:
    return await session.call("files.write", {"path": "out.txt", "text": text})


def make_strict(host: Host, folder: Path) -> Path:
    """A folder whose workspace denies `files.write`, limits the mode, and has no `files.find`."""
    strict = folder.parent / "strict"
    strict.mkdir()
    workspace = host.registry.add(strict, trust=Trust.DIRECT)
    file = host.registry.file_of(workspace.slug)
    text = file.read_text().replace('tools = "all"', 'tools = ["read", "write"]')
    file.write_text(f'{text}\n[permission]\ndeny = ["files.write"]\nmax_mode = "read-only"\n')
    return strict


async def rights(session: Session) -> tuple[bool, bool, Mode]:
    """Whether the session can write, whether it has `files.find`, and the highest mode of its rules."""
    names = {tool.name for tool in await session.tools()}
    return (await write(session)).ok, "files.find" in names, session.permission.rules.max_mode


@pytest.mark.promise("LNK-02")
async def test_run_in_the_folder_of_another_workspace_gets_the_restrictions_of_both(
    make_host: HostFactory, folder: Path
):
    async with make_host({}) as host:
        strict = make_strict(host, folder)
        async with host.session(cwd=folder) as outer, host.run(isolate=True, cwd=strict) as run:
            inside = await rights(run)
            async with host.run(isolate=True, cwd=folder) as back:
                left = await rights(back)
            unrestricted = await rights(outer)
        loose = host.registry.add(folder, trust=Trust.DIRECT).slug
        async with host.session(cwd=strict, workspace=loose) as session:
            named = await rights(session)
        async with open_for_block(host, OpenOptions(cwd=folder)) as control:  # outside of the strict folder
            free = await rights(control)

    assert inside == left == named == (False, False, Mode.READ_ONLY)
    assert unrestricted == free == (True, True, Mode.AUTO)


@pytest.mark.promise("LNK-02")
async def test_no_run_in_a_session_of_another_host_or_in_one_that_is_being_closed(
    make_host: HostFactory, folder: Path
):
    class Clinging(Agent):
        """Starts a run when its turn is cancelled, because the session is being closed."""

        async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
            answering.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                refused.append(await why_refused(host))
            return StopReason.END_TURN

    answering, refused = asyncio.Event(), list[str]()
    async with make_host({}) as host, make_host({}) as other:
        async with host.session(cwd=folder, permission="read-only"):
            refused.append(await why_refused(other))
        session = await host.open(replace(READ_ONLY, cwd=folder))
        session.agent = Clinging()
        turn = asyncio.create_task(session.prompt([{"type": "text", "text": "hi"}]))
        await answering.wait()
        await session.close()
        await turn

    assert refused == [codes.SCOPE_CLOSED.name] * 2


async def why_refused(host: Host) -> str:
    with pytest.raises(HoldfastError) as refused:
        async with host.run(isolate=True):
            pass
    return refused.value.code.name


@pytest.mark.promise("LNK-02")
async def test_what_an_agent_starts_in_a_turn_is_part_of_the_session(make_host: HostFactory, folder: Path):
    class Starting(Agent):
        async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
            async with host.run(isolate=True, permission="auto") as run:
                seen.append((run.permission.mode, [tool.name for tool in await run.tools()]))
            return StopReason.END_TURN

    seen: list[tuple[Mode, list[str]]] = []
    async with make_host({}) as host:
        # As editors open it: this code is not inside of the session, the agent's turn is.
        async with open_for_block(host, replace(READ_ONLY, cwd=folder)) as session:
            session.agent = Starting()
            await session.prompt([{"type": "text", "text": "hi"}])
        async with host.run(cwd=folder, permission="auto") as control:
            unlimited = (control.permission.mode, (await write(control)).ok)

    assert (seen, unlimited) == ([(Mode.READ_ONLY, ["files.read"])], (Mode.AUTO, True))


@pytest.mark.promise("LNK-02")
async def test_run_loses_the_rights_that_the_session_around_it_loses(make_host: HostFactory, folder: Path):
    async with (
        make_host({}) as host,
        host.session(cwd=folder) as outer,
        host.run(isolate=True) as run,
        host.run(isolate=True) as inner,
    ):
        before = [(await write(session)).ok for session in (run, inner)]
        await outer.permission.change_mode(Mode.READ_ONLY)
        await outer.lower_trust()
        after = [(await write(session)).code for session in (run, inner)]
        trusts = [session.context.trust_level for session in (run, inner)]
        with pytest.raises(HoldfastError, match="mode of the session that this one was started in"):
            await inner.permission.change_mode(Mode.AUTO)

        for session in (run, inner):  # the control
            session.permission._parent = None
        free = [(await write(session)).ok for session in (run, inner)]

    assert (before, after, trusts) == ([True, True], ["NOT_PERMITTED"] * 2, [Trust.SANDBOXED] * 2)
    assert free == [True, True]


@pytest.mark.promise("LNK-02")
async def test_run_that_is_being_opened_does_not_miss_that_the_trust_is_lowered(
    make_host: HostFactory, folder: Path
):
    seen: set[Trust | str] = set()

    async def start(host: Host) -> None:
        try:
            async with host.run(isolate=True) as run:
                await lowered.wait()
                seen.add(run.context.trust_level)
        except HoldfastError as error:
            seen.add(error.code.name)

    async with make_host({}) as host:
        for moment in range(12):
            lowered = asyncio.Event()
            async with host.session(cwd=folder) as outer:
                run = asyncio.create_task(start(host))
                for _ in range(moment * 3):
                    await asyncio.sleep(0)
                await outer.lower_trust()
                lowered.set()
                await run

    assert seen <= {Trust.SANDBOXED, codes.SCOPE_CLOSED.name}


@pytest.mark.promise("LNK-02")
async def test_run_cannot_add_the_servers_that_the_session_was_opened_without(
    make_host: HostFactory, folder: Path
):
    async with make_host({}) as host, host.session(cwd=folder, only_these=True):
        async with host.run(isolate=True, only_these=False) as run:
            offered = await run.tools()
        async with open_for_block(host, OpenOptions(cwd=folder)) as control:
            all_tools = await control.tools()

    assert (offered, bool(all_tools)) == ((), True)


@pytest.mark.promise("SES-04")
async def test_resumed_session_keeps_the_tools_and_the_mode_it_was_opened_with(
    make_host: HostFactory, folder: Path
):
    async def resume(session_id: str, options: OpenOptions) -> tuple[Mode, list[str]]:
        session = await host.reopen(session_id, options)
        found = session.permission.mode, [tool.name for tool in await session.tools()]
        await session.close()
        return found

    as_before = OpenOptions(cwd=folder, mode=None, opened_by="chat")
    other_tools = replace(as_before, tools=(parse_tool_patterns(["files.*"]),))
    async with make_host({}) as host:
        async with open_for_block(host, replace(READ_ONLY, cwd=folder)) as limited:
            pass
        async with open_for_block(host, OpenOptions(cwd=folder)) as free:
            pass
        resumed = [await resume(limited.context.session_id, options) for options in (as_before, other_tools)]
        mode, tools = await resume(free.context.session_id, as_before)
        lowered = await resume(free.context.session_id, replace(as_before, mode=Mode.READ_ONLY))
        after = await resume(free.context.session_id, as_before)

    assert resumed == [(Mode.READ_ONLY, ["files.read"])] * 2
    assert (mode, len(tools) > 1) == (Mode.ASK, True), "the control"
    assert (lowered[0], after[0]) == (Mode.READ_ONLY, Mode.READ_ONLY)


@pytest.mark.promise("SES-04")
async def test_joining_with_a_lower_mode_lowers_it_and_with_other_tools_is_refused(
    make_host: HostFactory, folder: Path
):
    async with make_host({}) as host, open_for_block(host, OpenOptions(cwd=folder)) as session:
        session_id = session.context.session_id
        with pytest.raises(HoldfastError, match="open with other tools") as refused:
            await host.reopen(session_id, replace(READ_ONLY, cwd=folder))
        unchanged = (await host.reopen(session_id, OpenOptions(cwd=folder))).permission.mode  # the control
        before = (await write(session)).ok
        joined = await host.reopen(session_id, replace(READ_ONLY, cwd=folder, tools=()))
        after = await write(session)

    assert (refused.value.code, unchanged, before) == (codes.SESSION_HELD, Mode.AUTO, True)
    assert (joined is session, session.permission.mode, after.code) == (
        True,
        Mode.READ_ONLY,
        "NOT_PERMITTED",
    )
