"""Attack 18: `..`, absolute, percent-encoded and NUL in paths, from inside a sandbox and in its roots."""

import json
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Confinement, Launch
from holdfast.sandbox.keeper import Keeper
from tests.sandbox.support import PATH, confined, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

ATTACK = """
import json, os, sys
from urllib.parse import unquote
found = {}
for name, path in json.loads(sys.argv[1]).items():
    try: found[name] = open(unquote(path)).read()
    except (OSError, ValueError): found[name] = ''
print(json.dumps(found))
"""


async def attack(keeper: Keeper, folder: Path, *, walls: bool) -> dict[str, str]:
    (folder / "absolute").symlink_to(folder.parent / "secret")
    (folder / "relative").symlink_to("../secret")
    (folder / "process").symlink_to("/proc/self/root" + str(folder.parent / "secret"))
    paths = {
        "dots": "../secret", "absolute": str(folder.parent / "secret"), "encoded": "%2e%2e/secret",
        "link": "absolute", "relative link": "relative", "link by process": "process", "NUL": "../secret\0.txt",
    }  # fmt: skip
    launch = Launch(argv=(sys.executable, "-I", "-c", ATTACK, json.dumps(paths)), env=PATH, cwd=str(folder))
    done = await run(keeper, confined(launch, folder) if walls else launch)
    return json.loads(done.out)


@pytest.mark.promise("BOX-02")
async def test_none_of_them_leads_outside(keeper: Keeper, root: Path) -> None:
    assert set((await attack(keeper, root, walls=True)).values()) == {""}


async def test_without_walls_all_that_the_system_takes_do(keeper: Keeper, root: Path) -> None:
    found = await attack(keeper, root, walls=False)

    assert {name for name, text in found.items() if text != "out of reach"} == {"NUL"}


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize(
    "path", ["/tmp/..", "/tmp/../etc", "..", "/tmp/\0", "/proc/self/root", "/dev/../etc"]
)
async def test_a_root_of_such_a_path_is_refused(keeper: Keeper, path: str) -> None:
    launch = Launch(argv=("true",), env=PATH, cwd="/", confinement=Confinement(roots=(path,)))

    with pytest.raises(HoldfastError, match="cannot be a root"):
        await keeper.spawn(launch)
