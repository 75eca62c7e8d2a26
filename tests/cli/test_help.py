import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast import __version__
from holdfast.cli.app import COMMANDS, app
from tests.cli.test_sessions import run
from tests.commands import run_holdfast

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


def test_help_answers_within_150_ms() -> None:
    def seconds() -> float:
        """The CPU time, because other programs may delay the command."""
        began = os.times()
        subprocess.run([HOLDFAST, "--help"], stdout=subprocess.DEVNULL, check=True)
        ended = os.times()
        return ended.children_user + ended.children_system - began.children_user - began.children_system

    assert min(seconds() for _ in range(10)) <= 0.150


def test_help_describes_holdfast_and_lists_every_command_with_examples() -> None:
    printed = subprocess.run([HOLDFAST, "--help"], capture_output=True, text=True, check=True).stdout

    assert "Sessions for MCP." in printed
    assert "holdfast settings show" in printed
    assert [name for name in COMMANDS if f"\n  {name} " not in printed] == []


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
def test_every_command_can_be_imported_and_its_help_matches_the_list(name: str) -> None:
    command = app.get_command(click.Context(app), name)

    assert command is not None
    assert command.get_short_help_str(200) == COMMANDS[name].help


@pytest.mark.parametrize("how", [[HOLDFAST], [sys.executable, "-m", "holdfast"]], ids=["script", "module"])
def test_version_is_printed(how: list[str]) -> None:
    printed = subprocess.run([*how, "--version"], capture_output=True, text=True, check=True).stdout

    assert printed == f"holdfast {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [("setings", "settings"), ("replay", "holdfast sessions replay")]
)
def test_an_unknown_command_is_a_usage_error(typed: str, meant: str) -> None:
    done = run_holdfast(typed)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"No such command {typed!r}. Did you mean {meant!r}?" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_cuts_no_line(name: str) -> None:
    command = app.get_command(click.Context(app), name)

    assert command is not None
    assert "..." not in command.get_help(click.Context(command)).replace("[ARGS]...", "").replace(
        "COMMAND...", ""
    )


def test_every_command_has_an_example() -> None:
    missing = [path for path, command in _commands("holdfast", app) if path not in (command.help or "")]

    assert missing == []


def test_every_json_option_says_that_each_object_is_on_one_line() -> None:
    texts = {
        path: option.help
        for path, command in _commands("holdfast", app)
        for option in command.params
        if isinstance(option, click.Option) and "--json" in option.opts
    }

    lines, one = (
        "Print JSON lines, one object per line, for programs.",
        "Print one JSON object on one line, for programs.",
    )
    assert {path for path, text in texts.items() if text not in (lines, one)} == set()
    assert {path for path, text in texts.items() if text == lines} == {
        "holdfast agents list",
        "holdfast audit list",
        "holdfast servers approvals",
        "holdfast servers list",
        "holdfast servers logs",
        "holdfast sessions list",
        "holdfast sessions search",
        "holdfast sessions watch",
        "holdfast tasks list",
        "holdfast tokens list",
        "holdfast tokens revoke",
        "holdfast tools",
        "holdfast up",
        "holdfast workspaces list",
    }


@pytest.mark.slow
def test_json_is_one_object_per_line_for_one_thing_and_for_lists(tmp_path: Path) -> None:
    (tmp_path / "blog").mkdir()

    def count_objects(*words: str) -> int:
        printed = run(tmp_path, *words, "--json", cwd=tmp_path / "blog").stdout.splitlines()
        assert {type(json.loads(line)) for line in printed} <= {dict}
        return len(printed)

    assert count_objects("call", "files.list") == 1
    assert count_objects("tools", "files") > 1
    assert count_objects("workspaces", "list") == 0
    assert count_objects("workspaces", "add", ".") == 1
    assert count_objects("workspaces", "list") == 1
    assert count_objects("workspaces", "show", "blog") == 1
    assert count_objects("settings", "show") == 1


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _commands(f"{path} {name}", child)
