"""Roots are opened without following links, and decide which user a server runs as."""

import os
import pwd
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.sandbox.opened_path import PathOpener
from holdfast.sandbox.roots import NOBODY, open_root, owner_ids

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="O_PATH needs Linux")


def try_root(path: str) -> None:
    with ExitStack() as stack:
        open_root(path, PathOpener(stack))


def test_real_folder_is_opened(root: Path) -> None:
    with ExitStack() as stack:
        opened = open_root(str(root), PathOpener(stack))
        assert os.fstat(opened.fd).st_ino == root.stat().st_ino


@pytest.mark.parametrize("where", ["last", "middle"])
def test_path_with_a_link_is_refused_and_the_real_path_given(root: Path, where: str) -> None:
    (root / "inner").mkdir()
    link = root.parent / "link"
    link.symlink_to(root)
    path = link if where == "last" else link / "inner"

    with pytest.raises(HoldfastError, match=f"symbolic link. Use the real path: '{path.resolve()}'"):
        try_root(str(path))


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize(
    "path", ["/", "/etc", "/usr/lib", "/proc/self", "/sys", "/dev/shm", "relative", "/tmp/../etc", "/tmp//x", "/tmp/\0", ""]
)  # fmt: skip
def test_system_folder_or_unusual_path_is_refused(path: str) -> None:
    with pytest.raises(HoldfastError, match="cannot be a root"):
        try_root(path)


def test_file_cannot_be_a_root(root: Path) -> None:
    with pytest.raises(HoldfastError, match="not a directory"):
        try_root(str(root.parent / "secret"))


def folder_owned_by(uid: int, gid: int) -> os.stat_result:
    return os.stat_result((0o40770, 1, 1, 2, uid, gid, 4096, 0, 0, 0))


@pytest.mark.promise("BOX-01")
@pytest.mark.parametrize("folder_group", [0, 4321])
def test_owner_keeps_the_primary_group_of_the_account(folder_group: int) -> None:
    owner = pwd.getpwnam("daemon")

    assert owner_ids(folder_owned_by(owner.pw_uid, folder_group)) == (owner.pw_uid, owner.pw_gid)


@pytest.mark.promise("BOX-01")
def test_owner_without_an_account_gets_the_group_of_nobody() -> None:
    assert owner_ids(folder_owned_by(4321, 0)) == (4321, NOBODY)
