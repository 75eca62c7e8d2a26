"""`holdfast tools` and `/tools` show which permission rule decides about a tool."""

import json
from pathlib import Path

import pytest

from holdfast.workspaces import Registry
from tests.cli.test_sessions import run

pytestmark = pytest.mark.promise("SES-04")

RULES = """
[permission]
deny = ["files.edit"]
ask = ["files.read"]
allow = ["files.find"]
"""
DECIDED = {
    "files.edit": "refused: deny rule 'files.edit' of the settings",
    "files.find": "allowed: allow rule 'files.find' of the settings",
    "files.list": "allowed: it only reads",
    "files.read": "must ask: ask rule 'files.read' of the settings",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(RULES)
    return tmp_path


def table(home: Path, cwd: Path) -> dict[str, str]:
    """The column `permission` of `holdfast tools`, by tool."""
    rows = [line.split("  ") for line in run(home, "tools", "files", cwd=cwd).stdout.splitlines()[1:]]
    return {row[0]: next(cell.strip() for cell in row[1:] if cell) for row in rows}


def test_the_table_shows_the_rule_for_each_tool(home: Path):
    assert table(home, home) == {**DECIDED, "files.write": "by the mode"}


def test_the_table_shows_what_the_limit_of_a_workspace_refuses_in_every_mode(
    home: Path, tmp_path_factory: pytest.TempPathFactory
):
    folder = tmp_path_factory.mktemp("garden")
    registry = Registry(home / "data" / "workspaces")
    file = registry.file_of(registry.add(folder).slug)
    file.write_text(file.read_text() + "[permission]\nmax_mode = 'read-only'\n")

    assert table(home, folder) == {**DECIDED, "files.write": "refused: mode read-only"}


def test_json_has_the_decision_of_each_mode_and_the_rule(home: Path):
    printed = [json.loads(line) for line in run(home, "tools", "files", "--json").stdout.splitlines()]

    permission = {tool["name"]: tool["permission"] for tool in printed}
    assert permission["files.read"] == {
        **dict.fromkeys(("read-only", "ask", "auto"), "must ask"),
        "rule": {"pattern": "files.read", "of": "the settings"},
    }
    assert permission["files.write"] == {
        "read-only": "refused",
        "ask": "must ask",
        "auto": "allowed",
        "rule": None,
    }


def test_the_command_in_a_chat_shows_the_rule_and_the_mode(home: Path):
    done = run(home, "chat", text="/tools files\n/tools files.read\n")

    for name, decision in {**DECIDED, "files.write": "must ask: mode ask"}.items():
        line = next(line for line in done.stdout.splitlines() if f"- {name} " in line)
        assert f"[{decision}]" in line
    assert f"Permission: {DECIDED['files.read']}\n" in done.stdout


def test_a_server_that_does_not_start_sets_the_exit_code(home: Path):
    entry = {"command": "sh", "args": ["-c", "exit 3"]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"slow": entry}}))
    failed = run(home, "tools", "slow")

    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("slow: ")


def test_one_tool_is_described_with_its_arguments_and_an_example(home: Path):
    described = run(home, "tools", "files.read")
    as_json = [
        json.loads(line)["name"] for line in run(home, "tools", "files.read", "--json").stdout.splitlines()
    ]
    misspelled = run(home, "tools", "files.raed")
    as_models_see_it = run(home, "tools", "files__read")

    assert described.stdout.startswith("files.read")
    assert "- path (string, required" in described.stdout
    assert described.stdout.endswith(
        f'Permission: {DECIDED["files.read"]}\n\nholdfast call files.read \'{{"path": "<string>"}}\'\n'
    )
    assert as_json == ["files.read"]
    assert as_models_see_it.stdout == described.stdout
    assert (misspelled.returncode, misspelled.stderr) == (
        1,
        "Error: There is no tool 'files.raed'. Did you mean 'files.read'?\nHint: To list the server's tools: holdfast tools files\n",
    )
