import os
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from holdfast import __version__
from holdfast.cli.app import COMMANDS, app

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


def test_help_answers_within_150_ms() -> None:
    def seconds() -> float:
        began = time.perf_counter()
        subprocess.run([HOLDFAST, "--help"], stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - began

    assert min(seconds() for _ in range(10)) <= 0.150


def test_help_tells_what_holdfast_is_names_every_command_and_gives_an_example() -> None:
    told = subprocess.run([HOLDFAST, "--help"], capture_output=True, text=True, check=True).stdout

    assert "Sessions for MCP." in told
    assert "holdfast settings show" in told
    assert [name for name in COMMANDS if f"\n  {name} " not in told] == []


def test_help_imports_no_command_and_nothing_heavy() -> None:
    code = (
        "import sys; from holdfast.cli import main\n"
        "sys.argv = ['holdfast', '--help']\n"
        "try: main()\n"
        "except SystemExit: print('\\n'.join(sys.modules))"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert "holdfast.cli.app" in loaded
    commands = {lazy.target.partition(":")[0] for lazy in COMMANDS.values()}
    assert (commands | {"rich", "msgspec", "platformdirs", "asyncio", "tomllib"}) & set(loaded) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_imported_and_its_help_agrees_with_the_list(name: str) -> None:
    command = app.get_command(click.Context(app), name)

    assert command is not None
    assert command.get_short_help_str(200) == COMMANDS[name].help


@pytest.mark.parametrize("how", [[HOLDFAST], [sys.executable, "-m", "holdfast"]], ids=["script", "module"])
def test_the_version_is_told(how: list[str]) -> None:
    told = subprocess.run([*how, "--version"], capture_output=True, text=True, check=True).stdout

    assert told == f"holdfast {__version__}\n"


def test_an_unknown_command_is_a_usage_error() -> None:
    done = subprocess.run([HOLDFAST, "setings"], capture_output=True, text=True, check=False, env=os.environ)

    assert (done.returncode, done.stdout) == (2, "")
    assert "No such command 'setings'. Did you mean 'settings'?" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_of_a_groups_help_is_cut_off(name: str) -> None:
    command = app.get_command(click.Context(app), name)

    assert command is not None
    assert "..." not in command.get_help(click.Context(command)).replace("[ARGS]...", "").replace(
        "COMMAND...", ""
    )
