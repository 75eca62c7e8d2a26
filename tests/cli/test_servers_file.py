"""`holdfast servers add`, `remove` and `edit`."""

import json
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_sessions import HOLDFAST, environment, run
from tests.commands import run_holdfast
from tests.journeys.editor import SERVER


def entries(file: Path) -> dict[str, object]:
    return json.loads(file.read_text())["mcpServers"]


@pytest.mark.slow
def test_added_server_is_used_and_a_removed_one_is_gone(tmp_path: Path):
    added = run(tmp_path, "servers", "add", "counter", "--env", "A=b=c", "--", sys.executable, str(SERVER))
    tools = run(tmp_path, "tools", "counter")
    file = tmp_path / "mcp.json"
    kept = entries(file)
    again = run(tmp_path, "servers", "add", "counter", "--", "other")
    replaced = run(tmp_path, "servers", "add", "counter", "--replace", "--url", "https://example.org/mcp")
    with_url = entries(file)
    removed = run(tmp_path, "servers", "remove", "counter")
    gone = run(tmp_path, "servers", "remove", "counter")

    assert (added.returncode, added.stdout) == (0, f"Added counter to {file}.\n")
    assert added.stderr == "Next: holdfast tools counter\n"
    assert (tools.returncode, "counter.count" in tools.stdout) == (0, True)
    assert kept == {"counter": {"command": sys.executable, "args": [str(SERVER)], "env": {"A": "b=c"}}}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (again.returncode, "already has a server 'counter'" in again.stderr) == (1, True)
    assert (replaced.returncode, with_url) == (0, {"counter": {"url": "https://example.org/mcp"}})
    assert (removed.returncode, entries(file)) == (0, {})
    assert (gone.returncode, "has no server 'counter'" in gone.stderr) == (1, True)


def test_server_of_a_project_goes_to_its_file_and_needs_approval(tmp_path: Path):
    project = tmp_path / "project"
    project.mkdir()
    added = run(
        tmp_path, "servers", "add", "api", "--project", "--url", "https://example.org/mcp",
        "--header", "Authorization: Bearer ${TOKEN}", cwd=project,
    )  # fmt: skip
    listed = run(tmp_path, "servers", "list", cwd=project)

    assert added.stderr.endswith("Next: holdfast servers approve\n")
    assert entries(project / ".mcp.json") == {
        "api": {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    }
    assert "holdfast servers approve" in listed.stdout + listed.stderr


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        (("no-such-program",), "There is no program 'no-such-program' on your PATH."),
        (("/no/such/program",), "There is no file '/no/such/program'."),
        (("/etc/passwd",), "'/etc/passwd' cannot be run: it is not executable."),
        (("sh", "-c", "x"), ""),
        (("https://example.org/mcp",), ""),
    ],
)
def test_add_warns_about_a_server_that_cannot_start(tmp_path: Path, words: tuple[str, ...], warning: str):
    done = run(tmp_path, "servers", "add", "x", "--", *words)

    assert (done.returncode, f"Warning: {warning}" in done.stderr) == (0, bool(warning))
    assert ("url" in json.dumps(entries(tmp_path / "mcp.json"))) is words[0].startswith("https")


def test_a_key_without_effect_in_a_project_is_named(tmp_path: Path):
    added = run(tmp_path, "servers", "add", "x", "--project", "--unpinned", "--", "sh", cwd=tmp_path)
    with_editor = {**environment(tmp_path), "VISUAL": "true"}
    edited = run_holdfast("servers", "edit", "--project", cwd=tmp_path, env=with_editor)

    warning = f"These keys have no effect in {tmp_path / '.mcp.json'}: pin_tools."
    assert f"Warning: {warning}" in added.stderr
    assert f"Warning: x: {warning}" in edited.stderr


@pytest.mark.parametrize("words", [("sh", "notes.sh"), ("./notes.sh",)])
def test_a_file_that_only_sessions_of_this_folder_find_is_named(tmp_path: Path, words: tuple[str, ...]):
    project = tmp_path / "project"
    project.mkdir()
    script = project / "notes.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)

    relative = run(tmp_path, "servers", "add", "a", "--", *words, cwd=project)
    absolute = run(tmp_path, "servers", "add", "b", "--", "sh", str(script), cwd=project)
    at_a_folder = run(tmp_path, "servers", "add", "c", "--cwd", str(project), "--", *words, cwd=project)
    of_the_project = run(tmp_path, "servers", "add", "d", "--project", "--", *words, cwd=project)

    assert f"Warning: Only sessions in this folder find {words[-1]!r}." in relative.stderr
    assert str(script) in relative.stderr
    assert [
        done.stderr.count("Only sessions in this folder") for done in (absolute, at_a_folder, of_the_project)
    ] == [0, 0, 0]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("x",), 2, "Give a command after `--`, or an address with --url."),
        (("x", "--url", "https://a", "--", "y"), 2, "Give a command after `--`"),
        (("x", "--env", "A", "--", "y"), 2, "--env needs NAME=VALUE"),
        (("x", "--header", "A: b", "--", "y"), 2, "--header needs --url."),
        (("x", "--url", "https://a", "--env", "A=b"), 2, "--env and --cwd cannot be combined with --url."),
        (("files", "--", "y"), 2, "files: A built-in server has this name."),
        (
            ("x", "--url", "ftp://a"),
            2,
            'x: "url" is not an http or https URL. Write one such as https://example.org/mcp.',
        ),
    ],
)
def test_invalid_server_is_not_added(tmp_path: Path, words: tuple[str, ...], code: int, message: str):
    done = run(tmp_path, "servers", "add", *words)

    assert (done.returncode, message in done.stderr) == (code, True)
    assert not (tmp_path / "mcp.json").exists()


def test_file_with_comments_is_not_rewritten(tmp_path: Path):
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"old": {"command": "x"}} /* mine */}')
    file.chmod(0o600)
    before = file.read_text()

    added = run(tmp_path, "servers", "add", "new", "--", "y")
    removed = run(tmp_path, "servers", "remove", "old")

    assert [added.returncode, removed.returncode, file.read_text()] == [1, 1, before]
    assert "has comments or trailing commas, which would be lost" in added.stderr
    assert added.stderr.endswith("Hint: Change it by hand: holdfast servers edit\n")


def test_file_of_a_project_with_comments_is_changed_by_hand(tmp_path: Path):
    project = tmp_path / "project"
    project.mkdir()
    (project / ".mcp.json").write_text('{"mcpServers": {"old": {"command": "x"}} /* mine */}')

    removed = run(tmp_path, "servers", "remove", "old", "--project", cwd=project)

    assert removed.stderr.endswith("Hint: Change it by hand: holdfast servers edit --project\n")


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ('{"mcpServers": {"a": {"command": "x"}}}', 0, "has 1 valid server."),
        ('{"mcpServers": {"a": {"comand": "x"}, "b": {"url": "https://e.org/"}}}', 1, "has 1 valid server."),
        ("{", 1, "has 0 valid servers."),
    ],
    ids=["valid", "typo", "not JSON"],
)
def test_edited_list_is_checked(tmp_path: Path, text: str, code: int, message: str):
    script = tmp_path / "editor"
    script.write_text(f'#!/bin/sh\nprintf %s {shlex.quote(text)} > "$1"\n')
    script.chmod(0o700)
    done = subprocess.run(
        [HOLDFAST, "servers", "edit"],
        check=False,
        capture_output=True,
        text=True,
        env={**environment(tmp_path), "EDITOR": str(script), "VISUAL": str(script)},
    )

    assert (done.returncode, message in done.stdout, bool(done.stderr)) == (code, True, code == 1)
