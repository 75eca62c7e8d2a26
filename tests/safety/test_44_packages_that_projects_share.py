"""Attack 44: a confined server changes a package in its root that is a hard link to the store of uv, pnpm or bun.

The same file is in other projects, and perhaps in the environment that Holdfast runs in.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import TIMEOUT, confined, python, read_line, run, started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

UV = ".venv/lib/python3.11/site-packages/click/core.py"
PNPM = "node_modules/.pnpm/chalk@5/node_modules/chalk/index.js"
BUN = "node_modules/chalk/index.js"


def install(root: Path, file: str) -> Path:
    """Put a package's file into a root, as a hard link to a store next to the root. Returns the file in the store."""
    stored = root.parent / "store" / Path(file).name
    stored.parent.mkdir(exist_ok=True)
    stored.write_text("clean\n")
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    os.link(stored, root / file)
    return stored


def nothing(root: Path) -> None:
    """The control."""


def leave_many_folders(root: Path) -> None:
    for number in range(210):
        (root / f".venv/decoys/{number}").mkdir(parents=True)


def leave_other_files(root: Path) -> None:
    """Files without a second name, in the folder that the package will be in."""
    (root / UV).parent.mkdir(parents=True)
    for number in range(50):
        (root / UV).with_name(f"{number}.py").write_text("")


def leave_a_link(root: Path) -> None:
    (root / ".cache").mkdir()
    (root / ".venv").symlink_to(".cache")


def leave_a_link_inside(root: Path) -> None:
    (root / ".cache").mkdir()
    (root / ".venv").mkdir()
    (root / ".venv/lib").symlink_to("../.cache")


def leave_links_to_links(root: Path) -> None:
    (root / ".venv").mkdir()
    (root / "one/two").mkdir(parents=True)
    (root / ".venv/lib").symlink_to(root / "one")
    (root / "one/python3.11").symlink_to("two")


def leave_a_link_to_other_packages(root: Path) -> None:
    (root / ".cache/node_modules").mkdir(parents=True)
    (root / ".venv").mkdir()
    (root / ".venv/lib").symlink_to("../.cache/node_modules")


def leave_too_much(root: Path) -> None:
    (root / ".venv").mkdir()
    for number in range(30):
        (root / f".venv/{number}").symlink_to(f"../..{'/.' * 1900}")


def leave_a_deep_folder(root: Path) -> None:
    """A folder whose path is too long to be opened."""
    (root / ".venv").mkdir()
    folder = os.open(root / ".venv", os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=folder)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)


TRAPS = (
    *(
        nothing,
        leave_many_folders,
        leave_other_files,
        leave_a_link,
        leave_a_link_inside,
        leave_links_to_links,
    ),
    *(leave_too_much, leave_a_deep_folder),
)
SERVER = "print('ready', flush=True)\nfor line in iter(input, 'end'): print(line, flush=True)"


def append(file: str) -> ProcessSpec:
    code = "import sys\ntry: open(sys.argv[1], 'a').write('evil\\n'); print('changed')\nexcept OSError as error: print(error.strerror)"
    return python(code, file)


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize("protect", [True, False], ids=["attack", "control"])
@pytest.mark.parametrize("file", [UV, PNPM, BUN])
async def test_packages_of_other_projects_are_not_changed_through_hard_links(
    keeper: Keeper, root: Path, file: str, *, protect: bool
) -> None:
    stored = install(root, file)
    granted = () if protect else (file.partition("/")[0],)

    completed = await run(keeper, confined(append(file), root, writable=granted))

    assert (completed.out, stored.read_text()) == (
        ("Read-only file system\n", "clean\n") if protect else ("changed\n", "clean\nevil\n")
    )


@pytest.mark.promise("BOX-02")
async def test_package_behind_thousands_of_others_is_found(keeper: Keeper, root: Path) -> None:
    for number in range(3000):
        (root / f"node_modules/.pnpm/p{number}").mkdir(parents=True)
    for number in range(0, 3000, 20):
        (root / f"node_modules/.pnpm/p{number}/index.js").write_text("")
        os.link(root / f"node_modules/.pnpm/p{number}/index.js", root.parent / f"p{number}")

    completed = await run(keeper, confined(append("node_modules/new.js"), root))

    assert completed.out == "Read-only file system\n"


async def test_packages_that_are_developed_in_the_root_can_be_changed(keeper: Keeper, root: Path) -> None:
    install(root, BUN)
    install(root, "packages/own/node_modules/other/index.js")
    (root / "node_modules/own").symlink_to("../packages/own")
    (root / "packages/own/index.js").write_text("own\n")

    outputs = [
        (await run(keeper, confined(append(file), root))).out for file in (BUN, "packages/own/index.js")
    ]

    assert outputs == ["Read-only file system\n", "changed\n"]


async def test_packages_without_hard_links_can_be_changed(keeper: Keeper, root: Path) -> None:
    (root / "node_modules" / "chalk").mkdir(parents=True)
    (root / BUN).write_text("own\n")
    (root / "env").write_text("a file\n")
    (root / ".venv").symlink_to("node_modules")
    os.link(root / "env", root.parent / "env")

    completed = await run(keeper, confined(append(BUN), root))

    assert completed.out == "changed\n"


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize("trap", TRAPS)
async def test_packages_that_are_installed_between_two_starts_are_read_only(
    keeper: Keeper, root: Path, trap: Callable[[Path], None]
) -> None:
    """A confined server left something in the folder that hides the packages from a short search."""
    trap(root)
    too_much = trap in (leave_too_much, leave_a_deep_folder)

    before = (await run(keeper, confined(append("new"), root))).out
    stored = install(root, UV)
    completed = await run(keeper, confined(append(UV), root))

    assert before == ("Read-only file system\n" if trap is leave_a_link else "changed\n")
    assert (completed.out, stored.read_text()) == ("Read-only file system\n", "clean\n")
    stored.unlink()  # the control: the packages have no second name any more
    completed = await run(keeper, confined(append(UV), root))
    assert completed.out == ("Read-only file system\n" if too_much or trap is leave_a_link else "changed\n")


@pytest.mark.promise("BOX-02")
async def test_packages_are_found_in_another_root_of_the_server(keeper: Keeper, root: Path) -> None:
    other = root.parent / "other"
    (other / ".cache").mkdir(parents=True)
    (root / ".venv").mkdir()
    (root / ".venv/lib").symlink_to(other / ".cache")
    roots = (str(root), str(other))
    before = (await run(keeper, confined(append("new"), root, roots=roots))).out
    stored = install(root, UV)

    alone = (await run(keeper, confined(append("new"), root))).out
    completed = [
        (await run(keeper, confined(append(file), root, roots=roots))).out
        for file in ("new", f"{other}/.cache/python3.11/site-packages/click/core.py")
    ]

    assert (before, alone, completed) == ("changed\n", "changed\n", ["Read-only file system\n"] * 2)
    assert stored.read_text() == "clean\n"


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize("trap", [nothing, leave_a_link_inside])
async def test_server_ends_when_packages_are_installed_while_it_runs(
    keeper: Keeper, root: Path, trap: Callable[[Path], None]
) -> None:
    trap(root)
    spec = python(SERVER)
    async with (
        started(keeper, confined(spec, root)) as child,
        started(keeper, confined(spec, root, writable=(".venv",))) as with_a_grant,
    ):
        assert [await read_line(child), await read_line(with_a_grant)] == ["ready", "ready"]
        install(root, UV)
        async with asyncio.timeout(TIMEOUT):
            await child.wait()
        # The control: the grant says that the server may change the store, too.
        with_a_grant.stdin.write(b"still here\n")
        assert await read_line(with_a_grant) == "still here"
