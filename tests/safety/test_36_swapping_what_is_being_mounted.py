"""Attack 36: a name or a folder is swapped while a sandbox is set up, so that a mount gets another place or source."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.confined_folders import can_confined_server_change
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.sandbox import Availability, PreparedProcess
from tests.sandbox.support import PATH, confined, python, read_line, run, started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]


def _check_nothing(pid: int) -> bool:
    return True


WAIT = ProcessSpec(argv=("sh", "-c", "echo ready; read line"), env=PATH, cwd="/")


class SwappedSandbox:
    """Bubblewrap, with a swap at the worst moment: after the host's checks, before the mounts."""

    name = "bwrap"

    def __init__(self, swap: Callable[[], None], *, checks_mounts: bool) -> None:
        self._sandbox, self._swap, self._checks_mounts = BwrapSandbox(), swap, checks_mounts

    async def check(self) -> Availability:
        return await self._sandbox.check()

    def program_paths(self, spec: ProcessSpec) -> tuple[str, ...]:
        return self._sandbox.program_paths(spec)

    def prepare(self, spec: ProcessSpec) -> PreparedProcess:
        prepared = self._sandbox.prepare(spec)
        self._swap()
        return (
            prepared
            if self._checks_mounts
            else replace(prepared, wait_and_check=_check_nothing, guarded_roots=())
        )


@pytest.mark.slow
@pytest.mark.promise("BOX-01", "BOX-02")
async def test_sandbox_with_a_mount_in_another_place_is_refused(root: Path) -> None:
    targets = ("hole", "/newroot/usr/share", ".git")

    refused = await asyncio.gather(
        *(mount_elsewhere(root / f"{number}", target, True) for number, target in enumerate(targets))
    )
    control = await asyncio.gather(
        *(mount_elsewhere(root / f"control{number}", target, False) for number, target in enumerate(targets))
    )

    assert ["not set up as planned" in message for message in refused] == [True, True, True]
    assert control == ["evil\n", "evil\n", "evil\n"]


async def mount_elsewhere(root: Path, target: str, checks_mounts: bool) -> str:
    """Swap the place of a guard for a link to `target`. Return the content of the guarded name, or the refusal."""
    for folder in ("hole", ".git"):
        (root / folder).mkdir(parents=True)
    spec = confined(
        ProcessSpec(argv=("sh", "-c", "rm .idea && echo evil > .idea; cat .idea"), env=PATH, cwd="/"), root
    )

    def swap() -> None:
        shutil.rmtree(root / ".idea")
        (root / ".idea").symlink_to(target)

    async with Keeper(SwappedSandbox(swap, checks_mounts=checks_mounts)) as keeper:
        try:
            return (await run(keeper, spec)).out
        except HoldfastError as error:
            return error.message


@pytest.mark.promise("BOX-01", "BOX-02")
async def test_sandbox_with_another_source_is_refused(root: Path) -> None:
    (root / ".git").mkdir()
    (root / "hole").mkdir()

    def swap() -> None:
        (root / ".git").rename(root / "real")
        (root / ".git").symlink_to("hole")

    async with Keeper(SwappedSandbox(swap, checks_mounts=True)) as keeper:
        with pytest.raises(HoldfastError, match="set up"):
            await run(keeper, confined(WAIT, root))


@pytest.mark.promise("BOX-02")
async def test_no_server_starts_below_the_root_of_another_one(keeper: Keeper, root: Path) -> None:
    inner = root / "packages" / "app"
    inner.mkdir(parents=True)

    async with started(keeper, confined(WAIT, root)) as outer:
        await read_line(outer)
        with pytest.raises(
            HoldfastError, match=r"runs in a folder above it.*Close the session in that folder"
        ):
            await run(keeper, confined(WAIT, inner))
        beside = await run(keeper, confined(WAIT, root))
    async with started(keeper, confined(WAIT, inner)) as child:
        afterwards = await read_line(child)
        above = await run(keeper, confined(WAIT, root))

    assert (beside.out, afterwards, above.out) == ("ready\n", "ready", "ready\n")


@pytest.mark.promise("BOX-02")
async def test_root_inside_another_root_of_the_same_server_is_no_mount_of_its_own(
    keeper: Keeper, root: Path
) -> None:
    (root / "inner").mkdir()
    code = "print([line.split()[4] for line in open('/proc/self/mountinfo') if '/inner' in line])"

    async with started(keeper, confined(WAIT, root)):
        done = await run(keeper, confined(python(code), root, roots=(str(root / "inner"), str(root))))

    assert done.out == "[]\n"


OTHER_PROCESS = """
import os, sys
from pathlib import Path
from holdfast.model.confined_folders import lock_root
locks = lock_root(sys.argv[1], [os.stat(path) for path in (Path(sys.argv[1]), *Path(sys.argv[1]).parents)])
locks.setup_locks.close()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.promise("BOX-02")
async def test_server_of_another_process_counts_until_that_process_has_ended(
    keeper: Keeper, root: Path
) -> None:
    inner = root / "inner"
    inner.mkdir()
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    other.stdout.readline()

    counted = [
        can_confined_server_change(str(path)) for path in (root, inner, inner / "missing", root.parent)
    ]
    with pytest.raises(HoldfastError, match="runs in a folder above it"):
        await run(keeper, confined(WAIT, inner))
    other.kill()
    other.communicate()

    assert (counted, can_confined_server_change(str(inner))) == ([True, True, True, False], False)
    assert (await run(keeper, confined(WAIT, inner))).out == "ready\n"


LOCK = "import fcntl, os, time; fcntl.flock(os.open('.', os.O_RDONLY), fcntl.LOCK_EX); print('locked', flush=True); time.sleep(99)"


@pytest.mark.promise("BOX-02")
async def test_lock_of_a_server_on_its_own_root_keeps_no_other_server_out(keeper: Keeper, root: Path) -> None:
    async with started(keeper, confined(python(LOCK), root)) as child:
        assert await read_line(child) == "locked"
        blocked = subprocess.run(["flock", "--nonblock", "--shared", root, "true"], check=False).returncode
        done = await run(keeper, confined(WAIT, root))

    assert (blocked, done.out) == (1, "ready\n")
