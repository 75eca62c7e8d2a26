import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.allowlist import ALLOW_NONE, Allowlist
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.model.workspace import Workspace
from holdfast.workspaces import Registry


def test_folder_is_registered_under_its_own_name(registry: Registry, project: Path) -> None:
    added = registry.add(project)

    assert added == Workspace(slug="my-project", name="My Project", path=str(project))
    assert (registry.list(), registry.get("my-project"), registry.invalid) == ((added,), added, ())


def test_add_stores_all_its_arguments(registry: Registry, project: Path, data: Path) -> None:
    git = Allowlist(frozenset({"git"}))

    registry.add(project, "Blog", trust=Trust.DIRECT, servers=git, tools=ALLOW_NONE, model="m")

    again = Registry(data / "workspaces")
    expected = Workspace(
        slug="blog",
        name="Blog",
        path=str(project),
        trust=Trust.DIRECT,
        servers=git,
        tools=ALLOW_NONE,
        model="m",
    )
    assert again.list() == (expected,)


def test_file_is_private_to_its_owner_and_no_temporary_file_is_left(
    registry: Registry, project: Path, data: Path
) -> None:
    before = os.umask(0)
    try:
        registry.add(project)
    finally:
        os.umask(before)

    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (data / "workspaces").iterdir()}
    assert modes == dict.fromkeys(("my-project.toml", ".lock", "bindings.json"), "0o600")
    assert oct((data / "workspaces").stat().st_mode & 0o777) == "0o700"


@pytest.mark.promise("RES-10")
def test_name_collision_is_numbered_from_2(registry: Registry, tmp_path: Path) -> None:
    folders = [tmp_path / parent / "blog" for parent in "abc"]
    for folder in folders:
        folder.mkdir(parents=True)

    assert [registry.add(folder).slug for folder in folders] == ["blog", "blog-2", "blog-3"]


@pytest.mark.promise("RES-10")
@pytest.mark.parametrize(
    "slug",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc/passwd",
        "a\\b",
        "a\0b",
        "A",
        "a_b",
        "-a",
        "a-",
        "é",
        "a\n",
        "a.toml",
        "x" * 65,
        "%2e%2e",
    ],
)
def test_invalid_slug_is_refused_without_touching_the_disk(slug: str, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "nowhere" / "workspaces")

    for method in (registry.get, registry.remove, registry.file_of):
        with pytest.raises(HoldfastError) as caught:
            method(slug)
        assert caught.value.code == codes.BAD_WORKSPACE
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "  ", "a/b", "a\\b", "a\nb", "\x1b[31mred", "x" * 201])
def test_invalid_name_is_refused(registry: Registry, project: Path, name: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        registry.add(project, name)

    assert caught.value.code == codes.BAD_WORKSPACE
    assert registry.list() == ()


ADD = """
import sys, pathlib
from holdfast.model.errors import HoldfastError
from holdfast.workspaces import Registry
registry = Registry(pathlib.Path(sys.argv[1]))
print("ready", flush=True); sys.stdin.readline()
for folder in sys.argv[2:]:
    try: print(registry.add(pathlib.Path(folder)).slug)
    except HoldfastError as error: print(error.code.name)
"""


@pytest.mark.slow
@pytest.mark.promise("RES-10")
def test_concurrent_processes_never_overwrite_each_other(data: Path, tmp_path: Path) -> None:
    folders = [[tmp_path / f"{process}-{number}" / "blog" for number in range(10)] for process in range(6)]
    for folder in (folder for some in folders for folder in some):
        folder.mkdir(parents=True)

    printed = _run_concurrently([[str(data / "workspaces"), *map(str, some)] for some in folders])

    registered = Registry(data / "workspaces").list()
    assert sorted(printed) == sorted(workspace.slug for workspace in registered)
    assert sorted(printed) == sorted(["blog", *(f"blog-{number}" for number in range(2, 61))])
    assert len({workspace.path for workspace in registered}) == 60


def test_only_one_of_several_processes_can_add_a_folder(data: Path, project: Path) -> None:
    printed = _run_concurrently([[str(data / "workspaces"), str(project)]] * 6)

    assert sorted(printed) == ["WORKSPACE_EXISTS"] * 5 + ["my-project"]


def test_folder_cannot_be_registered_again_through_a_symlink(
    registry: Registry, project: Path, tmp_path: Path
) -> None:
    registry.add(project)
    (tmp_path / "link").symlink_to(project)

    with pytest.raises(HoldfastError, match="is already registered as 'my-project'") as caught:
        registry.add(tmp_path / "link")

    assert caught.value.code == codes.WORKSPACE_EXISTS


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("relative", "is not an absolute path"),
        ("{project}/missing", "There is no folder"),
        ("{project}/loop", "cannot be opened: Too many levels of symbolic links"),
        ("{project}/caf\udce9", "is not UTF-8. Rename the folder"),
        ("{project}/file", "is a file. A workspace must be a folder"),
    ],
)
def test_only_an_existing_folder_can_be_registered(
    registry: Registry, project: Path, path: str, message: str
) -> None:
    (project / "file").touch()
    (project / "loop").symlink_to(project / "loop")
    (project / "caf\udce9").mkdir()

    with pytest.raises(HoldfastError, match=message) as caught:
        registry.add(Path(path.format(project=project)))

    assert caught.value.code == codes.BAD_FOLDER


def test_folder_that_overlaps_with_the_data_folder_cannot_be_registered(
    registry: Registry, project: Path, data: Path, tmp_path: Path
) -> None:
    """Otherwise a confined server could grant itself more rights by editing the registry."""
    registry.add(project)
    (data / "keys").mkdir()
    (tmp_path / "link").symlink_to(data)

    for folder in (tmp_path, data, data / "keys", data / "workspaces", Path("/"), tmp_path / "link"):
        with pytest.raises(HoldfastError, match="overlaps with Holdfast's data folder"):
            registry.add(folder)


def test_file_edited_to_name_the_data_folder_is_invalid(
    registry: Registry, project: Path, tmp_path: Path
) -> None:
    registry.add(project)
    registry.file_of("my-project").write_text(f"path = '{tmp_path}'")

    assert (registry.list(), len(registry.invalid)) == ((), 1)


def test_remove_does_not_touch_the_folder(registry: Registry, project: Path) -> None:
    (project / "work.txt").write_text("work")
    registry.add(project)

    registry.remove("my-project")

    assert (registry.list(), (project / "work.txt").read_text()) == ((), "work")
    for method in (registry.remove, registry.get):
        with pytest.raises(HoldfastError, match="There is no workspace 'my-project'") as caught:
            method("my-project")
        assert caught.value.code == codes.UNKNOWN_WORKSPACE


def test_invalid_file_is_reported_and_does_not_hide_others(
    registry: Registry, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "blog").mkdir()
    good = registry.add(project)
    registry.add(tmp_path / "blog")
    broken = registry.file_of("blog")
    broken.write_text("trust = 'direct'\npath = [")
    (broken.parent / "Not a slug.toml").write_text("path = '/x'")

    assert registry.list() == (good,)
    assert [problem.file.name for problem in registry.invalid] == ["Not a slug.toml", "blog.toml"]
    with pytest.raises(HoldfastError, match=r"blog\.toml: not valid TOML") as caught:
        registry.get("blog")
    assert caught.value.code == codes.BAD_WORKSPACE_FILE
    registry.remove("blog")
    assert len(registry.invalid) == 1


@pytest.mark.parametrize(
    "defect", ["writable by others", "a link", "a folder", "a pipe", "too long", "not utf-8"]
)
def test_unsafe_or_unreadable_file_is_invalid(
    registry: Registry, project: Path, tmp_path: Path, defect: str
) -> None:
    registry.add(project)
    file = registry.file_of("my-project")
    text = file.read_text()
    match defect:
        case "writable by others":
            file.chmod(0o622)
        case "a link":
            (tmp_path / "elsewhere").write_text(text)
            file.unlink()
            file.symlink_to(tmp_path / "elsewhere")
        case "a folder":
            file.unlink()
            file.mkdir()
        case "a pipe":
            file.unlink()
            os.mkfifo(file)
        case "too long":
            file.write_text(text + "#" * 65536)
        case _:
            file.write_bytes(b"\xff" + text.encode())

    assert (registry.list(), [problem.file for problem in registry.invalid]) == ((), [file])


def test_edited_file_takes_effect_at_once(registry: Registry, project: Path) -> None:
    registry.add(project)
    file = registry.file_of("my-project")

    file.write_text(file.read_text().replace("sandboxed", "direct"))

    assert registry.get("my-project").trust is Trust.DIRECT
    file.write_text("")
    assert registry.list() == ()


def test_bindings_that_others_can_change_are_refused_until_the_advice_is_followed(
    registry: Registry, project: Path, data: Path, tmp_path: Path
) -> None:
    workspace = registry.add(project)
    (tmp_path / "other").mkdir()
    registry.bind(str(tmp_path / "other"), workspace.slug)
    file = data / "workspaces" / "bindings.json"
    file.chmod(0o666)

    with pytest.raises(HoldfastError, match="other users can change it") as caught:
        registry.bound_folders(workspace.slug)
    advice, _, command = caught.value.hint.partition("run: ")
    assert advice == "Check its content, then "
    subprocess.run(shlex.split(command), check=True)

    assert registry.bound_folders(workspace.slug) == (str(tmp_path / "other"),)


def test_reading_a_missing_registry_does_not_create_it(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "data" / "workspaces")

    assert (registry.list(), registry.invalid, registry.find("x"), registry.find("/x")) == (
        (),
        (),
        None,
        None,
    )
    assert list(tmp_path.iterdir()) == []


def test_unreadable_registry_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "workspaces").write_text("a file where the folder should be")

    with pytest.raises(HoldfastError, match="cannot be read: Not a directory"):
        Registry(tmp_path / "workspaces").find("/x")


CHURN = """
import sys, pathlib
from holdfast.workspaces import Registry
registry = Registry(pathlib.Path(sys.argv[1]))
print("ready", flush=True)
while True:
    registry.remove(registry.add(pathlib.Path(sys.argv[2])).slug)
"""


def test_concurrent_changes_never_hide_a_workspace(
    registry: Registry, project: Path, tmp_path: Path, data: Path
) -> None:
    (tmp_path / "other").mkdir()
    added = registry.add(project)
    command = [sys.executable, "-c", CHURN, str(data / "workspaces"), str(tmp_path / "other")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as churn:
        try:
            assert churn.stdout
            churn.stdout.readline()
            found = {registry.find(str(project)) for _ in range(1000)}
        finally:
            churn.kill()

    assert found == {added}


def _run_concurrently(calls: list[list[str]]) -> list[str]:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ADD, *call], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for call in calls
    ]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    return [line for process in processes for line in process.communicate(timeout=30)[0].split()]
