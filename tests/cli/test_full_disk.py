"""A chat whose disk fills up reports it, and goes on when there is space again."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.editor import environment
from tests.journeys.terminal import PATIENCE, terminal

READY = "› "


@pytest.fixture
def small_home(tmp_path: Path) -> Iterator[Path]:
    """A home with a disk of 4 MB, if we may mount one."""
    data = tmp_path / "home" / "data"
    data.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(data)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"may not mount here: {done.stderr.strip()}")
    yield data.parent
    subprocess.run(["umount", str(data)], check=True)


@pytest.mark.slow
@pytest.mark.promise("STO-01")
def test_a_chat_goes_on_after_a_prompt_that_could_not_be_stored(small_home: Path, tmp_path: Path):
    ballast = small_home / "data" / "ballast"
    cwd = tmp_path / "project"
    cwd.mkdir()

    with terminal(small_home, cwd) as screen:
        screen.until(READY)
        _fill(ballast)
        screen.line("hello " + "x" * 3000)
        refused = screen.until(READY)
        ballast.unlink()
        screen.line("/servers")
        answered = screen.until(READY)
        screen.type("\x04")
        code = screen.end()

    assert "No space is left to write" in refused
    assert "Hint: Free some space on the disk, then try again.\n" in refused
    assert "Traceback" not in refused
    assert "files: available" in answered
    assert code == 0


def test_without_a_terminal_a_failed_prompt_sets_the_exit_code(small_home: Path, tmp_path: Path):
    ballast = small_home / "data" / "ballast"
    chat = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "chat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        cwd=tmp_path,
        env={**environment(small_home), "HOLDFAST_LOG_LEVEL": "error"},
    )
    with chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        assert chat.stderr is not None
        chat.stdin.write("/servers\n")
        while "files: available" not in chat.stdout.readline():
            pass
        _fill(ballast)
        chat.stdin.write("hello " + "x" * 3000 + "\n")
        while "No space is left to write" not in (problem := chat.stderr.readline()):  # after the greeting
            assert problem
        hint = chat.stderr.readline()
        ballast.unlink()
        chat.stdin.write("/servers\n")
        answered, more = chat.communicate(timeout=PATIENCE)

    assert hint == "Hint: Free some space on the disk, then try again.\n"
    assert ("files: available" in answered, more, chat.returncode) == (True, "", 1)


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (("servers", "add", "x", "--", "true"), "data/mcp.json"),
        (("tokens", "create", "x"), "data/"),
        (("workspaces", "add", "."), "data/"),
    ],
)
def test_a_command_names_the_file_that_does_not_fit_on_the_disk(
    small_home: Path, tmp_path: Path, words: tuple[str, ...], file: str
):
    (small_home / "data" / "mcp.json").write_text("{}")
    project = tmp_path / "project"
    project.mkdir()
    environ = {**environment(small_home), "HOLDFAST_SERVERS_USER_FILE": str(small_home / "data" / "mcp.json")}
    run = [sys.executable, "-m", "holdfast"]
    subprocess.run([*run, "tokens", "list"], env=environ, cwd=project, check=True, capture_output=True)
    _fill(small_home / "data" / "ballast")

    done = subprocess.run(
        [*run, *words], env=environ, cwd=project, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert f"'{small_home / file}" in done.stderr
    assert ".new-" not in done.stderr
    assert done.stderr.count("Free some space") == 1


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(b"x" * 1024)
