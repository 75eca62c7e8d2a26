import asyncio
import json
import os
import platform
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import settings
from holdfast.host.host import Host
from holdfast.model.event import SessionOpened, ToolCalled, ToolStarted
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.store.sqlite import SqliteStore
from tests.commands import run_holdfast

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two stored sessions: one about a login, with a call, and one that only asked for help."""
    home = tmp_path / "home"
    home.mkdir()

    async def fill() -> None:
        async with Host(settings=settings.load(home / "config.toml", environment(home))) as host:
            for folder, prompts in {
                "one": ("the login bug", "/call files.list {}"),
                "other": ("/help",),
            }.items():
                (tmp_path / folder).mkdir()
                async with host.session(cwd=tmp_path / folder) as session:
                    for prompt in prompts:
                        await session.prompt([{"type": "text", "text": prompt}])

    asyncio.run(fill())
    return home


def environment(home: Path) -> dict[str, str]:
    (home / "config.toml").touch()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    return {
        **kept,
        "HOLDFAST_CONFIG": str(home / "config.toml"),
        "HOLDFAST_DATA_DIR": str(home / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(home / "mcp.json"),
    }


def run(
    home: Path,
    *arguments: str,
    cwd: Path | None = None,
    text: str = "",
    data_dir: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    environ = environment(home)
    if data_dir is not None:
        environ["HOLDFAST_DATA_DIR"] = str(data_dir)
    return run_holdfast(*arguments, cwd=cwd or home, env=environ, input=text)


def listed(home: Path, *arguments: str) -> list[dict[str, Any]]:
    done = run(home, "sessions", "list", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_list_shows_the_latest_first_and_can_be_narrowed(home: Path, tmp_path: Path):
    table = run(home, "sessions", "list").stdout.splitlines()

    assert table[0].split() == ["session", "last", "used", "state", "title", "folder", "from"]
    assert [line.split()[3:5] for line in table[1:]] == [["closed", "(no"], ["closed", "the"]]
    assert [found["title"] for found in listed(home, "--cwd", str(tmp_path / "one"))] == ["the login bug"]
    assert listed(home, "--source", "acp") == []
    assert run(home, "sessions", "list", "--here", cwd=home).stderr == (
        "No sessions found. To start one: holdfast chat\n"
    )


def test_sessions_and_records_of_several_users_are_shown_with_the_user(tmp_path: Path):
    async def fill() -> None:
        async with Host(settings=settings.load(tmp_path / "config.toml", environment(tmp_path))) as host:
            for user in ("ann", "bob"):
                async with host.session(cwd=tmp_path, user_id=user) as session:
                    await session.call("files.list", {})

    asyncio.run(fill())
    table = run(tmp_path, "sessions", "list").stdout.splitlines()
    records = run(tmp_path, "audit", "list", "--kind", "call").stdout.splitlines()
    of_ann = run(tmp_path, "audit", "list", "--user", "ann", "--json").stdout

    assert (table[0].split()[-1], {line.split()[-1] for line in table[1:]}) == ("user", {"ann", "bob"})
    assert [line.split()[-1] for line in records] == ["user", "ann", "bob"]
    assert [found["user"] for found in listed(tmp_path, "--user", "bob")] == ["bob"]
    assert ('"user_id":"ann"' in of_ann.replace(" ", ""), "bob" in of_ann) == (True, False)


def test_show_prints_the_details_of_a_session(home: Path, tmp_path: Path):
    (_, stored) = listed(home)

    message = run(home, "sessions", "show", stored["id"][5:12]).stdout
    for_programs = json.loads(run(home, "sessions", "show", "--json", stored["id"]).stdout)

    assert f"id         {stored['id']}\n" in message
    assert "title      the login bug\n" in message
    assert f"folder     {tmp_path / 'one'}\n" in message
    assert "turns      2\n" in message
    assert (for_programs["title"], for_programs["kinds"]["tool_called"]) == ("the login bug", 1)
    assert "files" in for_programs["servers"]


def test_show_prints_each_line_of_why_a_server_was_refused(tmp_path: Path):
    servers = tmp_path / "servers.json"
    words = ["-c", "echo first >&2; echo second >&2; exit 1"]
    servers.write_text(json.dumps({"mcpServers": {"broken": {"command": "sh", "args": words}}}))
    environ = {**environment(tmp_path), "HOLDFAST_SERVERS_USER_FILE": str(servers)}
    run_holdfast("call", "--keep", "broken.x", env=environ)
    (stored,) = map(json.loads, run_holdfast("sessions", "list", "--json", env=environ).stdout.splitlines())
    shown = run_holdfast("sessions", "show", stored["id"], env=environ).stdout.splitlines()

    start = next(number for number, line in enumerate(shown) if line.startswith("refused broken"))
    assert [line.strip() for line in shown[start + 1 : start + 4]] == [
        "It wrote to stderr:",
        "| first",
        "| second",
    ]


def test_show_prints_how_long_each_stage_of_the_opening_and_each_server_took(home: Path):
    (_, stored) = listed(home)

    message = run(home, "sessions", "show", stored["id"]).stdout
    for_programs = json.loads(run(home, "sessions", "show", "--json", stored["id"]).stdout)

    assert re.search(r"^opening    plan [\d,]+ ms, admit [\d,]+ ms, store [\d,]+ ms$", message, re.MULTILINE)
    assert re.search(r"^starts     files [\d,]+ ms", message, re.MULTILINE)
    assert [*for_programs["stage_seconds"]] == ["plan", "admit", "store"]
    assert "files" in for_programs["server_seconds"]
    assert all(seconds >= 0 for seconds in for_programs["server_seconds"].values())


def test_replay_prints_the_conversation_and_calls_no_tools(home: Path, tmp_path: Path):
    (_, stored) = listed(home)
    (tmp_path / "one").rmdir()

    message = run(home, "sessions", "replay", stored["id"])

    assert message.returncode == 0
    assert message.stdout.startswith("› the login bug\n")
    assert "› /call files.list {}\n● files.list {}\n  ✓\n" in message.stdout
    assert [found["events"] for found in listed(home)][1] == stored["events"]


def test_search_finds_messages(home: Path):
    hits = run(home, "sessions", "search", "LOGIN", "bug").stdout
    nothing = run(home, "sessions", "search", "logout")
    empty = run(home, "sessions", "search", "").stderr
    for_programs = run(home, "sessions", "search", "--json", "login").stdout.splitlines()

    assert "the login bug" in hits
    assert empty.endswith("Hint: Correct it, and try again.\n")
    assert (nothing.stdout, nothing.stderr) == (
        "",
        "No message or title contains all of: logout. The search matches whole words.\n",
    )
    assert {json.loads(line)["session"]["title"] for line in for_programs} == {"the login bug"}


def test_search_shows_each_session_once_with_its_latest_matches(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()

    async def fill() -> None:
        loaded = settings.load(home / "config.toml", environment(home))
        async with Host(settings=loaded) as host, host.session(cwd=tmp_path) as session:
            for number in range(5):
                await session.prompt([{"type": "text", "text": f"apple {number}"}])

    asyncio.run(fill())
    rows = [line for line in run(home, "sessions", "search", "apple").stdout.splitlines() if "apple" in line]
    (found,) = map(json.loads, run(home, "sessions", "search", "apple", "--json").stdout.splitlines())

    assert [line.split()[0] for line in rows if line.startswith("sess_")] == [found["session"]["id"][:13]]
    assert sum(f"apple {number}" in line for line in rows for number in range(1, 5)) == 3
    first = [
        line for line in run(home, "sessions", "search", "apple", "0").stdout.splitlines() if "apple" in line
    ]
    assert len(first) == 1  # the title and the prompt are the same text
    assert {hit["snippet"] for hit in found["hits"]} >= {f"apple {number}" for number in range(5)}


@pytest.mark.slow
def test_sessions_are_found_by_source_tag_and_workspace(home: Path):
    (_, stored) = listed(home)

    added = run(home, "sessions", "tag", stored["id"], "urgent", "release", "release")
    removed = run(home, "sessions", "tag", stored["id"], "--remove", "urgent")
    shown = run(home, "sessions", "tag", stored["id"])
    unknown = run(home, "sessions", "tag", stored["id"], "--remove", "nope")
    empty = run(home, "sessions", "tag", stored["id"], " ")
    filters = [
        ("--tag", "release"),
        ("--tag", "urgent"),
        ("--tag", "release", "--source", "python"),
        ("--source", "acp"),
        ("--workspace", "nope"),
    ]
    found = [
        [len(run(home, "sessions", *command, *each, "--json").stdout.splitlines()) for each in filters]
        for command in (("list",), ("search", "login"), ("search",))
    ]
    table = run(home, "sessions", "search", "--tag", "release").stdout
    nothing = run(home, "sessions", "search")

    short = stored["id"][:13]
    assert [done.stdout for done in (added, removed, shown)] == [
        f"{short}: release, urgent\n",
        f"{short}: release\n",
        f"{short}: release\n",
    ]
    assert (unknown.returncode, f"{short} has no tag 'nope'." in unknown.stderr) == (2, True)
    assert empty.returncode == 2
    assert found == [[1, 0, 1, 0, 0]] * 3
    assert (short in table, "the login bug" in table) == (True, True)
    assert (nothing.returncode, "Give a word to search for" in nothing.stderr) == (2, True)


def make_older(home: Path, session_id: str, days: int) -> None:
    with closing(sqlite3.connect(home / "data" / "holdfast.db")) as db, db:
        db.execute(
            "UPDATE sessions SET updated = updated - ? WHERE session_id = ?",
            (days * 24 * 3600 * 1_000_000, session_id),
        )


@pytest.mark.slow
def test_prune_deletes_sessions_that_were_not_used_for_long(home: Path):
    (recent, old) = listed(home)
    make_older(home, old["id"], 91)

    nothing = run(home, "sessions", "prune", "--older-than", "92", "--yes")
    dry = run(home, "sessions", "prune", "--older-than", "90", "--dry-run")
    unconfirmed = run(home, "sessions", "prune", "--older-than", "90")
    before = listed(home)
    done = run(home, "sessions", "prune", "--older-than", "90", "--yes")
    without = run(home, "sessions", "prune")
    every = run(home, "sessions", "prune", "--older-than", "0", "--dry-run")

    assert recent["id"][:13] in every.stdout
    assert nothing.stderr == "Nothing to delete: no closed session was last used more than 92 days ago.\n"
    assert (old["id"][:13] in dry.stdout, recent["id"][:13] in dry.stdout) == (True, False)
    assert (unconfirmed.returncode, len(before)) == (2, 2)
    assert (done.stdout.splitlines()[-1], [each["id"] for each in listed(home)]) == (
        "Deleted 1 session.",
        [recent["id"]],
    )
    assert (without.returncode, "sessions.keep_days" in without.stderr) == (2, True)
    assert len(run(home, "audit", "list", "--all", "--json").stdout.splitlines()) > 0


def test_sessions_are_deleted_after_keep_days_when_holdfast_starts(home: Path, tmp_path: Path):
    (recent, old) = listed(home)
    make_older(home, old["id"], 31)

    async def start() -> None:
        environ = {**environment(home), "HOLDFAST_SESSIONS_KEEP_DAYS": "30"}
        async with Host(settings=settings.load(home / "config.toml", environ)) as host, asyncio.timeout(20):
            while await host.store.session(SessionId(old["id"])) is not None:
                await asyncio.sleep(0.01)

    asyncio.run(start())

    assert [each["id"] for each in listed(home)] == [recent["id"]]


_UNREADABLE_FIRST_EVENT = (
    "UPDATE sessions SET title = '' WHERE n = ?",  # so that it is listed with its first call
    "UPDATE events SET body = x'7b7d' WHERE session_n = ? AND seq = 1",
)
_UNREADABLE_OPEN_CALL = (
    "UPDATE sessions SET open_turn = 't' WHERE n = ?",
    "DELETE FROM events WHERE session_n = ? AND kind = 'tool_ended'",
    "UPDATE events SET body = x'7b7d' WHERE session_n = ? AND kind = 'tool_called'",
)


@pytest.mark.parametrize(("damage", "kept"), [(_UNREADABLE_FIRST_EVENT, 0), (_UNREADABLE_OPEN_CALL, 1)])
def test_damaged_session_does_not_prevent_that_others_are_listed_found_and_pruned(
    home: Path, damage: tuple[str, ...], kept: int
):
    (other, damaged) = listed(home)
    with closing(sqlite3.connect(home / "data" / "holdfast.db")) as db:
        (number,) = db.execute("SELECT n FROM sessions WHERE session_id = ?", (damaged["id"],)).fetchone()
        for statement in damage:
            db.execute(statement, (number,))
        db.commit()

    in_json = [each["damaged"] for each in listed(home)]
    states = re.findall(r"\b(closed|damaged)\b", run(home, "sessions", "list").stdout)
    found = run(home, "sessions", "search", "help").stdout
    pruned = run(home, "sessions", "prune", "--older-than", "0", "--yes")

    assert (in_json, states) == ([False, True], ["closed", "damaged"])
    assert other["id"][:13] in found
    assert (pruned.returncode, len(listed(home))) == (0, kept)
    assert pruned.stderr.count("damaged session not deleted") == kept


def test_open_session_is_not_pruned(tmp_path: Path):
    async def run_host() -> tuple[int, int]:
        loaded = settings.load(tmp_path / "config.toml", environment(tmp_path))
        async with Host(settings=loaded) as host:
            async with host.session(cwd=tmp_path) as session:
                await session.prompt([{"type": "text", "text": "hello"}])
                make_older(tmp_path, session.context.session_id, 400)
                while_open = await host.prune(timedelta(days=300))
            make_older(tmp_path, session.context.session_id, 400)
            return while_open, await host.prune(timedelta(days=300))

    assert asyncio.run(run_host()) == (0, 1)


@pytest.mark.slow
def test_a_moved_session_is_resumed_in_its_new_folder(home: Path, tmp_path: Path):
    (_, stored) = listed(home)
    (tmp_path / "one").rename(tmp_path / "renamed")

    before = run(home, "chat", "--resume", stored["id"])
    moved = run(home, "sessions", "move", stored["id"], str(tmp_path / "renamed"))
    after = run(home, "chat", "--resume", stored["id"])

    assert before.returncode == 1
    assert (
        f"The session's folder '{tmp_path / 'one'}' no longer exists.\nHint: If it was moved or renamed: "
        f"holdfast sessions move {stored['id'][:13]} FOLDER\n" in before.stderr
    )
    assert moved.stdout == f"{stored['id'][:13]} is now in {tmp_path / 'renamed'}.\n"
    assert (after.returncode, "Resuming 'the login bug'." in after.stderr) == (0, True)


def test_delete_without_a_terminal_requires_yes(home: Path):
    stored = listed(home)[0]

    done = run(home, "sessions", "delete", stored["id"])

    assert done.returncode == 2
    assert (
        "Cannot ask for confirmation without a terminal. Add --yes to delete without confirmation."
        in done.stderr
    )
    assert stored["id"] in [kept["id"] for kept in listed(home)]


@pytest.mark.slow
def test_delete_asks_first_and_keeps_the_audit(home: Path):
    (other, stored) = listed(home)

    asked = run(home, "sessions", "delete", stored["id"], text="n\n")
    done = run(home, "sessions", "delete", "--yes", stored["id"])

    assert (asked.returncode, "Delete this session permanently? [y/N]" in asked.stdout) == (1, True)
    assert done.stdout == f"{stored['id'][:13]}  the login bug\nDeleted 1 session.\n"
    assert [found["id"] for found in listed(home)] == [other["id"]]
    assert run(home, "sessions", "search", "login").stdout == ""
    assert "files.list" in run(home, "audit", "list").stdout
    assert run(home, "audit", "verify").returncode == 0


def test_export_writes_one_line_per_event(home: Path, tmp_path: Path):
    (_, stored) = listed(home)
    file = tmp_path / "copy.jsonl"

    shown = run(home, "sessions", "export", stored["id"]).stdout.splitlines()
    written = run(home, "sessions", "export", stored["id"], "--output", str(file))
    again = run(home, "sessions", "export", stored["id"], "--output", str(file))

    first, *events = map(json.loads, shown)
    assert first["session"] == stored
    assert [event["seq"] for event in events] == list(range(1, stored["events"] + 1))
    assert events[0]["kind"] == "session_opened"
    assert (written.returncode, file.read_text().splitlines(), file.stat().st_mode & 0o777) == (
        0,
        shown,
        0o600,
    )
    assert (again.returncode, "Nothing was changed." in again.stderr) == (1, True)


@pytest.mark.slow
def test_a_session_in_use_is_not_moved_or_deleted(home: Path):
    (_, stored) = listed(home)
    code = (
        "import asyncio, sys; from pathlib import Path\n"
        "from holdfast.store.sqlite import SqliteStore\n"
        "async def main():\n"
        "    async with SqliteStore(Path(sys.argv[1])) as store:\n"
        "        await store.acquire(sys.argv[2]); print('held', flush=True); sys.stdin.read()\n"
        "asyncio.run(main())\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(home / "data" / "holdfast.db"), stored["id"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        deleted = run(home, "sessions", "delete", "--yes", stored["id"])
        moved = run(home, "sessions", "move", stored["id"], "/")
        holder.communicate()

    assert (deleted.returncode, moved.returncode) == (1, 1)
    assert f"process {holder.pid}" in deleted.stderr
    assert len(listed(home)) == 2


def test_a_session_cannot_be_moved_into_a_folder_of_holdfast(home: Path):
    (_, stored) = listed(home)
    moved = run(home, "sessions", "move", stored["id"], str(home / "data"))

    assert (moved.returncode, "belongs to Holdfast, and no session may use it" in moved.stderr) == (1, True)
    assert listed(home)[1]["cwd"] == stored["cwd"]


@pytest.mark.slow
@pytest.mark.promise("STO-03")
def test_replay_and_list_show_a_running_or_interrupted_turn(home: Path):
    (_, stored) = listed(home)
    code = (
        "import asyncio, sys; from pathlib import Path\n"
        "from holdfast.model.event import Prompted, ToolCalled, ToolStarted\n"
        "from holdfast.store.sqlite import SqliteStore\n"
        "async def main():\n"
        "    async with SqliteStore(Path(sys.argv[1])) as store:\n"
        "        hold = await store.acquire(sys.argv[2])\n"
        "        said = {'type': 'text', 'text': 'do it'}\n"
        "        await store.append(hold, Prompted(turn_id='t', message_id='m', blocks=(said,)))\n"
        "        await store.append(hold, ToolCalled(call_id='c', server='a', tool='b', arguments={}))\n"
        "        await store.append(hold, ToolStarted(call_id='c'))\n"
        "        print('begun', flush=True); sys.stdin.read()\n"
        "asyncio.run(main())\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", code, str(home / "data" / "holdfast.db"), stored["id"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begun\n"
        running = run(home, "sessions", "replay", stored["id"])
        worker.kill()
    replayed = run(home, "sessions", "replay", stored["id"])
    shown = run(home, "sessions", "show", stored["id"])
    table = run(home, "sessions", "list")

    assert running.stdout.endswith(
        f"● a.b {{}}\nThis turn is running in process {worker.pid} on {platform.node()}.\n"
    )
    assert replayed.stdout.endswith(
        "› do it\n● a.b {}\n  INTERRUPTED: it is unknown whether the call took effect\nThis turn was interrupted before it ended.\n"
    )
    assert "state      closed; its last turn was interrupted\n" in shown.stdout
    assert "calls      2; 1 interrupted\n" in shown.stdout
    assert "interrupted  the login bug" in table.stdout


@pytest.mark.promise("STO-03")
def test_every_view_shows_calls_of_an_ended_process_as_interrupted(home: Path, tmp_path: Path):
    async def leave_open() -> str:
        loaded = settings.load(home / "config.toml", environment(home))
        async with Host(settings=loaded) as host, host.session(cwd=tmp_path) as session:
            session_id = session.context.session_id
        opened = SessionOpened(cwd=str(tmp_path), roots=(str(tmp_path),), trust_level=Trust.DIRECT)
        async with SqliteStore(home / "data" / "holdfast.db") as store:
            hold = await store.acquire(session_id)
            await store.append(hold, opened)
            for call_id in ("one", "two"):
                await store.append(hold, ToolCalled(call_id=call_id, server="shop", tool="buy", arguments={}))
            await store.append(hold, ToolStarted(call_id="two"))
        return session_id

    session_id = asyncio.run(leave_open())
    (line,) = (line for line in run(home, "sessions", "list").stdout.splitlines() if "shop.buy" in line)
    found = listed(home)[0]
    shown = run(home, "sessions", "show", session_id).stdout
    searched = run(home, "sessions", "search", "shop", "buy").stdout
    before = run(home, "sessions", "replay", session_id).stdout
    run(home, "sessions", "tag", session_id, "seen")  # ends the calls, as the next host does
    after = run(home, "sessions", "replay", session_id).stdout

    waited = "INTERRUPTED: the call was never made\n"  # for permission, for example
    unknown = "INTERRUPTED: it is unknown whether the call took effect\n"
    assert line.split()[3:6] == ["interrupted", "called", "shop.buy"]
    assert (found["id"], found["state"], found["interrupted"]) == (session_id, "closed", True)
    assert "state      closed; its last calls were interrupted\n" in shown
    assert "calls      2; 2 interrupted\n" in shown
    assert searched.splitlines()[1].endswith("called shop.buy  called shop.buy")
    assert before == after == f"● shop.buy {{}}\n● shop.buy {{}}\n  shop.buy {waited}  {unknown}"
    assert (
        listed(home)[0]["interrupted"],
        "2 interrupted" in run(home, "sessions", "show", session_id).stdout,
    ) == (
        False,
        True,
    )


def test_deleted_sessions_are_audited(home: Path):
    ids = {found["id"] for found in listed(home)}
    pruned = run(home, "sessions", "prune", "--older-than", "0", "--yes")
    records = run(home, "audit", "list", "--kind", "deletion", "--json").stdout.splitlines()

    assert pruned.stdout.splitlines()[-1] == "Deleted 2 sessions."
    assert {
        (one["session_id"], one["outcome"]) for one in (json.loads(line)["record"] for line in records)
    } == {(each, "deleted") for each in ids}


@pytest.mark.parametrize("command", [("list",), ("search", "/help")], ids=" ".join)
def test_results_beyond_the_limit_are_counted_and_can_be_shown(home: Path, command: tuple[str, ...]):
    few = run(home, "sessions", *command, "--limit", "1", "--json")
    every = run(home, "sessions", *command, "--all", "--json")
    many = run(home, "sessions", *command, "--limit", "5000", "--json")

    beyond = len(every.stdout.splitlines()) - 1
    assert beyond > 0
    assert (len(few.stdout.splitlines()), few.stderr) == (
        1,
        f"Showing the latest 1; {beyond} more. To see more, add --limit 2 or --all.\n",
    )
    assert (every.stderr, many.stdout, many.stderr) == ("", every.stdout, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("show", "sess_0123456789abcdef"),
            "There is no session 'sess_0123456789abcdef'.\nHint: `holdfast sessions list --all` shows",
        ),
        (("show", "nonsense"), "There is no session 'nonsense'."),
        (("replay", "ab"), "There is no session 'ab'. Give at least 4 characters of the id."),
        (
            ("list", "--path", "/no/store"),
            "There is no store at '/no/store': nothing was recorded there yet.",
        ),
    ],
    ids=" ".join,
)
def test_an_unknown_session_is_an_error_with_a_hint(tmp_path: Path, arguments: tuple[str, ...], message: str):
    done = run(tmp_path, "sessions", *arguments)

    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
