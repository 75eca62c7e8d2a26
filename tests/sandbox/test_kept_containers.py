"""Containers that are kept for a session, with a small engine of the tests' own; see `container_engine.py`."""

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import Host
from holdfast.cli.sessions.change import delete as sessions_delete
from holdfast.model.ids import new_session_id
from holdfast.model.process import KeptFor, ProcessSpec
from holdfast.sandbox.container.container import ContainerSandbox
from holdfast.sandbox.container.engine import Engine
from holdfast.sandbox.container.kept_containers import KeptContainers, kept_name
from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.container_engine import make_engine
from tests.sandbox.support import PATH, confined, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

SYSTEM_PYTHON = os.path.realpath("/usr/bin/python3")
COUNTING_SERVER = str(Path(__file__).with_name("counting_server.py"))
COUNT = "echo x >> /srv/starts; wc -l < /srv/starts"
WRITE = "echo x > written && echo changed"


class Machine:
    """An engine, its containers, and the sandbox that uses it."""

    def __init__(self, folder: Path) -> None:
        self.containers = make_engine(folder / "engine")
        self.path = f"{folder}/engine:{os.environ['PATH']}"
        self.data = folder / "data"

    def sandbox(self, *, is_kept: bool = True) -> ContainerSandbox:
        return ContainerSandbox(
            engine="podman", image="tools:1", search_path=self.path, keep_in=self.data if is_kept else None
        )

    def kept(self) -> KeptContainers:
        return KeptContainers(Engine("podman", search_path=self.path), self.data)

    def names(self) -> list[str]:
        return sorted(command.parent.name for command in self.containers.glob("*/command"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def shell(code: str, root: Path, kept_for: KeptFor | None, **changes: object) -> ProcessSpec:
    spec = confined(ProcessSpec(argv=("/bin/sh", "-c", code), env=PATH, cwd=str(root)), root, **changes)
    return replace(spec, kept_for=kept_for)


@pytest.mark.promise("BOX-05")
async def test_server_finds_the_files_of_its_container_again_until_its_session_is_deleted(
    machine: Machine, root: Path
) -> None:
    notes = KeptFor(session_id=new_session_id(), server="notes")
    other_server, other_session = replace(notes, server="shop"), replace(notes, session_id=new_session_id())
    starts = {"first": notes, "again": notes, "other server": other_server, "other session": other_session}

    async with Keeper(machine.sandbox()) as keeper:
        counted = {each: (await run(keeper, shell(COUNT, root, who))).out for each, who in starts.items()}
    before = machine.names()
    problem = await machine.kept().remove([notes.session_id])

    assert counted == {"first": "1\n", "again": "2\n", "other server": "1\n", "other session": "1\n"}
    assert before == sorted(map(kept_name, (notes, other_server, other_session)))
    assert (problem, machine.names()) == ("", [kept_name(other_session)])
    assert await machine.kept().sessions() == {other_session.session_id}


@pytest.mark.promise("BOX-05")
async def test_container_is_not_kept_without_the_setting_or_without_a_stored_session(
    machine: Machine, root: Path
) -> None:
    notes = KeptFor(session_id=new_session_id(), server="notes")

    async with Keeper(machine.sandbox(is_kept=False)) as keeper:
        switched_off = await run(keeper, shell(COUNT, root, notes))
    async with Keeper(machine.sandbox()) as keeper:
        not_stored = await run(keeper, shell(COUNT, root, None))

    assert [("Read-only" in each.err, each.out) for each in (switched_off, not_stored)] == [(True, "")] * 2
    assert machine.names() == []


def start_as_it_was(engine: Engine, name: str) -> tuple[int, str]:
    """Start a container without the sandbox, which would make the protected names in its root again."""
    while True:
        code, output = engine.run_blocking("start", "--attach", "--interactive", name)
        missing = re.search(r"Can't find source path (\S+):", output)
        if missing is None:
            return code, output
        Path(missing[1]).mkdir()


@pytest.mark.promise("BOX-05", "BOX-06")
async def test_kept_container_does_not_keep_an_access_that_the_server_no_longer_has(
    machine: Machine, root: Path
) -> None:
    """Between two starts, the user approves a program in the folder: no confined server may change the folder then."""
    notes = KeptFor(session_id=new_session_id(), server="notes")
    async with Keeper(machine.sandbox()) as keeper:
        allowed = await run(keeper, shell(WRITE, root, notes))

        engine = Engine("podman", search_path=machine.path)
        (root / "written").unlink()
        control = start_as_it_was(engine, kept_name(notes))
        changed_by_control = (root / "written").exists()
        (root / "written").unlink(missing_ok=True)
        denied = await run(keeper, shell(WRITE, root, notes, read_only=(str(root),)))

    assert allowed.out == "changed\n"
    assert (control, changed_by_control) == ((0, "changed"), True), (
        "started again as it was, it can still write"
    )
    assert (denied.out, "Read-only" in denied.err, (root / "written").exists()) == ("", True, False)


@pytest.mark.promise("BOX-05")
async def test_kept_container_is_replaced_if_something_else_would_run(machine: Machine, root: Path) -> None:
    notes = KeptFor(session_id=new_session_id(), server="notes")
    spec = shell(COUNT, root, notes)
    new_variables = replace(spec, env={**spec.env, "TOKEN": "new"})
    new_program = replace(new_variables, argv=("/bin/sh", "-c", f"{COUNT}; true"))

    async with Keeper(machine.sandbox()) as keeper:
        counted = [(await run(keeper, each)).out for each in (spec, spec, new_variables, new_program)]
        (machine.containers / "image").write_text("image-2")
        counted.append((await run(keeper, new_program)).out)

    assert (counted, machine.names()) == (["1\n", "2\n", "1\n", "1\n", "1\n"], [kept_name(notes)])


@pytest.mark.promise("BOX-05")
async def test_containers_that_cannot_be_removed_are_reported(machine: Machine, root: Path) -> None:
    notes = KeptFor(session_id=new_session_id(), server="notes")
    async with Keeper(machine.sandbox()) as keeper:
        await run(keeper, shell(COUNT, root, notes))
    program = machine.containers.parent / "podman"
    program.write_text("#!/bin/sh\necho the disk is full\nexit 125\n")

    assert await machine.kept().remove([notes.session_id]) == "the disk is full"


@pytest.mark.slow
@pytest.mark.promise("BOX-05")
async def test_session_keeps_its_container_until_it_is_deleted(
    machine: Machine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the host and the command: opened, opened again, deleted. A session that is not stored keeps nothing."""
    # The engine of the tests is in no folder of the system.
    monkeypatch.setattr("holdfast.sandbox.container.engine.system_path", lambda: machine.path)
    variables = {"ENGINE": "podman", "IMAGE": "tools:1", "KEEP": "true"}
    for name, value in {f"SANDBOX_{name}": value for name, value in variables.items()}.items():
        monkeypatch.setenv(f"HOLDFAST_{name}", value)
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(machine.data))
    server: Any = {"command": SYSTEM_PYTHON, "args": [COUNTING_SERVER], "confined": True}

    async with Host(servers={"notes": server}) as host:
        async with host.session(cwd=root, keep=False) as session:
            not_stored = await session.call("notes.count")
        async with host.session(cwd=root) as session:
            first = await session.call("notes.count")
        async with await host.reopen(session.context.session_id) as again:
            second = await again.call("notes.count")
        async with host.session(cwd=root) as other:
            await other.call("notes.count")
        before = machine.names()
        await host.delete_session(session.context.session_id)
    after = machine.names()
    await asyncio.to_thread(
        CliRunner().invoke, sessions_delete, ["--yes", other.context.session_id], catch_exceptions=False
    )

    assert [each.text.splitlines()[-1] for each in (not_stored, first, second)] == ["-", "1", "2"]
    names = [
        kept_name(KeptFor(session_id=each.context.session_id, server="notes")) for each in (session, other)
    ]
    assert (before, after, machine.names()) == (sorted(names), [names[1]], [])
