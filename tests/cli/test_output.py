"""Exports that cannot be written are an error and leave no file behind."""

import asyncio
import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli import output
from holdfast.cli.event_printer import EventPrinter
from holdfast.cli.output import write_json_lines
from holdfast.cli.terminal_text import escape_unprintable, shorten, wrap_question
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Replied, Thought
from tests.cli.test_sessions import HOLDFAST, environment, home, listed, run
from tests.commands import run_holdfast

__all__ = ["home"]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one page; skips if it cannot be mounted."""
    folder = tmp_path / "full"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"may not mount here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_exporting_into_a_missing_folder_is_an_error(home: Path, tmp_path: Path):
    (_, stored) = listed(home)
    output = tmp_path / "none" / "x"

    of_session = run(home, "sessions", "export", stored["id"], "--output", str(output))
    of_audit = run(home, "audit", "export", "--output", str(output))
    of_store = run(home, "store", "backup", str(output))

    printed = (
        f"Error: There is no folder '{output.parent}': '{output}' cannot be written.\n"
        "Hint: Create the folder, or choose another one.\n"
    )
    assert [(done.returncode, done.stderr) for done in (of_session, of_audit, of_store)] == [(1, printed)] * 3


def test_an_export_to_a_full_disk_leaves_no_file(home: Path, full_disk: Path):
    (_, stored) = listed(home)
    output = full_disk / "x"
    (full_disk / "ballast").write_bytes(b"x" * 4096)

    of_session = run(home, "sessions", "export", stored["id"], "--output", str(output))
    left = output.exists()
    of_audit = run(home, "audit", "export", "--output", str(output))

    printed = (
        f"Error: '{output}' cannot be written: no space left on device. No incomplete file was left behind.\n"
        "Hint: Free some space, then try again.\n"
    )
    assert [(done.returncode, done.stderr) for done in (of_session, of_audit)] == [(1, printed)] * 2
    assert (left, output.exists()) == (False, False)


def test_an_export_can_be_retried_after_a_failure(tmp_path: Path):
    def lines() -> Iterator[str]:
        yield "one"
        raise OSError(28, "No space left on device")

    with pytest.raises(HoldfastError):
        write_json_lines(tmp_path / "x", lines())
    write_json_lines(tmp_path / "x", ["one", "two"])

    assert (tmp_path / "x").read_text() == "one\ntwo\n"


@pytest.mark.slow
def test_a_dash_means_standard_output(home: Path):
    (_, stored) = listed(home)

    of_session = run(home, "sessions", "export", stored["id"], "--output", "-")
    of_audit = run(home, "audit", "export", "--output", "-")

    assert of_session.stdout == run(home, "sessions", "export", stored["id"]).stdout
    assert of_audit.stdout == run(home, "audit", "export").stdout
    assert (of_session.stderr, of_audit.stderr, (home / "-").exists()) == ("", "", False)


@pytest.mark.parametrize("inside", ["", "deeper/down"])
@pytest.mark.parametrize("command", [("chat",), ("sessions", "list"), ("tools",)], ids=" ".join)
def test_a_data_dir_that_is_a_file_is_an_error(tmp_path: Path, command: tuple[str, ...], inside: str):
    (tmp_path / "data").touch()

    done = run(tmp_path, *command, data_dir=tmp_path / "data" / inside)

    assert (done.returncode, done.stdout) == (1, "")
    assert (
        f"'{tmp_path / 'data'}' is not a folder.\nHint: Set `data_dir` to the path of a folder.\n"
        in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_a_full_standard_output_is_an_error(home: Path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [HOLDFAST, "sessions", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(home),
            text=True,
            check=False,
        )

    assert (done.returncode, done.stderr) == (
        1,
        "Error: The operating system reported: no space left on device. Free some space, then try again.\n",
    )


def test_a_thought_and_the_answer_after_it_are_on_lines_of_their_own():
    written = io.StringIO()
    printer = EventPrinter(written)
    for event in (
        Thought(message_id="m", text="Let me"),
        Thought(message_id="m", text=" see."),
        Replied(message_id="m", text="I see"),
        Replied(message_id="m", text=" it."),
    ):
        printer.show(event)

    assert written.getvalue() == "Let me see.\nI see it."


def test_joined_emoji_stay_joined_but_a_joiner_elsewhere_is_shown():
    coder, heart = "\U0001f469\u200d\U0001f4bb", "\u2764\ufe0f\u200d\U0001f525"
    written = io.StringIO()
    printer = EventPrinter(written)
    for piece in (f"{coder}{heart} \U0001f469\u200d", "\U0001f4bb \u26a0", "\ufe0f a\u200db", "\u200d"):
        printer.show(Replied(message_id="m", text=piece))

    assert written.getvalue() == f"{coder}{heart} {coder} \u26a0\ufe0f a�b�"
    assert [shorten(coder * 2, width) for width in (4, 5, 7, 8)] == [
        "\U0001f469…",
        f"{coder}…",
        f"{coder}…",
        coder * 2,
    ]
    assert escape_unprintable(coder) == "\U0001f469\\u200d\U0001f4bb", "an argument that a person approves"


@pytest.mark.anyio
async def test_a_long_wait_says_how_long_it_has_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(output, "_FIRST_INTERVAL_SECONDS", 0.001)

    async def work() -> str:
        while not (printed := capsys.readouterr().out):
            await asyncio.sleep(0.001)
        return printed

    assert (await output.print_while_waiting("still fetching", work())).startswith("  still fetching, 0 s\n")


def test_a_long_question_breaks_between_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "50")

    assert wrap_question("Allow it? [c]onfined, with your [r]ights, [n]o? ").split("\n") == [
        "Allow it? [c]onfined, with your [r]ights, ",
        "    ↪ [n]o? ",
    ]


@pytest.mark.parametrize("level", ["info", "debug"])
def test_the_traceback_of_an_operating_system_error_is_logged_on_request(tmp_path: Path, level: str):
    (tmp_path / "tokens").touch()
    done = run_holdfast(
        "tokens",
        "list",
        env={**os.environ, "HOLDFAST_DATA_DIR": str(tmp_path), "HOLDFAST_LOG_LEVEL": level},
    )

    assert (done.returncode, "to log more details." in done.stderr) == (1, True)
    assert ("Traceback" in done.stderr) == (level == "debug")
