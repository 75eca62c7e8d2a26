"""The file tools stay out of what Holdfast itself goes by: its data, its keys, its settings."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.audit.anchor import FileAnchor
from holdfast.audit.audit import verify_store
from holdfast.audit.chain import Verdict
from holdfast.host import Host, Opening
from holdfast.model.trust import Trust
from tests.builtin.support import Files

pytestmark = pytest.mark.anyio

ANCHOR = "holdfast.db-anchor"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a project and, further down, Holdfast's own folder; its settings stand among other files."""
    home = tmp_path.resolve() / "home"
    (home / "project").mkdir(parents=True)
    (home / ".local/share").mkdir(parents=True)
    (home / "notes").write_text("mine")
    (home / "config.toml").write_text("")
    return home


@pytest.fixture
def host(home: Path) -> Host:
    environ = {
        "HOLDFAST_DATA_DIR": str(home / ".local/share/holdfast"),
        "HOLDFAST_SERVERS_USER_FILE": str(home / "servers.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(home / "host.json"),
    }
    return Host(settings=settings.load(home / "config.toml", environ))


def ways(home: Path, root: Path) -> Iterator[str]:
    """The anchor of the audit, a key and the settings, by their paths, by dots and by links."""
    data = home / ".local/share/holdfast"
    (root / "link").symlink_to(data)
    (root / "to the anchor").symlink_to(os.path.relpath(data / ANCHOR, root))
    (root / "by the process").symlink_to(f"/proc/self/root{data}")
    yield from (str(data / ANCHOR), str(data / "keys/new"), str(data / "new/folder/file"))
    yield from (f"{root}/link/{ANCHOR}", f"{root}/to the anchor", f"{root}/by the process/{ANCHOR}")
    yield f"{root}/../{os.path.relpath(data / ANCHOR, root.parent)}"
    yield from (str(home / "config.toml"), str(home / "servers.json"), str(home / "host.json"))


@pytest.mark.promise("ACP-15")
@pytest.mark.parametrize("root", ["/", "home", "data"])
async def test_it_is_neither_read_nor_changed_nor_listed_whatever_the_session_was_granted(
    host: Host, home: Path, root: str
):
    data = home / ".local/share/holdfast"
    granted = {"/": "/", "home": str(home), "data": str(data)}[root]
    async with host:
        session = await host.open(Opening(cwd=home, roots=(granted,)))
        codes = {
            (tool, path): (await session.call(f"files.{tool}", {"path": path, **more})).data["code"]
            for path in ways(home, home / "project")
            for tool, more in {"read": {}, "write": {"text": ""}, "edit": {"old": "a", "new": "b"}}.items()
        }
        folders = [
            (await session.call(f"files.{tool}", {"path": path})).data["code"]
            for tool in ("list", "find")
            for path in (str(data), str(data / "keys"), f"{home}/project/link", "project/link")
        ]
        found = await session.call("files.find", {"path": str(home), "glob": "**", "limit": 1000})
        await host.close_session(session)
        verdict = await _verdict(host, data)

    outside = {path for (_, path), code in codes.items() if code == "OUTSIDE_ROOTS"}
    assert set(codes.values()) <= {"DENIED", "OUTSIDE_ROOTS"}, codes
    assert all("by the process" in path for path in outside), outside
    assert folders == ["DENIED"] * 8
    assert {hit["path"] for hit in found.data["found"]} == {"notes"}
    assert (verdict.good, (data / "new").exists()) == (True, False)


async def test_a_session_in_the_home_folder_works_around_it(host: Host, home: Path):
    async with host, host.session(cwd=home) as session:
        listed = await session.call("files.list", {"path": ".local/share"})
        await session.call("files.write", {"path": "config.toml.bak", "text": "mine"})
        refused = await session.call("files.list", {"path": ".local/share/holdfast"})

    assert listed.data["entries"] == [{"name": "holdfast", "kind": "folder"}]
    assert (home / "config.toml.bak").read_text() == "mine"
    assert refused.data["error"] == (
        "'.local/share/holdfast' is Holdfast's own: no session reads or changes its data, keys or settings. "
        "A person can, outside of Holdfast."
    )


async def test_a_sandboxed_session_around_it_has_no_file_tools_at_all(host: Host, home: Path):
    async with host, host.session(cwd=home, trust=Trust.SANDBOXED) as session:
        assert session.up == ()


async def test_control_file_tools_that_know_of_nothing_own_break_the_audit(host: Host, home: Path):
    async with host:
        async with host.session(cwd=home / "project") as session:
            await session.call("files.list")
        await Files(home).call("write", path=f".local/share/holdfast/{ANCHOR}", text="forged")
        verdict = await _verdict(host, home / ".local/share/holdfast")

    assert not verdict.good


async def _verdict(host: Host, data: Path) -> Verdict:
    anchor = FileAnchor(data / ANCHOR).read()
    return await host.store.read(lambda reads: verify_store(reads, anchor))
