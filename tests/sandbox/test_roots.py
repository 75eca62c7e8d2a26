"""Roots are opened without following links."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.sandbox.opened_path import PathOpener
from holdfast.sandbox.roots import open_root

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
