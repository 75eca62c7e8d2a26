"""Attack 44: a confined server rewrites a program whose approval follows the user's edits."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.approvals import unrecorded_approvals
from holdfast.host import approvals, composition
from holdfast.host.host import Host
from holdfast.model.errors import HoldfastError
from holdfast.model.server import ServerSpec, Source
from holdfast.model.trust import Trust
from holdfast.resolve.entry_summary import entry_command
from holdfast.resolve.grant import ConfinedGrant
from holdfast.resolve.load import load_file
from tests.connect.conftest import HostFactory, folder, make_host
from tests.safety.test_44_rewriting_an_approved_program import (
    SERVER,
    open_and_call,
    own_writer,
    write_server,
)

__all__ = ["folder", "make_host"]
pytestmark = pytest.mark.anyio

EDITED = SERVER.replace("ran", "was edited")


def write_entry(folder: Path, **more: Any) -> None:
    entry = {"command": sys.executable, "args": ["server.py", "tools.txt"], **more}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": entry}}))


async def approve(host: Host, folder: Path, *, grant: ConfinedGrant | None = None, follow: bool) -> None:
    write_entry(folder)
    (entry,) = load_file(Source.PROJECT, folder / ".mcp.json").entries
    program = await host.approvals.read_program(entry_command(entry), str(folder))
    await host.approvals.approve_server(entry, by="ann", program=program, grant=grant, follow_edits=follow)


def edit(folder: Path) -> None:
    (folder / "server.py").write_text(f"import another\n{EDITED}")
    (folder / "another.py").touch()


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize("follow", [True, False])
async def test_edited_program_runs_without_a_question_if_the_approval_follows_edits(
    make_host: HostFactory, folder: Path, *, follow: bool
):
    write_server(folder)
    async with make_host({}) as host:
        await approve(host, folder, follow=follow)
        before = await open_and_call(host, folder)
        edit(folder)
        edited = await open_and_call(host, folder)
        write_entry(folder, env={"A": "b"})
        other_entry = await open_and_call(host, folder)

    assert before == "run ran"
    assert (edited == "run was edited", "not as it was approved" in edited) == (follow, not follow)
    assert other_entry.startswith("It is not approved, or has changed since you approved it.")


async def write_confined(host: Host, folder: Path, server: str) -> str:
    """Let a confined server write to the program."""
    async with host.session(cwd=folder, trust=Trust.SANDBOXED, tools=[f"{server}.*"]) as session:
        return (await session.call(f"{server}.write", {"path": str(folder / "server.py")})).text


@pytest.mark.slow
@pytest.mark.promise("RES-07", "BOX-01")
@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("protected", [True, False])
async def test_confined_server_that_can_write_in_the_folder_ends_it(
    make_host: HostFactory,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    protected: bool,
):
    async def end_nothing(_store: object, _audit: object, spec: ServerSpec) -> ServerSpec:
        return spec

    if not protected:
        monkeypatch.setattr(composition, "revoke_edit_approvals_in_writable_roots", end_nothing)
    write_server(folder)
    own = own_writer(tmp_path)
    async with make_host({"w": own, "granted": {**own, "writable": ["."]}}) as host:
        await approve(host, folder, follow=True)
        edit(folder)
        written = [await write_confined(host, folder, "w")]
        read_only = await open_and_call(host, folder)
        written.append(await write_confined(host, folder, "granted"))
        rewritten = await open_and_call(host, folder)
        unrecorded = await host.store.read(unrecorded_approvals)
        await approve(host, folder, follow=True)
        edit(folder)
        again = await open_and_call(host, folder)

    assert written == ["Read-only file system", "written"]
    assert (read_only, again, unrecorded) == ("run was edited", "run was edited", [])
    if protected:
        assert "server.py changed" in rewritten
        assert "until the confined server 'granted' could write in this folder" in rewritten
    else:
        assert rewritten == "run was edited"  # the control: the attack succeeds


@pytest.mark.usefixtures("bwrap")
async def test_confined_server_that_cannot_write_in_the_folder_does_not_end_an_earlier_approval(
    make_host: HostFactory, folder: Path, tmp_path: Path
):
    write_server(folder)
    servers = {"w": own_writer(tmp_path)}
    async with make_host(servers, durable=True) as host:
        await approve(host, folder, follow=True)
    async with (
        make_host(servers, durable=True) as host,
        host.session(cwd=folder, trust=Trust.SANDBOXED, tools=["w.*"]) as session,
    ):
        written = (await session.call("w.write", {"path": str(folder / "server.py")})).text
        await host.approvals.on_change()
        followed = await host.approvals.entries_with_followed_edits()

    assert (written, len(followed)) == ("Read-only file system", 1)


@pytest.mark.usefixtures("bwrap")
async def test_edits_cannot_be_followed_while_a_confined_server_runs_in_the_folder(
    make_host: HostFactory, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def never(*_: object) -> str:
        return ""

    write_server(folder)
    write_entry(folder)
    async with make_host({"w": own_writer(tmp_path)}) as host:
        async with host.session(cwd=folder, trust=Trust.SANDBOXED, tools=["w.*"]) as session:
            control = (await session.call("w.write", {"path": str(folder / "other.txt")})).text
            with pytest.raises(HoldfastError, match="a confined server runs in"):
                await approve(host, folder, follow=True)
        with pytest.raises(HoldfastError, match="works only for a server that runs with your rights"):
            await approve(host, folder, grant=ConfinedGrant(), follow=True)
        refused = await host.approvals.entries_with_followed_edits()
        # A server that was being started when the approval was given is found afterwards.
        monkeypatch.setattr(approvals, "why_not_to_follow", never)
        async with host.session(cwd=folder, trust=Trust.SANDBOXED, tools=["w.*"]) as session:
            await session.call("w.write", {"path": str(folder / "other.txt")})
            await approve(host, folder, follow=True)
            ended = await host.approvals.entries_with_followed_edits()
        await approve(host, folder, follow=True)
        followed = await host.approvals.entries_with_followed_edits()

    assert (control, refused, ended, len(followed)) == ("written", frozenset(), frozenset(), 1)


@pytest.mark.usefixtures("bwrap")
async def test_new_approval_stays_beside_a_confined_server_that_cannot_write_in_the_folder(
    make_host: HostFactory, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def never(*_: object) -> str:
        return ""

    monkeypatch.setattr(approvals, "why_not_to_follow", never)  # the server was being started
    write_server(folder)
    async with make_host({"w": own_writer(tmp_path)}) as host:
        await approve(host, folder, follow=False)
        async with host.session(cwd=folder, trust=Trust.SANDBOXED, tools=["w.*"]) as session:
            written = (await session.call("w.write", {"path": str(folder / "server.py")})).text
            await approve(host, folder, follow=True)
            followed = await host.approvals.entries_with_followed_edits()

    assert (written, len(followed)) == ("Read-only file system", 1)


def link_out(folder: Path, outside: Path) -> None:
    (folder / "helper.py").symlink_to(outside)


def name_twice(folder: Path, outside: Path) -> None:
    os.link(outside, folder / "helper.py")


@pytest.mark.parametrize("replace", [link_out, name_twice])
async def test_files_that_can_be_changed_outside_of_the_project_are_not_followed(
    make_host: HostFactory, folder: Path, tmp_path: Path, replace: Callable[[Path, Path], None]
):
    write_server(folder)
    outside = tmp_path / "outside.py"
    outside.write_text("VERSION = 2\n")
    async with make_host({}) as host:
        await approve(host, folder, follow=True)
        (folder / "helper.py").write_text("VERSION = 3\n")
        control = await open_and_call(host, folder)
        (folder / "helper.py").unlink()
        replace(folder, outside)
        refused = await open_and_call(host, folder)
        write_entry(folder)
        await approve(host, folder, follow=False)
        approved = await open_and_call(host, folder)

    assert (control, approved) == ("run ran", "run ran")
    assert (
        "helper.py is outside of the project's folder (perhaps through a link), or has a second hard link"
        in refused
    )
