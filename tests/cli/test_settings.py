import json
import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.commands import run_holdfast

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


def test_show_prints_every_setting_its_value_and_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'data_dir = "{tmp_path}"\n[wire]\ndepth = 64\n')

    done = _run("settings", "show", HOLDFAST_CONFIG=str(file), HOLDFAST_LOG_LEVEL="debug")

    assert done.stderr == ""
    assert [line.split() for line in done.stdout.splitlines()][:10] == [
        ["setting", "value", "from"],
        ["data_dir", str(tmp_path), str(file)],
        ["log.level", "debug", "HOLDFAST_LOG_LEVEL"],
        ["log.format", "auto", "default"],
        ["traces.otlp_url", "default"],
        ["wire.line_bytes", "16777216", "default"],
        ["wire.depth", "64", str(file)],
        ["wire.digits", "100", "default"],
        ["wire.values", "100000", "default"],
        ["wire.in_flight", "1024", "default"],
    ]


def test_show_prints_json_for_programs(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[wire]\ndepth = 64\n")

    printed = json.loads(_run("settings", "show", "--json", HOLDFAST_CONFIG=str(file)).stdout)

    assert printed["file"] == str(file)
    assert printed["settings"]["wire.depth"] == {"value": 64, "origin": "file", "where": str(file)}
    assert printed["settings"]["wire.digits"] == {"value": 100, "origin": "default", "where": ""}


def test_show_prints_a_table_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environ = {
        **os.environ,
        "COLUMNS": "100",
        "TERM": "xterm",
        "HOLDFAST_CONFIG": "",
        "XDG_CONFIG_HOME": str(tmp_path),
    }

    with os.fdopen(ours, "rb", buffering=0) as screen:
        subprocess.run([HOLDFAST, "settings", "show"], stdout=theirs, env=environ, check=True)
        os.close(theirs)
        shown = screen.read(65536).decode()

    assert "wire.in_flight" in shown
    assert "───" in shown


def test_path_prints_the_settings_file(tmp_path: Path) -> None:
    named = _run("settings", "path", HOLDFAST_CONFIG=str(tmp_path / "mine.toml"))
    unnamed = _run("settings", "path", XDG_CONFIG_HOME=str(tmp_path))

    assert named.stdout == f"{tmp_path / 'mine.toml'}\n"
    assert unnamed.stdout.endswith("config.toml\n")


def test_bad_settings_are_an_error_without_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[log]\nlevle = 1\n")

    done = _run("settings", "show", HOLDFAST_CONFIG=str(file))

    error, hint = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert error == f"Error: {file}, line 2: unknown key 'log.levle'. Did you mean 'log.level'?"
    assert hint.startswith("Hint: ")


def _run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return run_holdfast(*arguments, env={**clean, **environ})
