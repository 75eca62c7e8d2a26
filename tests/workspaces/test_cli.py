import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.workspaces import Registry
from tests.commands import run_holdfast

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


def test_add_registers_a_folder_and_names_its_file(data: Path, project: Path) -> None:
    done = _run(
        data, "add", ".", "--trust", "FULL", "--servers", "git, files", "--tools", "none", cwd=project
    )

    file = data / "workspaces" / "my-project.toml"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"Added 'my-project': {project}, direct.\nTo change more settings, edit {file}\n"
    assert file.read_text().splitlines()[1:] == [
        'name = "My Project"',
        f'path = "{project}"',
        'trust = "direct"',
        'servers = ["files", "git"]',
        'tools = "none"',
    ]


def test_added_workspace_is_sandboxed_by_default(data: Path, project: Path) -> None:
    done = _run(data, "add", str(project), "--name", "Blog", "--json")

    assert json.loads(done.stdout) == {
        "slug": "blog",
        "name": "Blog",
        "path": str(project),
        "trust": "sandboxed",
        "servers": "all",
        "tools": "all",
        "permission": {"deny": [], "ask": [], "max_mode": "auto"},
        "model": None,
        "sandbox": {
            "memory_bytes": 2147483648,
            "processes": 128,
            "file_bytes": 1073741824,
            "descriptors": 768,
        },
        "env": {},
    }


@pytest.mark.slow
def test_folder_that_names_a_workspace_belongs_to_it_only_after_the_user_agreed(
    data: Path, project: Path, tmp_path: Path
) -> None:
    theme = tmp_path / "theme"
    (theme / ".holdfast").mkdir(parents=True)
    (theme / ".git").mkdir()
    (theme / ".holdfast" / "workspace.toml").write_text('workspace = "my-project"\n')
    (theme / "css").mkdir()
    _run(data, "add", str(project))

    announced = _run(data, "show", str(theme / "css"))
    asked = _run(data, "bind", cwd=theme / "css")
    still = _run(data, "show", str(theme / "css"))
    bound = _run(data, "bind", "--yes", cwd=theme / "css")
    shown = json.loads(_run(data, "show", str(theme / "css"), "--json").stdout)
    undone = _run(data, "unbind", str(theme))
    (theme / ".holdfast" / "workspace.toml").unlink()
    after = _run(data, "show", ".", cwd=theme)

    assert [done.returncode for done in (announced, asked, still, bound, undone, after)] == [1, 2, 1, 0, 0, 1]
    assert f"To accept this: holdfast workspaces bind {theme}" in announced.stderr
    assert f"Error: {theme} does not belong to a workspace." in after.stderr
    assert "Add --yes to bind the folder without confirmation." in asked.stderr
    assert (shown["slug"], shown["bound"]) == ("my-project", [str(theme)])


def test_bound_folder_has_the_trust_of_its_workspace(
    registry: Registry, project: Path, tmp_path: Path
) -> None:
    theme = tmp_path / "theme"
    theme.mkdir()
    registry.add(project)
    before = registry.find_overlaps([str(theme)])

    registry.bind(str(theme), "my-project")

    assert before == ()
    assert [overlap.trust for overlap in registry.find_overlaps([str(theme)])] == [Trust.SANDBOXED]


@pytest.mark.parametrize("content", ["{", "[]", '{"bound": {"/x": "../y"}}'])
def test_folders_are_not_found_while_the_stored_bindings_are_damaged(
    registry: Registry, data: Path, project: Path, content: str
) -> None:
    registry.add(project)
    (data / "workspaces" / "bindings.json").write_text(content)

    with pytest.raises(HoldfastError) as raised:
        registry.find("/")

    assert raised.value.code is codes.BAD_WORKSPACE_FILE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "{project}", "--trust", "root"), "Error: 'root' is not a trust level. Use one of: direct, "),
        (("add", "{project}/missing"), "Error: There is no folder '{project}/missing'."),
        (("add", "{data.parent}"), "Error: '{data.parent}' overlaps with Holdfast's data folder"),
        (("show", "blog"), "Error: There is no workspace 'blog'."),
        (("remove", "blog", "--yes"), "Error: There is no workspace 'blog'."),
        (("remove", "../keys", "--yes"), "Error: '../keys' is not a workspace slug"),
    ],
)
def test_error_has_one_sentence_and_a_hint(
    data: Path, project: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = _run(data, *(argument.format(project=project, data=data) for argument in arguments))

    error, hint = done.stderr.splitlines()
    expected = message.format(project=project, data=data)
    assert (done.returncode, done.stdout, error[: len(expected)]) == (1, "", expected)
    assert hint.startswith("Hint: ")
    assert not (data / "workspaces").exists()


def test_list_shows_valid_workspaces_and_problems(data: Path, project: Path) -> None:
    empty = _run(data, "list")
    _run(data, "add", str(project))
    for name in ("old", "old-2"):
        (data / "workspaces" / f"{name}.toml").write_text(f"path = '/gone/{name}'\n")
    (data / "workspaces" / "bad.toml").write_text("path = '/x'\ntrust = '\\u001b[31m'\n")

    done, listed = (
        _run(data, "list"),
        [json.loads(line) for line in _run(data, "list", "--json").stdout.splitlines()],
    )

    assert empty.stdout == "There are no workspaces yet. Register a folder: holdfast workspaces add PATH\n"
    assert [line.split(maxsplit=4) for line in done.stdout.splitlines()] == [
        ["workspace", "trust", "servers", "tools", "folder"],
        ["my-project", "sandboxed", "all", "all", str(project)],
        ["old", "sandboxed", "all", "all", "/gone/old (missing)"],
        ["old-2", "sandboxed", "all", "all", "/gone/old-2 (missing)"],
    ]
    assert done.stderr.startswith(f"Problem: {data / 'workspaces' / 'bad.toml'}: trust: ")
    assert "\x1b" not in done.stderr
    assert [line["slug"] for line in listed if "slug" in line] == ["my-project", "old", "old-2"]
    assert [Path(line["file"]).name for line in listed if "problem" in line] == ["bad.toml"]


@pytest.mark.slow
def test_show_accepts_name_slug_or_path_and_never_prints_a_secret(data: Path, project: Path) -> None:
    (project / "deep").mkdir()
    _run(data, "add", str(project))
    with (data / "workspaces" / "my-project.toml").open("a") as file:
        file.write("[permission]\ndeny = ['git.push', '*.delete*']\n")
        file.write("[env.git]\nGITHUB_TOKEN = 'hunter2-hunter2'\n")

    shown = [
        _run(data, "show", address, cwd=project / "deep").stdout
        for address in ("my-project", "My Project", ".", "..", str(project), "../deep")
    ]
    as_json = _run(data, "show", "my-project", "--json").stdout

    assert len(set(shown)) == 1
    assert "env.git               GITHUB_TOKEN" in shown[0]
    assert "permission.deny       git.push, *.delete*" in shown[0]
    assert "permission.ask        none" in shown[0]
    assert json.loads(as_json)["permission"]["deny"] == ["git.push", "*.delete*"]
    assert json.loads(as_json)["env"] == {"git": ["GITHUB_TOKEN"]}
    assert "hunter2" not in shown[0] + as_json


def test_remove_asks_first_and_keeps_the_folder(data: Path, project: Path) -> None:
    (project / "work.txt").touch()
    _run(data, "add", str(project))

    without_terminal = _run(data, "remove", "my-project")
    said_no, said_yes = (_run_on_a_terminal(data, answer, "remove", "my-project") for answer in "ny")

    assert "Cannot ask for confirmation without a terminal. Add --yes" in without_terminal.stderr
    assert (without_terminal.returncode, said_no, said_yes) == (2, 1, 0)
    assert list((data / "workspaces").glob("*.toml")) == []
    assert (project / "work.txt").exists()


def test_remove_with_yes_removes_an_invalid_workspace_without_asking(data: Path) -> None:
    (data / "workspaces").mkdir(parents=True)
    (data / "workspaces" / "bad.toml").write_text("[")

    removed = _run(data, "remove", "bad", "--yes").stdout

    assert removed.startswith("Removed 'bad'. Its folder was not changed. Its tasks reappear ")


def _run(data: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_holdfast("workspaces", *arguments, env=_environ(data), cwd=cwd)


def _run_on_a_terminal(data: Path, answer: str, *arguments: str) -> int:
    ours, theirs = pty.openpty()
    printed = b""
    try:
        with subprocess.Popen(
            [HOLDFAST, "workspaces", *arguments],
            env=_environ(data),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            assert process.stdout is not None
            while b"[y/N]" not in printed and (piece := os.read(process.stdout.fileno(), 65536)):
                printed += piece
            os.write(ours, f"{answer}\n".encode())  # what is typed before the question does not count
            process.communicate(timeout=30)
    finally:
        os.close(ours)
        os.close(theirs)
    return process.returncode


def _environ(data: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**clean, "HOLDFAST_DATA_DIR": str(data), "XDG_CONFIG_HOME": str(data.parent / "config")}
