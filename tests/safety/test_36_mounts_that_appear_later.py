"""Attack 36: root mounts something in a folder while a confined server runs there, such as the `/proc` of a `chroot`."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.sandbox import Availability, PreparedProcess
from tests.sandbox.support import confined, python, read_line, run, started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

# A server with the machine's uid 0 may open such a file for writing, although it has no capabilities.
OPEN_SETTING = """
import os
print("ready", flush=True)
input()
try:
    os.close(os.open("chroot/proc/sys/kernel/core_pattern", os.O_WRONLY))
    print("can change the kernel's settings")
except OSError as error:
    print(error.strerror)
"""


def _check_nothing(pid: int) -> bool:
    return True


class UncheckedSandbox:
    """Bubblewrap, without the check of its mounts, which also detaches them from those of the machine."""

    name = "bwrap"

    def __init__(self) -> None:
        self._sandbox = BwrapSandbox()

    async def check(self) -> Availability:
        return await self._sandbox.check()

    def program_paths(self, spec: ProcessSpec) -> tuple[str, ...]:
        return self._sandbox.program_paths(spec)

    def prepare(self, spec: ProcessSpec) -> PreparedProcess:
        return replace(self._sandbox.prepare(spec), wait_and_check=_check_nothing)


@pytest.fixture
def shared_root(root: Path) -> Iterator[Path]:
    """A root whose later mounts other mount namespaces get, too, as everywhere under systemd."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with mounted("tmpfs", root):
        subprocess.run(["mount", "--make-shared", root], check=True)
        (root / "chroot" / "proc").mkdir(parents=True)
        yield root


@contextlib.contextmanager
def mounted(file_system: str, folder: Path) -> Iterator[None]:
    command = ["mount", "-t", file_system, "none", folder]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("may not mount here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize("protect", [True, False], ids=["attack", "control"])
async def test_what_is_mounted_in_a_root_later_does_not_appear_in_the_sandbox(
    shared_root: Path, *, protect: bool
) -> None:
    async with (
        Keeper(BwrapSandbox() if protect else UncheckedSandbox()) as keeper,
        started(keeper, confined(python(OPEN_SETTING), shared_root)) as child,
    ):
        assert await read_line(child) == "ready"
        with mounted("proc", shared_root / "chroot" / "proc"):
            child.stdin.write(b"\n")
            answer = await read_line(child)

    assert answer == ("No such file or directory" if protect else "can change the kernel's settings")


@pytest.mark.promise("BOX-06")
@pytest.mark.parametrize("protect", [True, False], ids=["attack", "control"])
async def test_a_folder_of_the_kernel_that_is_mounted_during_the_set_up_is_refused(
    shared_root: Path, *, protect: bool
) -> None:
    class MountingSandbox(UncheckedSandbox):
        """Bubblewrap, with a mount after the host has looked for such folders."""

        def prepare(self, spec: ProcessSpec) -> PreparedProcess:
            prepared = self._sandbox.prepare(spec) if protect else super().prepare(spec)
            stack.enter_context(mounted("proc", shared_root / "chroot" / "proc"))
            return prepared

    spec = confined(python("import os; print(os.path.exists('chroot/proc/sys'))"), shared_root)
    with contextlib.ExitStack() as stack:
        async with Keeper(MountingSandbox()) as keeper:
            with pytest.raises(HoldfastError, match=r"chroot/proc") if protect else contextlib.nullcontext():
                assert (await run(keeper, spec)).out == "True\n"
