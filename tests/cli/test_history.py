import os
import stat
from pathlib import Path

import pytest

from holdfast.cli.chat.history import recall, remember
from holdfast.model.mask import Mask
from tests.journeys.terminal import terminal

NOTHING = Mask()


@pytest.mark.promise("AUD-03")
def test_lines_are_kept_without_secrets_and_for_their_owner_alone(tmp_path: Path):
    file = tmp_path / "chat_history"
    file.write_text('/call old.one {"password": "from an earlier version"}\n')
    file.chmod(0o644)

    remember(file, ["say s3cret!", '/call db.open {"token": "t0ken"}'], Mask.of(["s3cret!"]))

    assert recall(file) == [
        '/call old.one {"password": "[masked]"}',
        "say [masked]",
        '/call db.open {"token": "[masked]"}',
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["chat_history"]


def test_the_last_thousand_lines_are_kept_and_none_that_is_too_long(tmp_path: Path):
    file = tmp_path / "chat_history"

    remember(file, [*map(str, range(1500)), "x" * 5000], NOTHING)
    remember(file, ["last"], NOTHING)

    assert recall(file) == [*map(str, range(501, 1500)), "last"]


def test_two_chats_at_once_keep_the_lines_of_both(tmp_path: Path):
    file = tmp_path / "chat_history"

    remember(file, ["of one"], NOTHING)
    remember(file, ["of the other"], NOTHING)

    assert recall(file) == ["of one", "of the other"]


@pytest.mark.parametrize("what", ["link", "folder", "missing folder"])
def test_where_something_else_stands_nothing_is_kept(tmp_path: Path, what: str):
    file = tmp_path / "chat_history"
    match what:
        case "link":
            file.symlink_to(os.devnull)
        case "folder":
            file.mkdir()
        case _:
            file = tmp_path / "none" / "chat_history"

    remember(file, ["hello"], NOTHING)

    assert (recall(file), file.is_symlink(), file.is_dir()) == ([], what == "link", what == "folder")


@pytest.mark.promise("AUD-03")
def test_no_secret_that_was_typed_at_a_terminal_is_in_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home, cwd = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    cwd.mkdir()
    monkeypatch.setenv("SOME_API_KEY", "canary-of-the-environment")

    with terminal(home, cwd) as screen:
        screen.until("› ")
        screen.line('/call files.list {"password": "canary-of-a-call"}')
        screen.until("› ")
        screen.line("what is canary-of-the-environment")
        screen.until("› ")
        screen.type("\x04")
        code = screen.end()

    kept = {path: path.read_bytes() for path in (home / "data").rglob("*") if path.is_file()}
    assert code == 0
    assert [path.name for path, data in kept.items() if b"canary-of" in data] == []
    assert kept[home / "data" / "chat_history"].decode() == (
        '/call files.list {"password": "[masked]"}\nwhat is [masked]\n'
    )
