"""Attack 18 from inside a sandbox, and in its roots: `..`, absolute, percent-encoded and NUL paths, and links."""

import json
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
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


async def attack(keeper: Keeper, folder: Path, *, confine: bool) -> dict[str, str]:
    (folder / "absolute").symlink_to(folder.parent / "secret")
    (folder / "relative").symlink_to("../secret")
    (folder / "process").symlink_to("/proc/self/root" + str(folder.parent / "secret"))
    paths = {
        "dots": "../secret", "absolute": str(folder.parent / "secret"), "encoded": "%2e%2e/secret",
        "link": "absolute", "relative link": "relative", "link by process": "process", "NUL": "../secret\0.txt",
    }  # fmt: skip
    spec = ProcessSpec(
        argv=(sys.executable, "-I", "-c", ATTACK, json.dumps(paths)), env=PATH, cwd=str(folder)
    )
    done = await run(keeper, confined(spec, folder) if confine else spec)
    return json.loads(done.out)


@pytest.mark.promise("BOX-02")
async def test_no_path_leads_outside_the_sandbox(keeper: Keeper, root: Path) -> None:
    assert set((await attack(keeper, root, confine=True)).values()) == {""}


async def test_control_unconfined_server_reads_by_every_valid_path(keeper: Keeper, root: Path) -> None:
    found = await attack(keeper, root, confine=False)

    assert {name for name, text in found.items() if text != "out of reach"} == {"NUL"}


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize(
    "path", ["/tmp/..", "/tmp/../etc", "..", "/tmp/\0", "/proc/self/root", "/dev/../etc"]
)
async def test_root_with_an_unusual_path_is_refused(keeper: Keeper, path: str) -> None:
    spec = ProcessSpec(argv=("true",), env=PATH, cwd="/", confinement=Confinement(roots=(path,)))

    with pytest.raises(HoldfastError, match="cannot be a root"):
        await keeper.spawn(spec)
