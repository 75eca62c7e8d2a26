"""Attack 44: a confined server changes a package in its root that is a hard link to the store of uv, pnpm or bun.

The same file is in other projects, and perhaps in the environment that Holdfast runs in.
"""

import os
from pathlib import Path

import pytest

from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import confined, python, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

UV = ".venv/lib/python3.11/site-packages/click/core.py"
PNPM = "node_modules/.pnpm/chalk@5/node_modules/chalk/index.js"
BUN = "node_modules/chalk/index.js"


def install(root: Path, file: str) -> Path:
    """Put a package's file into a root, as a hard link to a store next to the root. Returns the file in the store."""
    stored = root.parent / "store" / Path(file).name
    stored.parent.mkdir(exist_ok=True)
    stored.write_text("clean\n")
    (root / file).parent.mkdir(parents=True)
    os.link(stored, root / file)
    return stored


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


async def test_packages_without_hard_links_can_be_changed(keeper: Keeper, root: Path) -> None:
    (root / "node_modules" / "chalk").mkdir(parents=True)
    (root / BUN).write_text("own\n")
    (root / "env").write_text("a file\n")
    (root / ".venv").symlink_to("node_modules")
    os.link(root / "env", root.parent / "env")

    completed = await run(keeper, confined(append(BUN), root))

    assert completed.out == "changed\n"
