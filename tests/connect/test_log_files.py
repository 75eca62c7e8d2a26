import os
from pathlib import Path

import pytest

from holdfast.connect import log_files
from holdfast.connect.log_files import (
    MAX_FILE_BYTES,
    LogReader,
    append,
    find_logs,
    log_path,
    read_log,
    remove_oldest,
)


@pytest.mark.promise("SES-11")
def test_a_log_keeps_its_last_lines_and_never_gets_longer_than_two_files(tmp_path: Path):
    path = log_path(tmp_path, "sess_1", "notes")

    for number in range(1000):
        append(path, b"%d %s\n" % (number, b"x" * 1000))

    (log,) = find_logs(tmp_path)
    assert MAX_FILE_BYTES < log.size <= 2 * MAX_FILE_BYTES
    assert read_log(path).splitlines()[-1].startswith("999 ")


def test_a_reader_gets_every_later_line_also_when_a_new_file_begins(tmp_path: Path):
    path = log_path(tmp_path, "sess_1", "notes")
    append(path, b"before\n")
    reader = LogReader(path, at_end=True)

    read: list[str] = []
    for number in range(600):
        append(path, b"%d %s\n" % (number, b"x" * 1000))
        if (
            number % 100 == 50
        ):  # not after each line: some are written to a file that then becomes the older part
            read += reader.read_lines()
    read += reader.read_lines()

    assert [line.split()[0] for line in read] == [str(number) for number in range(600)]


def test_a_reader_survives_the_removal_of_the_log(tmp_path: Path):
    path = log_path(tmp_path, "sess_1", "notes")
    append(path, b"before\n")
    reader = LogReader(path)
    reader.read_lines()
    path.unlink()

    removed = reader.read_lines()
    append(path, b"half a li")
    begun = reader.read_lines()
    append(path, b"ne\n")

    assert (removed, begun, reader.read_lines()) == ([], [], ["half a line"])


@pytest.mark.parametrize("name", ["../../escape", "a/b", "ünï\n", "x" * 128, "." * 3, "é" * 128])
def test_any_name_of_a_server_is_one_file_in_the_folder_of_the_session(tmp_path: Path, name: str):
    path = log_path(tmp_path, "sess_1", name)

    append(path, b"line\n")

    assert path.parent == tmp_path / "sess_1"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_logs_of_the_sessions_logged_longest_ago_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(log_files, "_MAX_SESSIONS", 2)
    for age, session in enumerate(["new", "newer", "old"]):
        append(log_path(tmp_path, session, "notes"), b"line\n")
        os.utime(log_path(tmp_path, session, "notes"), (1000 - age, 1000 - (age if session == "old" else 0)))

    remove_oldest(tmp_path)

    assert sorted(os.listdir(tmp_path)) == ["new", "newer"]
