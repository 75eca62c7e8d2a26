import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.choice import NONE, Choice
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.model.workspace import Workspace
from holdfast.workspaces import Registry


def test_a_folder_is_registered_under_its_own_name(registry: Registry, project: Path) -> None:
    added = registry.add(project)

    assert added == Workspace(slug="my-project", name="My Project", path=str(project))
    assert (registry.list(), registry.get("my-project"), registry.problems) == ((added,), added, ())


def test_all_that_is_given_is_kept(registry: Registry, project: Path, data: Path) -> None:
    git = Choice(frozenset({"git"}))

    registry.add(project, "Blog", trust=Trust.DIRECT, servers=git, tools=NONE, model="m")

    again = Registry(data / "workspaces")
    expected = Workspace(
        slug="blog", name="Blog", path=str(project), trust=Trust.DIRECT, servers=git, tools=NONE, model="m"
    )
    assert again.list() == (expected,)


def test_its_file_is_its_owners_alone_and_nothing_else_is_left(
    registry: Registry, project: Path, data: Path
) -> None:
    before = os.umask(0)
    try:
        registry.add(project)
    finally:
        os.umask(before)

    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (data / "workspaces").iterdir()}
    assert modes == {"my-project.toml": "0o600", ".lock": "0o600"}
    assert oct((data / "workspaces").stat().st_mode & 0o777) == "0o700"


@pytest.mark.promise("RES-10")
def test_a_name_collision_is_numbered_from_2(registry: Registry, tmp_path: Path) -> None:
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
def test_a_bad_slug_is_refused_before_the_disk_is_touched(slug: str, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "nowhere" / "workspaces")

    for ask in (registry.get, registry.remove, registry.file_of):
        with pytest.raises(HoldfastError) as caught:
            ask(slug)
        assert caught.value.code == codes.BAD_WORKSPACE
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "  ", "a/b", "a\\b", "a\nb", "\x1b[31mred", "x" * 201, "日本"])
def test_a_bad_name_is_refused(registry: Registry, project: Path, name: str) -> None:
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


@pytest.mark.promise("RES-10")
def test_processes_that_add_at_once_never_overwrite_each_other(data: Path, tmp_path: Path) -> None:
    folders = [[tmp_path / f"{process}-{number}" / "blog" for number in range(10)] for process in range(6)]
    for folder in (folder for some in folders for folder in some):
        folder.mkdir(parents=True)

    told = _at_once([[str(data / "workspaces"), *map(str, some)] for some in folders])

    registered = Registry(data / "workspaces").list()
    assert sorted(told) == sorted(workspace.slug for workspace in registered)
    assert sorted(told) == sorted(["blog", *(f"blog-{number}" for number in range(2, 61))])
    assert len({workspace.path for workspace in registered}) == 60


def test_of_processes_that_add_one_folder_at_once_one_does(data: Path, project: Path) -> None:
    told = _at_once([[str(data / "workspaces"), str(project)]] * 6)

    assert sorted(told) == ["WORKSPACE_EXISTS"] * 5 + ["my-project"]


def test_a_folder_is_registered_once_whatever_link_leads_there(
    registry: Registry, project: Path, tmp_path: Path
) -> None:
    registry.add(project)
    (tmp_path / "link").symlink_to(project)

    with pytest.raises(HoldfastError, match="is registered already, as 'my-project'") as caught:
        registry.add(tmp_path / "link")

    assert caught.value.code == codes.WORKSPACE_EXISTS


def test_only_a_folder_that_is_there_can_be_registered(registry: Registry, project: Path) -> None:
    (project / "file").touch()
    (project / "loop").symlink_to(project / "loop")

    for path, message in (
        (Path("relative"), "is not an absolute path"),
        (project / "missing", "There is no folder"),
        (project / "loop", "There is no folder"),
        (project / "file", "is a file; a workspace is a folder"),
    ):
        with pytest.raises(HoldfastError, match=message) as caught:
            registry.add(path)
        assert caught.value.code == codes.BAD_FOLDER


def test_a_folder_that_holds_our_own_data_is_no_workspace(
    registry: Registry, project: Path, data: Path, tmp_path: Path
) -> None:
    """Otherwise a confined server could write itself more rights into the registry."""
    registry.add(project)
    (data / "keys").mkdir()
    (tmp_path / "link").symlink_to(data)

    for folder in (tmp_path, data, data / "keys", data / "workspaces", Path("/"), tmp_path / "link"):
        with pytest.raises(HoldfastError, match="overlaps with Holdfast's own data"):
            registry.add(folder)


def test_a_file_that_names_such_a_folder_by_hand_is_a_problem(
    registry: Registry, project: Path, tmp_path: Path
) -> None:
    registry.add(project)
    registry.file_of("my-project").write_text(f"path = '{tmp_path}'")

    assert (registry.list(), len(registry.problems)) == ((), 1)


def test_removing_leaves_the_folder_as_it_is(registry: Registry, project: Path) -> None:
    (project / "work.txt").write_text("work")
    registry.add(project)

    registry.remove("my-project")

    assert (registry.list(), (project / "work.txt").read_text()) == ((), "work")
    for ask in (registry.remove, registry.get):
        with pytest.raises(HoldfastError, match="There is no workspace 'my-project'") as caught:
            ask("my-project")
        assert caught.value.code == codes.UNKNOWN_WORKSPACE


def test_a_broken_file_is_reported_by_name_and_hides_no_other(
    registry: Registry, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "blog").mkdir()
    good = registry.add(project)
    registry.add(tmp_path / "blog")
    broken = registry.file_of("blog")
    broken.write_text("trust = 'direct'\npath = [")
    (broken.parent / "Not a slug.toml").write_text("path = '/x'")

    assert registry.list() == (good,)
    assert [problem.file.name for problem in registry.problems] == ["Not a slug.toml", "blog.toml"]
    with pytest.raises(HoldfastError, match=r"blog\.toml: not valid TOML") as caught:
        registry.get("blog")
    assert caught.value.code == codes.BAD_WORKSPACE_FILE
    registry.remove("blog")
    assert len(registry.problems) == 1


@pytest.mark.parametrize(
    "trouble", ["writable by others", "a link", "a folder", "a pipe", "too long", "not utf-8"]
)
def test_a_file_that_cannot_be_relied_on_is_a_problem(
    registry: Registry, project: Path, tmp_path: Path, trouble: str
) -> None:
    registry.add(project)
    file = registry.file_of("my-project")
    text = file.read_text()
    match trouble:
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

    assert (registry.list(), [problem.file for problem in registry.problems]) == ((), [file])


def test_a_change_by_hand_is_seen_at_once(registry: Registry, project: Path) -> None:
    registry.add(project)
    file = registry.file_of("my-project")

    file.write_text(file.read_text().replace("sandboxed", "direct"))

    assert registry.get("my-project").trust is Trust.DIRECT
    file.write_text("")
    assert registry.list() == ()


def test_a_registry_that_does_not_exist_is_empty_and_stays_so(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "data" / "workspaces")

    assert (registry.list(), registry.problems, registry.find("x"), registry.find("/x")) == (
        (),
        (),
        None,
        None,
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_an_empty_registry(tmp_path: Path) -> None:
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


def test_others_that_come_and_go_never_hide_a_workspace(
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


def _at_once(calls: list[list[str]]) -> list[str]:
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
