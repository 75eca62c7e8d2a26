"""The reader of files that others can write."""

import os
from pathlib import Path

import pytest

from holdfast.model import untrusted_file
from holdfast.model.untrusted_file import (
    SharedFileError,
    UnusableFileError,
    read_own_file,
    read_untrusted_file,
)


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


@pytest.fixture
def other_users_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the user 1001 that this process, which stands for one of the user 1000, can read."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    file = tmp_path / "config.toml"
    file.write_bytes(b"x")
    file.chmod(0o644)
    os.chown(file, 1001, 1001)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return file


def test_configuration_of_another_user_is_not_read_even_if_only_that_user_can_write_to_it(
    other_users_file: Path,
) -> None:
    with pytest.raises(SharedFileError) as caught:
        read_own_file(other_users_file, limit=1)

    reason = "it belongs to another user. Check its content, then replace it with a copy of your own"
    assert caught.value.strerror == reason


def test_control_without_the_check_of_the_owner_the_configuration_of_another_user_is_read(
    other_users_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def accept(_: os.stat_result) -> bool:
        return False

    monkeypatch.setattr(untrusted_file, "belongs_to_other_user", accept)

    assert read_own_file(other_users_file, limit=1) == b"x"


def test_configuration_of_root_is_read_and_root_may_read_that_of_any_user(
    other_users_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(other_users_file, 0, 0)
    assert read_own_file(other_users_file, limit=1) == b"x"

    os.chown(other_users_file, 1001, 1001)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert read_own_file(other_users_file, limit=1) == b"x"
