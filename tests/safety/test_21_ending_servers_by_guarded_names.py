"""Attack 21: a confined server without grants creates and removes guarded names, to end the other servers in its folder."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model import confined_folders
from holdfast.model.confined_folders import GuardRecord, ServersEndingError, lock_root
from holdfast.model.errors import HoldfastError
from holdfast.sandbox import guard_watch, start_confined
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.guard_watch import GuardWatch
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.sandbox import PreparedProcess
from holdfast.sandbox.start_confined import wait_for_cleanups
from tests.sandbox.support import SOURCE, TIMEOUT, confined, python, read_line, started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap"), pytest.mark.promise("BOX-03")]

# Executes each line that it reads, and prints what is raised.
OBEY = """
import os, shutil, sys
print('ready', flush=True)
for line in sys.stdin:
    try: exec(line); print('done', flush=True)
    except OSError as error: print(error.strerror, flush=True)
"""
CREATE_AND_REMOVE = {
    "a file": ("open('.npmrc', 'w').close()", "os.unlink('.npmrc')"),
    "a folder with a link to another name": (
        "os.makedirs('tools'); os.mkdir('.mise'); os.symlink('../tools/x', '.mise/x')",
        "os.rename('tools', 'other')",
    ),
    "instructions of agents": ("open('AGENTS.md', 'w').close()", "os.rename('AGENTS.md', 'x')"),
}


@pytest.fixture(autouse=True)
def _check_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_watch, "_CHECK_SECONDS", 0.05)


async def tell(child: Child, line: str) -> str:
    """What the server answers; empty if it has ended."""
    try:
        child.stdin.write(f"{line}\n".encode())
    except BrokenPipeError:
        return ""
    return await read_line(child)


async def ended(child: Child) -> bool:
    async with asyncio.timeout(TIMEOUT):
        return await child.wait() != 0


@pytest.mark.parametrize("case", CREATE_AND_REMOVE)
async def test_server_that_could_remove_a_name_is_ended_before_a_server_that_guards_it_is_started(
    keeper: Keeper, root: Path, case: str
) -> None:
    create, remove = CREATE_AND_REMOVE[case]
    spec = confined(python(OBEY), root)
    async with started(keeper, spec) as attacker:
        await read_line(attacker)
        created = await tell(attacker, create)
        async with started(keeper, spec) as victim, Keeper(BwrapSandbox()) as host:
            first = await read_line(victim), attacker.stdout.read(1)
            async with started(host, spec) as again:
                await read_line(again)
                removed = await tell(again, remove)
                answer = await tell(victim, "pass")
    await wait_for_cleanups()

    assert (created, first) == ("done", ("ready", b""))
    assert (removed != "done", answer) == (True, "done"), removed


async def test_control_without_the_record_the_server_ends_the_other_one(
    keeper: Keeper, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_nothing(record: GuardRecord, *names: object) -> None: ...

    monkeypatch.setattr(GuardRecord, "write", write_nothing)
    create, remove = CREATE_AND_REMOVE["a file"]
    spec = confined(python(OBEY), root)
    async with started(keeper, spec) as attacker:
        await read_line(attacker)
        await tell(attacker, create)
        async with started(keeper, spec) as victim:
            await read_line(victim)
            removed = await tell(attacker, remove)
            is_ended = await ended(victim)
            answer = await tell(attacker, "pass")
    await wait_for_cleanups()

    assert (removed, is_ended, answer) == ("done", True, "done")


OTHER_HOST = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from holdfast.sandbox import guard_watch
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.keeper.keeper import Keeper

guard_watch._CHECK_SECONDS = 0.05
async def main():
    code = "import time; open('.npmrc', 'w').close(); print('ready', flush=True); time.sleep(1000)"
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", code), env={}, cwd=sys.argv[2], confinement=Confinement(roots=(sys.argv[2],)))
    async with Keeper(BwrapSandbox()) as keeper:
        child = await keeper.spawn(spec)
        print((await asyncio.to_thread(child.stdout.read, 6)).decode(), end="", flush=True)
        print("ended", await child.wait() != 0, flush=True)
        child.close()
asyncio.run(main())
"""


async def test_server_of_another_process_is_ended_as_well(keeper: Keeper, root: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-I", "-c", OTHER_HOST, SOURCE, root], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert await asyncio.to_thread(other.stdout.readline) == "ready\n"
    async with started(keeper, confined(python(OBEY), root)) as victim:
        await read_line(victim)
        says, _ = await asyncio.to_thread(other.communicate)
        removed = await tell(victim, "os.unlink('.npmrc')")
    await wait_for_cleanups()

    assert (says, removed) == ("ended True\n", "Device or resource busy")


@pytest.mark.parametrize("is_checked", [True, False], ids=["attack", "control"])
async def test_server_that_lacks_a_guard_before_it_has_started_is_set_up_again(
    keeper: Keeper, root: Path, monkeypatch: pytest.MonkeyPatch, is_checked: bool
) -> None:
    """A name appears after the guards were opened, and another server that guards it is about to start."""
    check, checked = start_confined._check_sandbox, list[int]()

    def create_a_name(prepared: PreparedProcess, pid: int) -> bool:
        checked.append(pid)
        if len(checked) == 1:
            (root / ".npmrc").touch()
            let_servers_without_a_guard_end(root, ".npmrc")
        return check(prepared, pid)

    monkeypatch.setattr(start_confined, "_check_sandbox", create_a_name)
    if not is_checked:
        monkeypatch.setattr(GuardRecord, "check", check_nothing)
    async with started(keeper, confined(python(OBEY), root)) as victim:
        await read_line(victim)
        is_ended = not is_checked and await ended(victim)
        removed = await tell(victim, "os.unlink('.npmrc')")
    await wait_for_cleanups()

    assert (len(checked), is_ended) == ((2, False) if is_checked else (1, True))
    assert not is_checked or removed == "Device or resource busy"


def check_nothing(record: GuardRecord) -> None: ...


def let_servers_without_a_guard_end(root: Path, name: str) -> None:
    """Do what the start of another server does first."""
    locks = lock_root(str(root), [step.stat() for step in (root, *root.parents)])
    with locks.running_lock, locks.writing_lock, locks.setup_locks:
        known = locks.guards.guarded_by_others()
        with pytest.raises(ServersEndingError):
            locks.guards.write((*known, name), (), known)


async def test_host_that_does_not_end_its_server_keeps_the_new_one_from_starting(
    keeper: Keeper, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch_nothing(watch: GuardWatch, child: object, roots: object) -> None: ...

    monkeypatch.setattr(GuardWatch, "add", watch_nothing)
    monkeypatch.setattr(start_confined, "_OTHERS_END_SECONDS", 0.1)
    spec = confined(python(OBEY), root)
    async with started(keeper, spec) as attacker:
        await read_line(attacker)
        async with started(keeper, spec) as control:
            await read_line(control)
        await tell(attacker, CREATE_AND_REMOVE["a file"][0])
        with pytest.raises(HoldfastError, match=r"has appeared in it.*Try again"):
            await keeper.spawn(spec)
    await wait_for_cleanups()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"writable": (".npmrc",)}),
        ({"writable": (".",)}, {"executed": ("tools",)}),
        ({"executed": ("tools",)}, {}),
    ],
    ids=["a grant", "a grant for all", "other programs"],
)
async def test_servers_whose_guards_differ_by_what_the_user_says_run_side_by_side(
    keeper: Keeper, root: Path, first: dict[str, tuple[str, ...]], second: dict[str, tuple[str, ...]]
) -> None:
    (root / ".npmrc").touch()
    (root / "tools").mkdir()
    (root / "tools" / "x").touch()
    specs = [
        confined(python(OBEY), root, **{name: _below(root, name, values) for name, values in each.items()})
        for each in (first, second)
    ]
    async with started(keeper, specs[0]) as one:
        await read_line(one)
        async with started(keeper, specs[1]) as two:
            await read_line(two)
            answers = [await tell(each, "pass") for each in (one, two)]
            removed = [await tell(two, f"shutil.move('{name}', 'x')") for name in ("tools", ".npmrc")]
    await wait_for_cleanups()

    guards_tools = "executed" in first or "executed" in second
    may_change = second.get("writable") == (".npmrc",)
    assert answers == ["done", "done"]
    assert [each == "done" for each in removed] == [not guards_tools, may_change]


def _below(root: Path, name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{root}/{value}" for value in values) if name == "executed" else values


async def test_record_that_is_incomplete_counts_as_one_without_guards(keeper: Keeper, root: Path) -> None:
    spec = confined(python(OBEY), root)
    async with started(keeper, spec) as first:
        await read_line(first)
        status = root.stat()
        (record,) = confined_folders.locks_folder().glob(f"{status.st_dev:x}-{status.st_ino:x}.guards-*")
        record.write_bytes(record.read_bytes()[:-1])
        async with started(keeper, spec) as second:
            await read_line(second)
            is_ended = await ended(first)
    await wait_for_cleanups()

    assert is_ended
