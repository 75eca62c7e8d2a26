"""Reopening a stored session: it never gets a looser mode, other servers or other users than it was stored with."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from holdfast import HoldfastError, Host, Mode, OpenOptions, Session
from holdfast.events import StoredEvent
from holdfast.host.open_options import inherit_options
from holdfast.testing import host_of
from holdfast.toolkit import Toolbox
from tests.connect.conftest import counter_entry

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-04")]

DOORS: tuple[str, ...] = ("python", "acp", "chat", "cli", "gateway")
EXPECTED: dict[str, dict[str, Mode]] = {
    # Only an application gets the mode `auto` that an application opened the session with.
    "auto": {"python": Mode.AUTO, **dict.fromkeys(DOORS[1:], Mode.ASK)},
    "ask": dict.fromkeys(DOORS, Mode.ASK),
    "read-only": dict.fromkeys(DOORS, Mode.READ_ONLY),
}


def counter() -> Toolbox:
    box, total = Toolbox("counter"), [0]

    @box.tool()
    def add() -> int:  # pyright: ignore[reportUnusedFunction]
        """Add one."""
        total[0] += 1
        return total[0]

    return box


async def mode_of(host: Host, session_id: str, options: OpenOptions | None = None) -> Mode:
    async with await host.reopen(session_id, options) as session:
        return session.permission.mode


@pytest.mark.parametrize("permission", ["auto", "ask", "read-only"])
async def test_a_reopened_session_has_its_stored_mode_at_every_door(
    tmp_path: Path, permission: Literal["auto", "ask", "read-only"]
):
    async with host_of() as host:
        async with host.session(cwd=tmp_path, permission=permission) as session:
            session_id = session.context.session_id
        found = {
            # `auto` is what OpenOptions has by default; it must not raise the mode.
            (door, asked): await mode_of(host, session_id, OpenOptions(opened_by=door, mode=asked))
            for door in DOORS
            for asked in (Mode.AUTO, None)
        }
        plain = await mode_of(host, session_id)
        by_name = await host.reopen(session_id, permission="auto")
        await by_name.close()

    assert found == {(door, asked): EXPECTED[permission][door] for door, asked in found}
    assert plain == by_name.permission.mode == EXPECTED[permission]["python"]


async def test_a_lower_mode_is_kept_and_a_person_can_still_raise_it(tmp_path: Path):
    async with host_of() as host:
        async with host.session(cwd=tmp_path) as session:
            session_id = session.context.session_id
        async with await host.reopen(session_id, permission="ask") as lowered:
            pass
        later = await mode_of(host, session_id)
        async with await host.reopen(session_id) as session:
            await session.permission.change_mode(Mode.AUTO)
        chosen = await mode_of(host, session_id, OpenOptions(opened_by="chat", mode=None))

    assert (lowered.permission.mode, later, chosen) == (Mode.ASK, Mode.ASK, Mode.AUTO)


@pytest.mark.parametrize("parent_is", ["open", "stored", "deleted"])
async def test_a_session_inside_another_is_not_reopened_above_its_parent(tmp_path: Path, parent_is: str):
    async with host_of() as host:
        async with host.session(cwd=tmp_path) as parent:
            child = await host.open(inherit_options({}, parent, OpenOptions()))
            control = child.permission.mode
            await child.close()
            before = await mode_of(host, child.context.session_id)
            await parent.permission.change_mode(Mode.READ_ONLY)
            after = await mode_of(host, child.context.session_id)
        if parent_is == "deleted":
            await host.delete_session(parent.context.session_id)
        if parent_is != "open":
            after = await mode_of(host, child.context.session_id)

    lowered = Mode.ASK if parent_is == "deleted" else Mode.READ_ONLY
    assert (control, before, after) == (Mode.AUTO, Mode.AUTO, lowered)


async def test_a_mode_and_a_trust_in_text_are_those_that_they_name(tmp_path: Path):
    given: Any = {"mode": "read-only", "trust": "sandboxed"}
    async with host_of() as host:
        session = await host.open(OpenOptions(cwd=tmp_path, **given))
        await session.close()
        again = await mode_of(host, session.context.session_id)

    assert (session.permission.mode, again) == (Mode.READ_ONLY, Mode.READ_ONLY)
    assert session.permission.mode is Mode.READ_ONLY
    with pytest.raises(HoldfastError, match="'all' is not a mode"):
        OpenOptions(mode="all")  # pyright: ignore[reportArgumentType]


async def test_servers_of_the_application_are_given_again_by_name_or_as_options(tmp_path: Path):
    servers = {"counter": counter}
    seen: list[StoredEvent] = []
    async with host_of() as host:
        async with host.session(cwd=tmp_path, servers=servers, user_id="ann", only_these=True) as session:
            await session.call("counter.add")
            session_id = session.context.session_id
        async with await host.reopen(session_id, user_id="ann") as without:
            refused = await without.call("counter.add")
        async with await host.reopen(
            session_id, servers=servers, user_id="ann", on_event=seen.append
        ) as again:
            first = await host.call("counter.add")  # the block is a session's block
            tools = [tool.name for tool in await again.tools()]
            with pytest.raises(HoldfastError, match="open with other servers"):
                await host.reopen(session_id, servers={"other": counter}, user_id="ann")
        as_options = await host.reopen(session_id, OpenOptions(servers=servers, user_id="ann"))
        second = await as_options.call("counter.add")
        await as_options.close()

    assert (refused.code, "host.reopen(session_id, servers={'counter': …})" in refused.message) == (
        "SERVER_REFUSED",
        True,
    )
    assert (first.ok, second.ok) == (True, True)
    assert tools == ["counter.add"], "only_these stays"
    assert [type(stored.event).__name__ for stored in seen][-1] == "SessionClosed"


@pytest.mark.promise("SES-09")
async def test_the_state_of_an_auto_session_is_reported_as_lost_without_options(tmp_path: Path):
    async with host_of(c=counter_entry()) as host:
        async with host.session(cwd=tmp_path) as session:
            await session.call("c.count")
        async with await host.reopen(session.context.session_id) as again:
            result = await again.call("c.count")

    assert (result.ok, result.state_lost) == (True, True)


@pytest.mark.promise("SES-09")
async def test_the_state_of_a_toolbox_is_reported_as_lost_if_it_is(tmp_path: Path):
    """A function makes a toolbox for each session. A toolbox object keeps its state as long as the application."""
    shared, kept = counter(), Toolbox("kept", lifespan=no_state)
    kept.tool(name="add")(add_nothing)
    servers: dict[str, Any] = {"made": counter, "shared": shared, "kept": kept}
    async with host_of(**servers) as host:
        async with host.session(cwd=tmp_path) as session:
            before = await call_all(session, servers)
        async with await host.reopen(session.context.session_id) as again:
            same_application = await call_all(again, servers)
        async with (
            Host(settings=host.settings, store=host.store, servers=servers) as later,
            await later.reopen(session.context.session_id) as again,
        ):
            next_application = await call_all(again, servers)

    assert before == {"made": False, "shared": False, "kept": False}
    assert same_application == {"made": True, "shared": False, "kept": True}
    assert next_application == {"made": True, "shared": True, "kept": True}


async def call_all(session: Session, servers: Iterable[str]) -> dict[str, bool]:
    """Whether the first result of each server says that its state is lost."""
    return {name: (await session.call(f"{name}.add")).state_lost for name in servers}


async def no_state(box: Toolbox) -> AsyncIterator[None]:
    yield


def add_nothing() -> int:
    """Add nothing."""
    return 0


async def test_a_front_end_gets_the_events_of_a_session_that_it_opens(tmp_path: Path):
    seen: list[str] = []

    async def see(stored: StoredEvent) -> None:
        seen.append(type(stored.event).__name__)
        if seen[-1] == "ToolEnded":
            await session.close()  # a function that closes the session does not wait for itself

    async with host_of(counter()) as host:
        session = await host.open(OpenOptions(cwd=tmp_path, on_event=see))
        await session.wait_ready()
        await session.call("counter.add")
        await session.close()
        at_close = list(seen)
        with pytest.raises(HoldfastError, match="`on_event` must be a function of one argument"):
            OpenOptions(on_event=lambda: None)  # type: ignore[arg-type,misc]  # pyright: ignore

    assert (at_close[0], at_close[-1]) == ("SessionOpened", "SessionClosed")


MISTAKES: list[tuple[Callable[[Host, str], Any], str]] = [
    (lambda host, one: host.reopen(one, title="x"), "`title` is that of the stored session"),
    (lambda host, one: host.reopen(one, OpenOptions(), cwd="."), "either `OpenOptions` or options by name"),
    (lambda host, one: host.reopen(one, OpenOptions(servers={"c": {"comand": "x"}})), "'command'"),
]


@pytest.mark.parametrize(("reopen", "said"), MISTAKES, ids=["title", "both", "servers"])
async def test_a_mistake_in_reopening_says_what_to_write(
    tmp_path: Path, reopen: Callable[[Host, str], Any], said: str
):
    async with host_of() as host:
        async with host.session(cwd=tmp_path) as session:
            pass
        with pytest.raises(HoldfastError, match=said):
            await reopen(host, session.context.session_id)


async def test_a_reopened_session_is_closed_if_its_block_fails(tmp_path: Path):
    kept: list[Session] = []
    async with host_of() as host:
        async with host.session(cwd=tmp_path) as session:
            pass
        with suppress(KeyError):
            async with await host.reopen(session.context.session_id) as again:
                kept.append(again)
                raise KeyError

    assert [again.is_closing for again in kept] == [True]
