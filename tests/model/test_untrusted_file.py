"""The reader of files that others can write."""

import os
from pathlib import Path

import pytest

from holdfast.model.untrusted_file import UnusableFileError, read_untrusted_file


def test_regular_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100)
    assert read_untrusted_file(file, limit=100) == b"x" * 100
    with pytest.raises(UnusableFileError, match="more than 99 bytes"):
        read_untrusted_file(file, limit=99)


def test_link_is_followed_only_if_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    assert read_untrusted_file(tmp_path / "link", limit=1) == b"x"
    with pytest.raises(UnusableFileError):
        read_untrusted_file(tmp_path / "link", limit=1, follow_link=False)


def test_path_can_be_relative_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert read_untrusted_file("file", limit=1, dir_fd=folder) == b"x"
    finally:
        os.close(folder)


@pytest.mark.parametrize(
    "target", ["/dev/zero", "/dev/tty", "/proc/self/environ", "/sys/kernel/uevent_seqnum", "/"]
)
def test_other_than_regular_files_are_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(UnusableFileError):
        read_untrusted_file(tmp_path / "link", limit=10)


def test_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UnusableFileError, match="not a regular file"):
        read_untrusted_file(tmp_path / "fifo", limit=10)
