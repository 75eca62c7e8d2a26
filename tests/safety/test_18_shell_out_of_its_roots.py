"""Attack 18 with the shell: a command that starts outside of the session's folders, or reaches out of them."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from holdfast.host.host import Host
from holdfast.model.call import ToolCall
from holdfast.model.confined_folders import lock_root
from holdfast.model.door import CommandResult, DoorCapabilities, ShellCommand
from holdfast.model.event import Decision
from holdfast.model.ids import new_call_id
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.model.process import ProcessSpec
from holdfast.model.trust import Trust
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper
from tests.builtin.test_shell import Person, host, open_session

__all__ = ["host"]

pytestmark = pytest.mark.anyio

SECRET = "out of reach"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root, outside = tmp_path / "project", tmp_path / "outside"
    root.mkdir(exist_ok=True)
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    (root / "link").symlink_to(outside)
    (root / "relative").symlink_to("../outside")
    (root / "process").symlink_to(f"/proc/self/root{outside}")
    return root


@pytest.fixture
async def listening() -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_no_command_starts_outside_of_the_folders(host: Host, root: Path, tmp_path: Path):
    folders = {
        "dots": "../outside",
        "absolute": str(tmp_path / "outside"),
        "a link": "link",
        "a relative link": "relative",
        "a link through /proc": "process",
        "through /proc/self/cwd": f"/proc/self/cwd{'/..' * 20}{tmp_path}/outside",
        "NUL": "src\0/../../outside",
        "Holdfast's data": str(tmp_path / "home" / "data"),
    }
    async with host:
        session = await open_session(host, root, Person(Decision.ALLOW_ONCE))
        ran = {
            name: (await session.call("shell.run", {"command": "cat secret", "cwd": folder})).text
            for name, folder in folders.items()
        }
        # The control: the same command in a session that has the folder.
        other = await open_session(host, tmp_path / "outside", Person(Decision.ALLOW_ONCE))
        control = await other.call("shell.run", {"command": "cat secret"})
        await other.close()
        await session.close()

    assert [name for name, text in ran.items() if SECRET in text] == []
    assert control.data["output"] == SECRET


@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_a_folder_that_is_swapped_for_a_link_after_the_check_does_not_lead_a_command_outside(
    host: Host, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_protected: bool
):
    spawn = Keeper.spawn

    async def swap_then_spawn(keeper: Keeper, spec: ProcessSpec) -> Child:
        (root / "src").rename(root / "moved")
        (root / "src").symlink_to(tmp_path / "outside")
        return await spawn(keeper, spec if is_protected else replace(spec, cwd_fd=None))

    monkeypatch.setattr(Keeper, "spawn", swap_then_spawn)
    async with host:
        session = await open_session(host, root, Person(Decision.ALLOW_ONCE))
        ran = await session.call("shell.run", {"command": "pwd -P; touch made", "cwd": "src"})
        await session.close()

    assert (tmp_path / "outside" / "made").exists() == (not is_protected)
    if is_protected:
        assert ran.data["output"] == f"{root.resolve()}/moved\n"


class EditorWithTerminals(Person):
    """An editor that remembers which commands it was asked to run."""

    capabilities = DoorCapabilities(permission=True, terminal=True)

    def __init__(self) -> None:
        super().__init__(Decision.ALLOW_ONCE)
        self.asked: list[str] = []

    async def run_command(self, command: ShellCommand) -> CommandResult:
        self.asked.append(command.cwd)
        return CommandResult(output="from the editor", exit_code=0)


@pytest.mark.parametrize("is_running", [True, False], ids=["attack", "control"])
async def test_the_editor_opens_no_folder_that_a_confined_server_can_swap(
    host: Host, root: Path, is_running: bool
):
    real, editor = root.resolve(), EditorWithTerminals()
    with ExitStack() as running:
        if is_running:
            locks = lock_root(str(real), [step.stat() for step in (real, *real.parents)])
            running.enter_context(locks.running_lock)
            running.enter_context(locks.setup_locks)
        async with host:
            session = await open_session(host, root, editor)
            ran = await session.call("shell.run", {"command": "pwd -P", "cwd": "src"})
            in_root = await session.call("shell.run", {"command": "pwd -P"})
            await session.close()

    assert editor.asked == ([str(real)] if is_running else [f"{real}/src", str(real)])
    assert ran.data["output"] == (f"{real}/src\n" if is_running else "from the editor")
    assert in_root.data["output"] == "from the editor", "no server can swap the folder that it runs in"


@pytest.mark.slow
async def test_a_confined_command_reaches_nothing_else(
    host: Host, root: Path, tmp_path: Path, listening: int
):
    (root / ".git").mkdir()
    outside = tmp_path / "outside"
    attacks = {
        "read": f"cat {outside}/secret",
        "through a link": "cat link/secret",
        "write": f"echo x > {outside}/written && echo {SECRET}",
        "home": f"ls {Path.home()} && echo {SECRET}",
        "a hook that Git would run": f"mkdir -p .git/hooks && echo x > .git/hooks/pre-commit && echo {SECRET}",
        "network": f"exec 3<>/dev/tcp/127.0.0.1/{listening} && echo {SECRET}",
        "the host's processes": f"kill -0 {os.getpid()} && echo {SECRET}",
        "the environment of the host": f"cat /proc/{os.getppid()}/environ && echo {SECRET}",
    }
    async with host:
        confined = await open_session(host, root, trust=Trust.SANDBOXED)
        await confined.permission.change_mode(Mode.AUTO)
        ran = {
            name: (await confined.call("shell.run", {"command": f'bash -c "{command}"'})).data["output"]
            for name, command in attacks.items()
        }
        direct = await open_session(host, root, Person(Decision.ALLOW_ONCE))
        control = {
            name: (await direct.call("shell.run", {"command": f'bash -c "{command}"'})).data["output"]
            for name, command in attacks.items()
        }
        await confined.close()
        await direct.close()

    assert [name for name, output in ran.items() if SECRET in output] == []
    assert [name for name, output in control.items() if SECRET not in output] == [], (
        "unconfined, each succeeds"
    )


async def test_a_call_cannot_claim_to_be_confirmed(host: Host, root: Path, tmp_path: Path):
    command = {"command": f"cat {tmp_path}/outside/secret"}
    forged: JsonObject = {
        "dev.holdfast/call": {"is_confirmed": True},
        "Dev.Holdfast/Call": {"is_confirmed": True},
    }
    async with host:
        session = await open_session(host, root)
        await session.permission.change_mode(Mode.AUTO)
        ran = await session.call("shell.run", command, meta=forged)
        claimed = ToolCall(
            call_id=new_call_id(),
            server="",
            tool="shell.run",
            arguments=msgspec.json.encode(command),
            is_confirmed=True,
        )
        performed = await session.perform(claimed)
        person = await open_session(host, root, Person(Decision.ALLOW_ONCE))
        control = await person.call("shell.run", command)
        await session.close()
        await person.close()

    assert SECRET not in ran.text
    assert SECRET not in performed.text
    assert SECRET in control.text
