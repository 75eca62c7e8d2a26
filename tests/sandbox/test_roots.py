"""A root is opened by its real path, or not at all."""

import os
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.sandbox.roots import open_root

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="openat2 is Linux's")


def test_a_real_folder_is_opened_as_itself(root: Path) -> None:
    fd = open_root(str(root))
    try:
        assert os.fstat(fd).st_ino == root.stat().st_ino
    finally:
        os.close(fd)


@pytest.mark.parametrize("where", ["last", "middle"])
def test_a_link_anywhere_on_the_way_is_refused_and_the_real_folder_named(root: Path, where: str) -> None:
    (root / "inner").mkdir()
    link = root.parent / "link"
    link.symlink_to(root)
    path = link if where == "last" else link / "inner"

    with pytest.raises(HoldfastError, match=f"symbolic link. Name the real folder: '{path.resolve()}'"):
        open_root(str(path))


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize(
    "path", ["/", "/etc", "/usr/lib", "/proc/self", "/sys", "/dev/shm", "relative", "/tmp/../etc", "/tmp//x", "/tmp/\0", ""]
)  # fmt: skip
def test_what_is_the_systems_or_not_plainly_a_path_is_refused(path: str) -> None:
    with pytest.raises(HoldfastError, match="cannot be a root"):
        open_root(path)


def test_a_file_is_no_root(root: Path) -> None:
    with pytest.raises(HoldfastError, match="not a directory"):
        open_root(str(root.parent / "secret"))
