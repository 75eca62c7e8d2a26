"""Attack 33: shell metacharacters in a server's command or arguments."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import PATH, confined, run

pytestmark = pytest.mark.anyio

INJECTIONS = ("; touch ran", "$(touch ran)", "`touch ran`", "| touch ran", "&& touch ran", "> ran", "\n touch ran", "* ~ $HOME", "--", "-c", "'\"\\")  # fmt: skip
PRINT_ARGUMENTS = "import sys; print(sys.argv[1:])"


@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("mode", ["direct", "confined"])
async def test_arguments_arrive_literally_and_nothing_runs(keeper: Keeper, root: Path, mode: str) -> None:
    launch = ProcessSpec(
        argv=(sys.executable, "-I", "-c", PRINT_ARGUMENTS, *INJECTIONS), env=PATH, cwd=str(root)
    )

    done = await run(keeper, confined(launch, root) if mode == "confined" else launch)

    assert (done.out, (root / "ran").exists()) == (f"{list(INJECTIONS)!r}\n", False)


@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("mode", ["direct", "confined"])
@pytest.mark.parametrize("command", ["true; touch ran", "$(touch ran)", "--bind", "--", "", "touch ran"])
async def test_command_is_the_name_of_one_program(
    keeper: Keeper, root: Path, mode: str, command: str
) -> None:
    launch = ProcessSpec(argv=(command, "x"), env=PATH, cwd=str(root))

    with pytest.raises(HoldfastError, match="there is no such program"):
        await keeper.spawn(confined(launch, root) if mode == "confined" else launch)

    assert not (root / "ran").exists()


def test_control_shell_runs_the_injected_command(root: Path) -> None:
    subprocess.run(f"true {INJECTIONS[0]}", shell=True, cwd=root, check=True)

    assert (root / "ran").exists()
