"""`holdfast agents`."""

import json
from pathlib import Path

import pytest

from tests.cli.test_servers import Environment, env
from tests.commands import run_holdfast

__all__ = ["env"]

TEXT = "---\ndescription: Reviews\nmode: read-only\n---\nReview the code.\n"


@pytest.fixture
def definition(env: Environment) -> Path:
    file = env.project / ".holdfast" / "agents" / "reviewer.md"
    file.parent.mkdir(parents=True)
    file.write_text(TEXT)
    return file


@pytest.mark.slow
@pytest.mark.promise("AGT-13")
def test_a_project_s_agent_is_shown_approved_and_asked_for_again_when_it_changed(
    env: Environment, definition: Path
):
    before = env.run("agents", "list").stdout
    shown = env.run("agents", "show", "reviewer").stdout
    refused = env.run("agents", "approve", "reviewer", stdin="n\n")
    unasked = env.run("agents", "approve", "reviewer", stdin="")
    approved = env.run("agents", "approve", "reviewer", "--yes")
    after = json.loads(env.run("agents", "list", "--json").stdout)
    definition.write_text(f"{TEXT}Then push it.\n")
    changed = env.run("chat", "--agent", "reviewer", stdin="/help\n")

    assert [line.split() for line in before.splitlines()] == [
        ["agent", "from", "description"],
        ["reviewer", "project", "not", "approved"],
    ]
    assert (shown.splitlines()[0].endswith(": not approved"), "  Review the code." in shown) == (True, True)
    assert (refused.returncode, unasked.returncode, "Add --yes" in unasked.stderr) == (1, 2, True)
    assert approved.stdout.endswith("Approved. Start it with: holdfast chat --agent reviewer\n")
    assert after == {
        "name": "reviewer",
        "description": "Reviews",
        "source": "project",
        "file": str(definition),
        "approved": True,
        "problem": "",
    }
    assert (changed.returncode, "holdfast agents approve reviewer" in changed.stderr) == (1, True)
    assert "holdfast servers" not in changed.stderr


def test_the_command_after_an_approval_for_another_folder_names_this_folder(
    env: Environment, definition: Path
):
    project = str(env.project.resolve())

    approved = run_holdfast(
        "agents", "approve", "reviewer", "--yes", "--cwd", project, cwd=env.project.parent, env=env.environ
    )

    assert approved.stdout.endswith(f"holdfast chat --agent reviewer --cwd {project}\n")


def test_an_approved_agent_that_cannot_be_used_is_named_as_such(env: Environment, definition: Path):
    definition.write_text(TEXT.replace("mode: read-only", "colour: red"))
    broken = env.run("agents", "approve", "reviewer", "--yes").stdout
    definition.write_text(TEXT.replace("mode: read-only", "model: bogus:one"))
    without_model = env.run("agents", "approve", "reviewer", "--yes").stdout

    assert "Approved, but it cannot be used: " in broken
    assert "colour" in broken
    assert "Approved, but it cannot be used: it asks for the model 'bogus:one', which is not" in without_model


def test_a_tool_that_is_named_as_models_see_it_is_an_error_that_says_what_to_write(
    env: Environment, definition: Path
):
    """Without the error, the agent would have no tools: no pattern would match one."""
    definition.write_text(TEXT.replace("mode: read-only", "tools: [files__read]"))

    approved = env.run("agents", "approve", "reviewer", "--yes").stdout

    assert "Approved, but it cannot be used: its tools must be" in approved
    assert "write 'files.read'" in approved


def test_an_unknown_agent_is_an_error(env: Environment):
    shown = env.run("agents", "show", "unknown")

    assert (shown.returncode, "There is no agent 'unknown'" in shown.stderr) == (1, True)
    assert env.run("agents", "list").stdout.startswith("No agents are defined.")


@pytest.mark.parametrize("name", ["stage", "shell", "team"])
def test_no_server_can_be_added_with_the_name_of_a_built_in_one(env: Environment, name: str):
    added = env.run("servers", "add", name, "--", "true")

    assert (added.returncode != 0, env.user_file.exists()) == (True, False)
