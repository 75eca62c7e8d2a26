"""`holdfast chat`, at a terminal and in a pipe."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import __version__
from holdfast.cli.terminal_text import WRAP_MARK
from holdfast.testing.scripted_model import Answer, ScriptedModel, Text
from holdfast.workspaces import Registry
from tests.commands import run_holdfast
from tests.journeys.editor import SERVER, environment
from tests.journeys.terminal import PATIENCE, Terminal, terminal

READY = "› "
QUESTION = "[r]eject? "
ASKING_SERVER = """
import asyncio, os
from dataclasses import dataclass
from pathlib import Path

from holdfast.toolkit import Call, Toolbox

box = Toolbox("trips")


@dataclass
class Trip:
    city: str
    nights: int


@box.tool
async def book(call: Call) -> str:
    "Book a trip."
    trip = await call.ask("Where to?", Trip)
    return f"{trip.city} {trip.nights}"


@box.tool
async def wait(call: Call) -> str:
    "Wait."
    await call.progress(1, 2, "packing")
    while not Path("go").exists():
        await asyncio.sleep(0.05)
    return "done"


@box.tool
def end() -> str:
    "End."
    os._exit(1)


box.main()
"""


@pytest.fixture
def server(home: Path) -> None:
    """A server that the user configured, besides the built-in ones."""
    entry = {"command": sys.executable, "args": [str(SERVER)]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))


def piped(home: Path, cwd: Path, text: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_holdfast("chat", *arguments, input=text, cwd=cwd, env=environment(home), timeout=PATIENCE)


def test_the_banner_names_folder_servers_and_commands(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        banner = screen.until(READY)
        screen.type("\x04")
        code = screen.end()

    assert f"folder   {cwd}" in banner
    assert "servers  files (" in banner
    assert "/tools" in banner
    assert "Ctrl-C cancels, Ctrl-D leaves." in banner
    assert b"\x1b[" in screen.raw, "a terminal gets colours"
    assert code == 0


def test_chat_asks_whether_the_folder_belongs_to_the_workspace_that_it_names(home: Path, cwd: Path):
    (home.parent / "blog").mkdir()
    Registry(home / "data" / "workspaces").add(home.parent / "blog")
    (cwd / ".holdfast").mkdir()
    (cwd / ".holdfast" / "workspace.toml").write_text('workspace = "blog"\n')

    with terminal(home, cwd) as screen:
        question = screen.until("decide later: ")
        screen.line("y")
        banner = screen.until(READY)
        screen.line('/call tasks.task_add {"title": "Here"}')
        screen.until(QUESTION)
        screen.line("o")
        added = screen.until(READY)

    assert f"of {cwd} says that this folder belongs to the workspace 'blog'" in question.replace(
        f"\n{WRAP_MARK}", ""
    )
    assert "tasks (" in banner
    assert "blog-1" in added


def test_a_call_without_arguments_asks_for_each_by_its_schema(home: Path, cwd: Path):
    (cwd / "notes").write_text("one\ntwo\nthree\n")

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line("/call files.read")
        screen.until("path (text): ")
        screen.line("notes")
        screen.until("first_line (whole number, at least 1, default 1): ")
        screen.line("second")
        wrong = screen.until("first_line (whole number, at least 1, default 1): ")
        screen.line("0")
        too_small = screen.until("first_line (whole number, at least 1, default 1): ")
        screen.line("2")
        screen.until("default 2000): ")
        screen.line("1")
        shown = screen.until(READY)
        screen.line("/call files.read")
        screen.until("path (text): ")
        screen.type("\x03")
        cancelled = screen.until(READY)

    assert "It must be a whole number." in wrong
    assert "Allowed: at least 1." in too_small
    assert "two\n" in shown
    assert "one" not in shown
    assert "Nothing was called." in cancelled


def test_signal_at_a_half_typed_line_clears_it_and_does_not_leave(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        for _ in range(3):
            screen.type("half a li")
            screen.until_anywhere("half a li")
            screen.process.send_signal(signal.SIGINT)
            screen.until_gone("half a li")
        screen.type("/help\n")
        shown = screen.until(READY)

    assert "/tools" in shown


def test_a_server_asks_the_user_with_a_form(home: Path, cwd: Path):
    server = cwd / "server.py"
    server.write_text(ASKING_SERVER)
    entry = {"command": sys.executable, "args": [str(server)]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"trips": entry}}))

    with terminal(home, cwd, "--mode", "auto") as screen:
        screen.until(READY)
        screen.line("/call trips.book {}")
        question = screen.until("city (text): ")
        screen.line("Rome")
        screen.until("nights (whole number): ")
        screen.line("3")
        booked = screen.until(READY)
        screen.line("/call trips.book {}")
        screen.until("city (text): ")
        screen.line("/decline")
        declined = screen.until(READY)
        screen.line("/call trips.end {}")
        screen.until(READY)
        screen.line("/servers")
        servers = screen.until(READY)

    assert "A question from the MCP server 'trips', not from Holdfast:" in question
    assert "Rome 3" in booked
    assert "DECLINED" in declined
    assert "- trips: ended; the next call starts it again" in servers


def test_a_slow_call_shows_its_time_and_the_progress_that_its_server_reports(home: Path, cwd: Path):
    server = cwd / "server.py"
    server.write_text(ASKING_SERVER)
    entry = {"command": sys.executable, "args": [str(server)]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"trips": entry}}))

    with terminal(home, cwd, "--mode", "auto") as screen:
        screen.until(READY)
        screen.line("/call trips.wait {}")
        screen.until_anywhere("1 of 2 packing")
        (cwd / "go").touch()
        shown = screen.until(READY)

    assert re.search(r"trips.wait  [0-9]+ s  1 of 2 packing", screen.raw.decode())
    assert "packing" not in shown, "the line is gone"


@pytest.mark.usefixtures("server")
def test_results_are_wrapped_indented_coloured_and_shown_in_parts(home: Path, cwd: Path):
    (cwd / "long").write_text("".join(f"{number} {'kelp ' * 40}\n" for number in range(40)))

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call files.read {"path": "long"}')
        first = screen.until("more characters: /more shows the next part")
        screen.until(READY)
        screen.line("/more")
        second = screen.until("more characters: /more shows the next part")
        screen.until(READY)
        screen.line("/call tools.whoami {}")
        screen.until("tools.whoami:\n")
        data = screen.until(READY)
        coloured = screen.coloured

    words = first.partition("files.read:\n")[2].split("\n")
    assert words[:2] == [f"0 {'kelp ' * 23}".rstrip(), f"{'kelp ' * 17}"], (
        "the file's text, not JSON, in whole words"
    )
    assert (max(map(len, words)) <= 120, "19 kelp" in first, "20 kelp" in second) == (True, False, True)
    assert data.startswith('{\n    "session": "sess_')
    assert re.search(r'\x1b\[36m {4}"trust"\x1b\[0m: \x1b\[32m"direct"\x1b\[0m', coloured), coloured


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--handshake",)], ids=["modern", "handshake"])
def test_a_server_of_either_era_asks_with_a_form(home: Path, cwd: Path, flags: tuple[str, ...]):
    entry = {"command": sys.executable, "args": [str(SERVER), *flags]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))

    with terminal(home, cwd, "--mode", "auto") as screen:
        screen.until(READY)
        screen.line("/call tools.ask {}")
        question = screen.until("name (text): ")
        screen.line("Ann")
        answered = screen.until(READY)

    assert "Who are you?" in question
    assert '{"action":"accept","content":{"name":"Ann"}}' in answered


def test_a_tool_call_is_shown_when_it_starts_and_its_diff_when_it_ends(home: Path, cwd: Path):
    (cwd / "file").write_text("old\n")

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call files.edit {"path": "file", "old": "old", "new": "new"}')
        asked = screen.until(QUESTION)
        before = (cwd / "file").read_text()
        screen.line("o")
        done = screen.until(READY)

    assert '● files.edit {"path": "file"' in asked
    assert "    -old\n    +new\n" in asked, "the change is shown before the question"
    assert (before, (cwd / "file").read_text()) == ("old\n", "new\n")
    assert "  ✓\n" in done
    assert "    -old\n    +new\n" in done


@pytest.mark.promise("ACP-09")
def test_permission_is_given_once_or_for_the_session_or_rejected(home: Path, cwd: Path):
    def write(name: str) -> str:
        return f'/call files.write {{"path": "{name}", "text": "x"}}'

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line(write("rejected"))
        screen.until(QUESTION)
        screen.line("r")
        rejected = screen.until(READY)
        screen.line(write("once"))
        screen.until(QUESTION)
        screen.line("perhaps")
        screen.until(QUESTION)
        screen.line("o")
        screen.until(READY)
        screen.line(write("always"))
        screen.until(QUESTION)
        screen.line("a")
        screen.until(READY)
        screen.line(write("unasked"))
        unasked = screen.until(READY)

    assert "rejected\n  ✗ NOT_PERMITTED" in rejected
    assert QUESTION not in unasked
    assert sorted(os.listdir(cwd)) == ["always", "once", "unasked"]


@pytest.mark.parametrize("typed", ["/quit\n", "\x04"])
def test_leaving_at_a_question_says_how_to_leave(home: Path, cwd: Path, typed: str):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call files.write {"path": "new", "text": "x"}')
        screen.until(QUESTION)
        screen.type(typed)
        screen.until("Press Ctrl-C to cancel the turn; then you can leave.")

    assert not (cwd / "new").exists()


@pytest.mark.usefixtures("server")
def test_ctrl_c_cancels_the_turn_and_the_chat_goes_on(home: Path, cwd: Path):
    started = cwd / "started"

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line(f'/call tools.wait {{"started": "{started}"}}')
        _wait_for(started)
        screen.type("\x03")
        screen.until("Cancelled.")
        screen.until(READY)
        screen.line('/call tools.echo {"text": "still here"}')
        after = screen.until(READY)
        screen.type("\x04")
        code = screen.end()

    _wait_for(started.with_suffix(".cancelled"))
    assert "still here" in after
    assert code == 0
    assert not _is_alive(int(started.read_text()))


def test_ctrl_c_at_a_question_cancels_the_turn(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call files.write {"path": "file", "text": "x"}')
        screen.until(QUESTION)
        screen.type("\x03")
        screen.until("Cancelled.")
        screen.until(READY)

    assert os.listdir(cwd) == []


def test_ctrl_c_twice_at_an_empty_prompt_leaves(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.type("\x03")
        screen.until("Press Ctrl-C again, or Ctrl-D, to leave.")
        screen.until(READY)
        screen.type("\x03")
        code = screen.end()

    assert code == 0


def test_ctrl_c_clears_the_line(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.type("/call files.write {}\x03/servers\n")
        shown = screen.until("files: available")
        screen.until(READY)

    assert "files.write" not in shown
    assert "Ctrl-C" not in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_the_prompt_ends_the_chat(home: Path, cwd: Path, number: int):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.process.send_signal(number)
        if number == signal.SIGINT:
            screen.until("Press Ctrl-C again")
            screen.until(READY)
            screen.process.send_signal(number)
        code = screen.end()

    assert code == (0 if number == signal.SIGINT else 128 + number)
    assert [stored["state"] for stored in _sessions(home)] == ["closed"]


@pytest.mark.parametrize("asked", [False, True], ids=["prompt", "question"])
def test_a_closed_terminal_ends_the_chat(home: Path, cwd: Path, asked: bool):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        if asked:
            screen.line('/call files.write {"path": "new", "text": "x"}')
            screen.until(QUESTION)
        code = screen.hang_up()

    assert (code, os.listdir(cwd)) == (128 + signal.SIGHUP, [])
    assert [stored["state"] for stored in _sessions(home)] == ["closed"]


def test_tab_completes_commands_servers_tools_and_arguments(home: Path, cwd: Path):
    (cwd / "notes").write_text("kelp\n")

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.type("/ca\tfiles.li\t{}\n")
        listed = screen.until("✓")
        screen.until(READY)
        screen.type('/ca\tfiles.rea\t{"pa\t"notes"}\n')
        read = screen.until("kelp")
        screen.until(READY)
        screen.type("/too\tfil\t\n")
        tools = screen.until("files.write")

    assert "● files.list {}" in listed
    assert '● files.read {"path": "notes"}' in read
    assert "/tools files\n" in tools


def test_tab_offers_the_tools_that_match_with_their_descriptions(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.type("/tools files.\t")
        screen.until("files.find")
        screen.until("files.list")
        screen.type("\t\t\n")
        screen.until("/call files.")


def test_the_arrow_keys_bring_back_prompts_of_this_chat_and_of_earlier_ones(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call files.list {"path": "."}')
        screen.until(READY)
        screen.type("\x04")
        screen.end()

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line("/servers")
        screen.until(READY)
        screen.type("\x1b[A\x1b[A\n")
        shown = screen.until("✓")

    assert '● files.list {"path": "."}' in shown


def test_ctrl_r_searches_earlier_prompts(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call files.list {"path": "."}')
        screen.until(READY)
        screen.line("/servers")
        screen.until(READY)
        screen.type("\x12files.l\r")
        screen.type("\r")
        shown = screen.until("✓")

    assert '● files.list {"path": "."}' in shown


def test_alt_enter_begins_a_new_line(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.type("/servers\x1b\r/tools files\r")
        screen.until("files: available")
        screen.until("files.list (")
        screen.until(READY)

    assert _prompts(home) == ["/servers\n/tools files"]


def test_pasted_lines_are_one_prompt(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.type("\x1b[200~/servers\r\n/tools files\r\n\x1b[201~")
        screen.type("\r")
        screen.until("files: available")
        screen.until(READY)

    assert _prompts(home) == ["/servers\n/tools files"]


def test_enter_continues_a_call_whose_json_is_not_closed(home: Path, cwd: Path):
    (cwd / "a.txt").write_text("kelp")

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.type('/call files.read {\n"path":\n"a.txt"}\n')
        shown = screen.until("kelp")
        screen.until(READY)
        screen.type("/call files.read {\n\n")
        screen.until("is not closed")

    assert '… "path":\n… "a.txt"}\n' in shown


@pytest.mark.usefixtures("server")
def test_a_prompt_typed_during_a_turn_is_the_next_one(home: Path, cwd: Path):
    started = cwd / "started"

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line(f'/call tools.wait {{"started": "{started}", "seconds": 1}}')
        _wait_for(started)
        screen.type("/servers\n")
        screen.until("waited")
        screen.until("files: available")


@pytest.mark.usefixtures("server")
def test_output_appears_above_an_open_question(home: Path, cwd: Path):
    started = cwd / "started"

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.type('/call files.write {"path": "new", "text": "x"}\x1b\r')
        screen.line(f'/call tools.wait {{"started": "{started}", "seconds": 1}}')
        screen.until("  tools.wait ✓\n  files.write (built in)")
        screen.until(QUESTION)
        screen.line("o")
        screen.until(READY)

    assert (cwd / "new").read_text() == "x"


LOGGING = """
import asyncio, logging
from holdfast import log_output
from holdfast.cli.chat.input import Completions, LogStream, TerminalInput

async def main():
    terminal = TerminalInput([], lambda: Completions(commands={}, arguments={}))
    log_output.configure("info", "human", LogStream(terminal))
    reading = asyncio.create_task(terminal.read_prompt())
    while terminal._prompts.default_buffer.text != "half a":
        await asyncio.sleep(0.01)
    log = logging.getLogger("holdfast.test")
    log.warning("logged on the loop")
    await asyncio.to_thread(log.warning, "logged in a thread")
    print("read:", await reading)
    log.warning("logged without a prompt")

asyncio.run(main())
"""


def test_logs_appear_above_the_prompt(home: Path, cwd: Path):
    with terminal(home, cwd, command=[sys.executable, "-c", LOGGING]) as screen:
        screen.until(READY)
        screen.type("half a")
        screen.until_anywhere("logged on the loop")
        screen.until_anywhere("logged in a thread")
        screen.until_anywhere(f"\n{READY}half a")
        screen.type(" prompt\n")
        screen.until_anywhere("read: half a prompt")
        screen.until_anywhere("logged without a prompt")

    assert screen.shown.count(READY) == 1, "the prompt was drawn again below the logs"


def test_parallel_calls_ask_one_after_another(home: Path, cwd: Path):
    (cwd / "two").write_text("old")

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.type('/call files.write {"path": "one", "text": "x"}\x1b\r')
        screen.line('/call files.edit {"path": "two", "old": "old", "new": "new"}')
        screen.until(QUESTION)
        screen.line("o")
        screen.until(QUESTION)
        screen.line("o")
        screen.until(READY)

    assert ((cwd / "one").read_text(), (cwd / "two").read_text()) == ("x", "new")


def test_a_resized_terminal_is_drawn_again(home: Path, cwd: Path):
    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.type("/serv")
        screen.until("/serv")
        screen.resize(rows=30, columns=60)
        screen.type("ers\n")
        screen.until("files: available")
        screen.until(READY)
        screen.type("\x04")
        code = screen.end()

    assert code == 0


def test_a_dumb_terminal_works_too(home: Path, cwd: Path):
    with terminal(home, cwd, environ={"TERM": "dumb"}) as screen:
        screen.until(READY)
        screen.type("/servers\r")
        screen.until("files: available")
        screen.until(READY)
        screen.type("/quit\r")
        code = screen.end()
    (stored,) = _sessions(home)

    assert code == 0
    assert f"To resume this session: holdfast chat --resume {stored['id'][:13]}" in screen.shown


def test_the_command_that_resumes_a_session_names_its_user(home: Path, cwd: Path):
    with terminal(home, cwd, "--user", "ann") as screen:
        screen.until(READY)
        screen.type("/servers\r")
        screen.until("files: available")
        screen.until(READY)
        screen.type("/quit\r")
        screen.end()
    (stored,) = _sessions(home)

    assert f"To resume this session: holdfast chat --resume {stored['id'][:13]} --user ann" in screen.shown


@pytest.mark.slow
def test_a_resumed_chat_shows_the_conversation_so_far(home: Path, cwd: Path):
    piped(home, cwd, "/call files.list {}\n")
    (stored,) = _sessions(home)

    with terminal(home, cwd, "--resume") as screen:
        before = screen.until("Resuming")
        screen.until(READY)
        screen.line("/servers")
        screen.until("files: available")
    by_id = piped(home, home, "/servers\n", "--resume", stored["id"][5:13])

    assert "› /call files.list {}\n● files.list {}\n  ✓\n" in before
    assert "› /servers" in by_id.stdout
    assert f"folder   {cwd}" in by_id.stderr, "a session is resumed in its own folder"
    assert [session["id"] for session in _sessions(home)] == [stored["id"]]


@pytest.mark.promise("LNK-07")
@pytest.mark.usefixtures("server")
def test_a_resumed_chat_says_once_that_a_server_lost_its_state(home: Path, cwd: Path):
    call = "/call tools.count {}\n"
    first = piped(home, cwd, call, "--mode", "auto")
    resumed = piped(home, cwd, call * 2, "--mode", "auto", "--resume")

    assert (first.returncode, "STATE_LOST" in first.stdout) == (0, False)
    shown = resumed.stdout.split("tools.count:\n")
    assert ["STATE_LOST: tools was restarted." in answer for answer in shown[-2:]] == [True, False]


def test_escape_sequences_in_files_do_not_reach_the_terminal(home: Path, cwd: Path):
    (cwd / "evil").write_text("\x1b]0;owned\x07\x1b[2J\rgone")

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line('/call files.read {"path": "evil"}')
        screen.until("gone")

    assert b"\x1b[2J" not in screen.raw
    assert b"\x1b]0;" not in screen.raw


def test_each_line_of_a_pipe_is_a_prompt_answered_without_colours(home: Path, cwd: Path):
    (cwd / "file").write_text("what is in it")

    done = piped(
        home, cwd, '/call files.read {"path": "file"}\n\n/call files.write {"path": "file", "text": ""}\n'
    )

    assert (done.returncode, done.stderr.partition("  ")[0]) == (1, f"Holdfast {__version__}"), (
        "a call failed"
    )
    assert done.stdout.startswith("● files.read"), "the greeting is on standard error"
    assert "\x1b" not in done.stdout
    assert "files.read:\nwhat is in it\n" in done.stdout
    assert (
        "NOT_PERMITTED: files.write needs permission. No terminal or editor that may answer is attached"
        in done.stdout
    )
    assert (cwd / "file").read_text() == "what is in it"


def test_the_json_of_a_call_in_a_pipe_may_have_several_lines(home: Path, cwd: Path):
    (cwd / "a.txt").write_text("kelp")

    said = piped(home, cwd, '/call files.read {\n  "path":\n  "a.txt"\n}\n/call files.read {\n\n/tools\n')
    left = piped(home, cwd, '/call files.read {\n["a"\n/quit\n/call files.read {"path": "a.txt"}\n')

    assert (said.returncode, said.stdout.count("kelp"), "not closed" in said.stdout) == (1, 1, True)
    unfinished = "The JSON for files.read is incomplete: the `[` in line 2 is not closed. Nothing was called;"
    assert (left.returncode, left.stdout) == (1, f"{unfinished} complete the JSON and send it again.\n"), (
        "the command after unfinished JSON is a command"
    )


def test_without_a_terminal_the_mode_decides(home: Path, cwd: Path):
    write = '/call files.write {"path": "file", "text": "x"}\n'

    refused = piped(home, cwd, write, "--mode", "read-only")
    written = piped(home, cwd, write, "--mode", "auto")

    assert "this session's mode is read-only" in refused.stdout
    assert "✓" in written.stdout
    assert (cwd / "file").read_text() == "x"


def test_the_mode_can_be_changed_and_words_after_quit_do_no_harm(home: Path, cwd: Path):
    write = '/call files.write {"path": "file", "text": "x"}'

    done = piped(home, cwd, f"/mode auto\n{write}\n/mode\n/mode loud\n/help\n/quit now please\n{write}\n")

    listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("    /")}
    assert listed >= {"/call", "/help", "/mode", "/approve", "/stop", "/quit"}
    assert done.stdout.count("● files.write") == 1
    assert "The mode is auto. To change it, type /mode ask or /mode auto or /mode read-only." in done.stdout
    assert "loud" in done.stderr
    assert (cwd / "file").read_text() == "x"


def test_empty_input_ends_the_chat(home: Path, cwd: Path):
    done = piped(home, cwd, "")

    assert (done.returncode, done.stdout) == (0, "")
    assert "/help" in done.stderr


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("leave", "number"), [(Terminal.terminate, signal.SIGTERM), (Terminal.hang_up, signal.SIGHUP)]
)
def test_ending_a_chat_during_a_turn_ends_its_servers_and_closes_the_session(
    home: Path, cwd: Path, leave: Callable[[Terminal], int], number: int
):
    started = cwd / "started"

    with terminal(home, cwd) as screen:
        screen.until(READY)
        screen.line(f'/call tools.wait {{"started": "{started}"}}')
        _wait_for(started)
        code = leave(screen)

    assert code == 128 + number
    assert not _is_alive(int(started.read_text()))
    (stored,) = _sessions(home)
    assert (stored["state"], stored["interrupted"]) == ("closed", False)
    assert "/call tools.wait" in (home / "data" / "chat_history").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--resume",), "There is no session in"),
        (("--resume", "sess_0123456789abcdef"), "There is no session 'sess_0123456789abcdef'."),
        (("--workspace", "nowhere"), "There is no workspace 'nowhere'."),
    ],
)
def test_a_session_that_cannot_be_opened_is_an_error(
    home: Path, cwd: Path, arguments: tuple[str, ...], message: str
):
    done = piped(home, cwd, "", *arguments)

    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_sign_of_life_is_shown_while_a_model_is_slow_and_removed_when_it_answers(home: Path, cwd: Path):
    with ScriptedModel([Answer(parts=(Text("Here I am."),), delay=2.5)]) as endpoint:
        environ = {"HOLDFAST_MODEL_NAME": "openai-chat:slow", "HOLDFAST_MODEL_BASE_URL": endpoint.base_url}
        with terminal(home, cwd, environ=environ) as screen:
            screen.until(READY)
            screen.line("Are you there?")
            screen.until_anywhere("thinking …")
            screen.until_anywhere("Here I am.")
            screen.until(READY)

    assert "thinking" not in screen.shown


def _sessions(home: Path) -> list[dict[str, Any]]:
    done = run_holdfast("sessions", "list", "--json", env=environment(home))
    return [json.loads(line) for line in done.stdout.splitlines()]


def _prompts(home: Path) -> list[str]:
    (stored,) = _sessions(home)
    done = run_holdfast("sessions", "export", stored["id"], env=environment(home))
    lines = [json.loads(line) for line in done.stdout.splitlines()[1:]]
    return [line["event"]["blocks"][0]["text"] for line in lines if line["kind"] == "prompted"]


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not file.exists() or (file.suffix == "" and not file.read_text()):
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


PRINTING = """
import asyncio, os, time
from holdfast.cli.chat.input import Completions, TerminalInput

def print_slowly():
    print("printing", flush=True)
    while not os.path.exists("typed"):
        time.sleep(0.01)

async def main():
    terminal = TerminalInput([], lambda: Completions(commands={}, arguments={}))
    reading = asyncio.create_task(terminal.read_prompt())
    while not terminal._prompts.app.is_running:
        await asyncio.sleep(0.01)
    await terminal.print_above(print_slowly)
    print("read:", await reading)

asyncio.run(main())
"""


@pytest.mark.parametrize(("keys", "read"), [("\x04", "read: None"), ("early\n", "read: early")])
def test_keys_pressed_during_printing_reach_the_prompt(home: Path, cwd: Path, keys: str, read: str):
    with terminal(home, cwd, command=[sys.executable, "-c", PRINTING]) as screen:
        screen.until("printing\n")
        screen.type(keys)
        (cwd / "typed").touch()
        between = screen.until(read)
        assert screen.end() == 0
    assert not between.startswith("early"), "the terminal does not echo the keys"
