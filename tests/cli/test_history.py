import os
import stat
from pathlib import Path

import pytest

from holdfast.cli.chat.history import load_history, save_history
from holdfast.masking.mask import Mask
from tests.journeys.terminal import terminal

NO_SECRETS = Mask()


@pytest.mark.promise("AUD-03")
def test_secrets_are_masked_and_only_the_owner_can_read_the_file(tmp_path: Path):
    file = tmp_path / "chat_history"
    file.write_text('/call old.one {"password": "from an earlier version"}\n')
    file.chmod(0o644)

    save_history(file, ["say s3cret!", '/call db.open {"token": "t0ken"}'], Mask.of(["s3cret!"]))

    assert load_history(file) == [
        '/call old.one {"password": "[masked]"}',
        "say [masked]",
        '/call db.open {"token": "[masked]"}',
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["chat_history"]


def test_the_last_thousand_prompts_are_kept_except_very_long_ones(tmp_path: Path):
    file = tmp_path / "chat_history"

    save_history(file, [*map(str, range(1500)), "x" * 5000], NO_SECRETS)
    save_history(file, ["last"], NO_SECRETS)

    assert load_history(file) == [*map(str, range(501, 1500)), "last"]


def test_two_chats_at_once_keep_the_prompts_of_both(tmp_path: Path):
    file = tmp_path / "chat_history"

    save_history(file, ["of one"], NO_SECRETS)
    save_history(file, ["of the other"], NO_SECRETS)

    assert load_history(file) == ["of one", "of the other"]


def test_prompts_of_several_lines_are_kept_whole(tmp_path: Path):
    file = tmp_path / "chat_history"
    prompts = ["one", '/call db.open {\n  "path": "a",\n\n\t"b": 1}', "two"]

    save_history(file, prompts, NO_SECRETS)
    save_history(file, ['/call db.open {\n  "token": "t0ken"\n}'], NO_SECRETS)

    assert load_history(file) == [*prompts, '/call db.open {"token": "[masked]"}']


@pytest.mark.parametrize("what", ["link", "folder", "missing folder"])
def test_nothing_is_kept_if_the_file_is_a_link_or_a_folder(tmp_path: Path, what: str):
    file = tmp_path / "chat_history"
    match what:
        case "link":
            file.symlink_to(os.devnull)
        case "folder":
            file.mkdir()
        case _:
            file = tmp_path / "none" / "chat_history"

    save_history(file, ["hello"], NO_SECRETS)

    assert (load_history(file), file.is_symlink(), file.is_dir()) == ([], what == "link", what == "folder")


@pytest.mark.promise("AUD-03")
def test_no_secret_typed_at_a_terminal_is_in_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
