"""A store of version 1 with an event that this version does not know, through every command and from an editor."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.commands import run_holdfast
from tests.journeys.editor import editor, environment
from tests.store.test_upgrade import INTERRUPTED, SHOP, copy_version_1

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-08")]

BODY = '{ "steps" : [1, 2.50] }'
ADD_UNKNOWN = (
    "INSERT INTO events (session_n, seq, at, kind, body) VALUES (1, 22, 1793534400000000, 'danced', ?)"
)


@pytest.fixture
def database(home: Path) -> Path:
    path = copy_version_1(home / "data")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(ADD_UNKNOWN, (BODY.encode(),))
    return path


def test_every_command_works_on_an_upgraded_store(home: Path, database: Path) -> None:
    checked = _run(home, "store", "check"), _run(home, "audit", "verify")
    listed = [json.loads(line) for line in _run(home, "sessions", "list", "--json").splitlines()]
    shown = json.loads(_run(home, "sessions", "show", SHOP, "--json"))
    *_, exported = _run(home, "sessions", "export", SHOP).splitlines()

    assert "2 sessions, 26 events" in checked[0]
    assert "schema 1: no problems found" in checked[0]
    assert "5 records, all unchanged" in checked[1]
    assert [(one["title"], one["interrupted"]) for one in listed] == [
        ("Tulips", True),
        ("Price of roses", False),
    ]
    assert (shown["events"], shown["kinds"]["danced"], shown["kinds"]["prompted"]) == (22, 1, 2)
    one_line = BODY.replace(" ", "")  # each exported event is one line, with the numbers as they were stored
    assert exported == f'{{"seq":22,"at":"2026-11-01T12:00:00+00:00","kind":"danced","event":{one_line}}}'
    replayed = _run(home, "sessions", "replay", SHOP)
    assert "Roses cost 3.20 each" in replayed
    assert "unknown event 'danced', stored by a newer version of Holdfast" in replayed
    assert "3.20 each" in _run(home, "sessions", "search", "roses")
    assert "schema 3: no problems found" in _run(home, "store", "check")
    assert "5 records, all unchanged" in _run(home, "audit", "verify")
    assert len([*database.parent.glob("holdfast.db.v1-*.bak")]) == 1


@pytest.mark.slow
async def test_editor_and_chat_continue_its_sessions(home: Path, database: Path, cwd: Path) -> None:
    for session in (SHOP, INTERRUPTED):
        _run(home, "sessions", "move", session, str(cwd))

    async with editor(home) as zed:
        await zed.load(SHOP, cwd)
        reply = zed.reply_text(SHOP)
        assert await zed.prompt(SHOP, "/help") == "end_turn"
    resumed = _run(home, "chat", "--resume", INTERRUPTED, text="/help\n")
    kinds = [json.loads(line)["kind"] for line in _run(home, "sessions", "export", SHOP).splitlines()[1:]]

    assert reply == "Roses cost 3.20 each: 薔薇."
    assert "And tulips?" in resumed
    assert (kinds[21], kinds[-1]) == ("danced", "session_closed")


def test_damaged_body_of_an_unknown_event_fails_only_the_check(home: Path, database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("UPDATE events SET body = x'ff' WHERE kind = 'danced'")

    *_, exported = _run(home, "sessions", "export", SHOP).splitlines()
    replayed = _run(home, "sessions", "replay", SHOP)
    checked = _run(home, "store", "check", code=1)

    assert json.loads(exported)["event"] == {"base64": "/w=="}
    assert "unknown event 'danced'" in replayed
    assert f"Event 22 of {SHOP}: An event of the unknown kind 'danced' is damaged." in checked


def _run(home: Path, *arguments: str, text: str = "", code: int = 0) -> str:
    done = run_holdfast(*arguments, env=environment(home), input=text)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    return done.stdout
