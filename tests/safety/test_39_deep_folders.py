"""Attack 39: folders that lie so deep in each other that a program which walks or removes them ends with an error."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from holdfast.builtin.stage.browser_folder import BrowserFolder
from holdfast.host.package_record import is_too_large, make_empty_folder
from holdfast.model.folder_tree import MAX_DEPTH, remove_tree, walk_folders
from holdfast.resolve.read_program import read_program

DEPTH = 1100  # more than Python's limit of recursion


def make_deep(folder: Path, depth: int = DEPTH) -> Path:
    """Make a folder that contains a file, and this many nested folders, with a file in the innermost one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "file").touch()
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=inner)
        outer, inner = inner, os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(os.open("last", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
    os.close(inner)
    return folder


@pytest.mark.promise("STG-14")
def test_browser_that_leaves_deep_folders_does_not_keep_the_next_one_from_starting(tmp_path: Path) -> None:
    base = tmp_path / "base"
    first = BrowserFolder(base)
    make_deep(first.path / "downloads")

    first.remove()
    second = BrowserFolder(base)

    assert (first.path.exists(), second.path.exists()) == (False, True)
    second.remove()


@pytest.mark.promise("BOX-08")
def test_fetched_package_with_deep_folders_is_refused_and_removed(tmp_path: Path) -> None:
    package = make_deep(tmp_path / "package")

    refused = is_too_large(package)
    make_empty_folder(tmp_path, package)

    assert (refused, [*package.iterdir()]) == (True, [])


@pytest.mark.promise("RES-07")
def test_program_with_sources_in_deep_folders_has_a_problem(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module x\n")
    (tmp_path / "main.go").write_text("package main\nfunc main() {}\n")
    control = read_program(["go", "run", "."], str(tmp_path))
    make_deep(tmp_path / "deep", 300)

    problem = read_program(["go", "run", "."], str(tmp_path)).problem

    assert (control.problem, problem) == ("", f"{tmp_path}: its folders are nested too deeply")


def test_links_are_neither_followed_nor_left(tmp_path: Path) -> None:
    (tmp_path / "outside" / "kept").mkdir(parents=True)
    tree = make_deep(tmp_path / "tree", 3)
    (tree / "d" / "link").symlink_to(tmp_path / "outside")
    (tree / "d" / "broken").symlink_to("nowhere")

    found = [
        (os.path.relpath(path, tree), folders, sorted(files)) for path, folders, files in walk_folders(tree)
    ]
    remove_tree(tree)
    remove_tree(tree)

    assert found[:2] == [(".", ["d"], ["file"]), ("d", ["d"], ["broken"])]
    assert ((tmp_path / "outside" / "kept").exists(), tree.exists()) == (True, False)


def test_walk_reaches_the_deepest_folder_that_is_allowed(tmp_path: Path) -> None:
    tree = make_deep(tmp_path / "tree", MAX_DEPTH)

    assert [files for _, _, files in walk_folders(tree)][-1] == ["last"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="newer versions of Python walk without recursion")
def test_control_the_functions_of_python_end_with_an_error(tmp_path: Path) -> None:
    tree = make_deep(tmp_path / "tree")

    with pytest.raises(RecursionError):
        list(os.walk(tree))
    with pytest.raises(RecursionError):
        shutil.rmtree(tree)
    remove_tree(tree)
