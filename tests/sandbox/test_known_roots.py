"""Roots stay known when they are moved, and are forgotten when they are deleted."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.sandbox.bwrap import known_roots
from holdfast.sandbox.bwrap.known_roots import KnownRoots
from holdfast.sandbox.opened_path import Identity, PathOpener
from holdfast.sandbox.roots import open_root

IS_ON_MAIN_MOUNT = known_roots.is_on_main_mount


@pytest.fixture(autouse=True)
def no_other_processes_and_one_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> frozenset[Identity]:
        return frozenset()

    def is_on_main_mount(_: int) -> bool:
        return True

    monkeypatch.setattr(known_roots, "running_roots", none)
    monkeypatch.setattr(known_roots, "is_on_main_mount", is_on_main_mount)


def test_moved_root_stays_known_and_a_deleted_one_is_forgotten(tmp_path: Path):
    known, root = KnownRoots(), tmp_path / "root"
    root.mkdir()
    identity = _add(known, root)

    root.rename(tmp_path / "moved")
    after_move = known.folders().identities
    (tmp_path / "moved").rmdir()

    assert (after_move, known.folders().identities) == ({identity}, frozenset())


def test_new_folder_never_counts_as_a_deleted_root(tmp_path: Path):
    known, root = KnownRoots(), tmp_path / "root"
    for _ in range(50):  # most file systems give a new folder the inode of the last deleted one
        root.mkdir()
        _add(known, root)
        root.rmdir()
        other = tmp_path / "other"
        other.mkdir()
        status = other.stat()
        assert (status.st_dev, status.st_ino) not in known.folders().identities
        other.rmdir()


def test_only_some_roots_are_kept_open_and_all_are_closed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(known_roots, "_MAX_OPEN", 3)
    before = len(os.listdir("/proc/self/fd"))
    known = KnownRoots()
    added: set[Identity] = set()
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        added.add(_add(known, tmp_path / str(number)))
    opened = len(os.listdir("/proc/self/fd")) - before
    found = known.folders().identities
    del known

    assert (found, opened, len(os.listdir("/proc/self/fd"))) == (added, 3, before)


def _add(known: KnownRoots, path: Path) -> Identity:
    with ExitStack() as resources:
        root = open_root(str(path), PathOpener(resources))
        known.add(root)
        return root.identity


def test_folder_on_another_mount_is_not_kept_open():
    other, main = os.open("/proc", os.O_PATH), os.open("/", os.O_PATH)
    try:
        assert (IS_ON_MAIN_MOUNT(other), IS_ON_MAIN_MOUNT(main)) == (False, True)
    finally:
        os.close(other)
        os.close(main)
