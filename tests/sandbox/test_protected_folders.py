"""Holdfast's own folders are recognised by identity, and by the mounts that show them."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.mounts import MountPoint, parse_mountinfo, visible_locations, with_bind_mounts
from holdfast.sandbox.opened_path import PathOpener
from holdfast.sandbox.protected_folders import ProtectedFolders

ROOT = MountPoint(device="8:1", root="/", path="/")


def is_refused(shown: Path, protected: Path, *mounts: MountPoint) -> bool:
    with ExitStack() as stack:
        folders = ProtectedFolders([str(protected)], stack, mounts or (ROOT,))
        opened = PathOpener(stack).open(str(shown), links="refuse")
        try:
            folders.check(opened)
        except HoldfastError:
            return True
    return False


@pytest.mark.promise("BOX-06")
def test_folder_above_and_below_is_refused_and_one_beside_is_not(root: Path) -> None:
    for name in ("data/keys", "data2", "a"):
        (root / name).mkdir(parents=True)

    shown = {
        name: is_refused(root / name, root / "data") for name in (".", "data", "data/keys", "data2", "a")
    }

    assert shown == {".": True, "data": True, "data/keys": True, "data2": False, "a": False}


@pytest.mark.promise("BOX-06")
def test_folder_that_will_contain_a_missing_one_is_refused(root: Path) -> None:
    (root / "a").mkdir()

    assert (is_refused(root, root / "data" / "new"), is_refused(root / "a", root / "data" / "new")) == (
        True,
        False,
    )


@pytest.mark.promise("BOX-06")
@pytest.mark.parametrize(
    ("source", "expected"), [("{data}", True), ("{data}/keys", True), ("{parent}", True), ("/srv", False)]
)
def test_bind_mount_below_a_folder_is_refused(root: Path, source: str, expected: bool) -> None:
    data = root.parent / "data"
    data.mkdir()
    path = source.format(data=data, parent=data.parent)
    mount = MountPoint(device="8:1", root=path, path=f"{root}/innocent")

    assert is_refused(root, data, ROOT, mount) is expected


def test_mountinfo_is_parsed_with_escaped_blanks() -> None:
    text = "36 35 98:0 /mnt1 /mnt\\040two rw,noatime master:1 - ext3 /dev/root rw\nshort line\n"

    assert parse_mountinfo(text) == (MountPoint(device="98:0", root="/mnt1", path="/mnt two"),)


@pytest.mark.promise("BOX-06")
def test_names_with_characters_that_only_look_like_line_ends_are_one_line() -> None:
    path = "/a\u2028b\x0cc\x85d\x1ce\rf"

    (mount,) = parse_mountinfo(f"36 35 8:1 / {path} rw - ext4 x rw\n")

    assert mount == MountPoint(device="8:1", root="/", path=path)


def test_path_has_an_alias_for_each_mount_that_shows_it_or_a_part_of_it() -> None:
    mounts = (
        ROOT,
        MountPoint(device="8:1", root="/home", path="/mnt"),
        MountPoint(device="8:1", root="/home/ann/work/src", path="/srv/code"),
        MountPoint(device="8:1", root="/home/ben", path="/ben"),
        MountPoint(device="8:2", root="/x", path="/home/ann/work/data"),
        MountPoint(device="8:2", root="/", path="/disk"),
    )

    assert with_bind_mounts(["/home/ann/work"], mounts) == (
        *("/home/ann/work", "/mnt/ann/work", "/srv/code", "/home/ann/work/data", "/disk/x"),
    )


def test_locations_below_the_root_folder_are_visible_in_it() -> None:
    disk = MountPoint(device="8:2", root="/data", path="/home")

    assert [*visible_locations("/", (ROOT, disk))] == [("8:1", "/"), ("8:2", "/data")]
