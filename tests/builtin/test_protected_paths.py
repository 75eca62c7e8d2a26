"""The file tools cannot touch Holdfast's own data, keys and settings."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.audit.audit import verify_store
from holdfast.audit.chain import Verdict
from holdfast.builtin.files.roots import PathSet
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.trust import Trust
from holdfast.store.sqlite.anchor import FileAnchor
from tests.builtin.support import Files

pytestmark = pytest.mark.anyio

ANCHOR = "holdfast.db-anchor"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with a project, Holdfast's data folder, and the settings file among other files."""
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


def paths(home: Path, root: Path) -> Iterator[str]:
    """Paths to the audit anchor, a key and the settings: direct, with `..`, and through links."""
    data = home / ".local/share/holdfast"
    (root / "link").symlink_to(data)
    (root / "anchor link").symlink_to(os.path.relpath(data / ANCHOR, root))
    (root / "proc link").symlink_to(f"/proc/self/root{data}")
    yield from (str(data / ANCHOR), str(data / "keys/new"), str(data / "new/folder/file"))
    yield from (f"{root}/link/{ANCHOR}", f"{root}/anchor link", f"{root}/proc link/{ANCHOR}")
    yield f"{root}/../{os.path.relpath(data / ANCHOR, root.parent)}"
    yield from (str(home / "config.toml"), str(home / "servers.json"), str(home / "host.json"))


@pytest.mark.promise("ACP-15")
@pytest.mark.parametrize("root", ["/", "home", "data"])
async def test_protected_files_cannot_be_read_changed_or_listed_under_any_root(
    host: Host, home: Path, root: str
):
    data = home / ".local/share/holdfast"
    root_path = {"/": "/", "home": str(home), "data": str(data)}[root]
    async with host:
        session = await host.open(OpenOptions(cwd=home, roots=(root_path,)))
        codes = {
            (tool, path): (await session.call(f"files.{tool}", {"path": path, **more})).data["code"]
            for path in paths(home, home / "project")
            for tool, more in {"read": {}, "write": {"text": ""}, "edit": {"old": "a", "new": "b"}}.items()
        }
        folders = [
            (await session.call(f"files.{tool}", {"path": path})).data["code"]
            for tool in ("list", "find")
            for path in (str(data), str(data / "keys"), f"{home}/project/link", "project/link")
        ]
        found = await session.call("files.find", {"path": str(home), "glob": "**", "limit": 1000})
        await session.close()
        verdict = await _verdict(host, data)

    outside = {path for (_, path), code in codes.items() if code == "OUTSIDE_ROOTS"}
    assert set(codes.values()) <= {"DENIED", "OUTSIDE_ROOTS"}, codes
    assert all("proc link" in path for path in outside), outside
    assert folders == ["DENIED"] * 8
    assert {match["path"] for match in found.data["found"]} == {"notes"}
    assert (verdict.is_intact, (data / "new").exists()) == (True, False)


async def test_session_in_the_home_folder_can_use_the_other_files(host: Host, home: Path):
    async with host, host.session(cwd=home) as session:
        listed = await session.call("files.list", {"path": ".local/share"})
        await session.call("files.write", {"path": "config.toml.bak", "text": "mine"})
        refused = await session.call("files.list", {"path": ".local/share/holdfast"})

    assert listed.data["entries"] == [{"name": "holdfast", "kind": "folder"}]
    assert (home / "config.toml.bak").read_text() == "mine"
    assert refused.data["error"] == (
        "'.local/share/holdfast' belongs to Holdfast: sessions cannot read or change its data, keys or settings. "
        "The user can, outside of Holdfast."
    )


async def test_sandboxed_session_in_the_home_folder_has_no_file_tools(host: Host, home: Path):
    async with host, host.session(cwd=home, trust=Trust.SANDBOXED) as session:
        assert session.available == ()


async def test_control_file_tools_without_protected_paths_break_the_audit(host: Host, home: Path):
    async with host:
        async with host.session(cwd=home / "project") as session:
            await session.call("files.list")
        await Files(home).call("write", path=f".local/share/holdfast/{ANCHOR}", text="forged")
        verdict = await _verdict(host, home / ".local/share/holdfast")

    assert not verdict.is_intact


async def _verdict(host: Host, data: Path) -> Verdict:
    anchor = FileAnchor(data / ANCHOR).read()
    return await host.store.read(lambda tx: verify_store(tx, anchor))


def test_path_and_everything_below_it_is_protected():
    protected = PathSet.of(["/home/me/.holdfast", "/home/me/config.toml"])

    found = {path: protected.contains(path) for path in (
        "/home/me/.holdfast", "/home/me/.holdfast/keys/k", "/home/me/.holdfast-not", "/home/me",
        "/home/me/config.toml", "/home/me/config.toml.bak",
    )}  # fmt: skip

    assert [path for path, has in found.items() if has] == [
        "/home/me/.holdfast", "/home/me/.holdfast/keys/k", "/home/me/config.toml",
    ]  # fmt: skip


def test_folder_is_protected_under_another_mount_path(tmp_path: Path):
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    protected = PathSet.of([str(tmp_path / "own")])

    assert protected.contains("/mnt/elsewhere", (tmp_path / "own").stat())
    assert not protected.contains("/mnt/elsewhere", (tmp_path / "other").stat())
