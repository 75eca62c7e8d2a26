"""Attack 33: shell metacharacters in a server's command or arguments."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Launch
from holdfast.sandbox.keeper import Keeper
from tests.sandbox.support import PATH, confined, run

pytestmark = pytest.mark.anyio

WORDS = ("; touch ran", "$(touch ran)", "`touch ran`", "| touch ran", "&& touch ran", "> ran", "\n touch ran", "* ~ $HOME", "--", "-c", "'\"\\")  # fmt: skip
TELL = "import sys; print(sys.argv[1:])"


@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("walls", ["direct", "confined"])
async def test_arguments_arrive_as_they_are_and_nothing_runs(keeper: Keeper, root: Path, walls: str) -> None:
    launch = Launch(argv=(sys.executable, "-I", "-c", TELL, *WORDS), env=PATH, cwd=str(root))

    done = await run(keeper, confined(launch, root) if walls == "confined" else launch)

    assert (done.out, (root / "ran").exists()) == (f"{list(WORDS)!r}\n", False)


@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("walls", ["direct", "confined"])
@pytest.mark.parametrize("command", ["true; touch ran", "$(touch ran)", "--bind", "--", "", "touch ran"])
async def test_a_command_is_the_name_of_one_program(
    keeper: Keeper, root: Path, walls: str, command: str
) -> None:
    launch = Launch(argv=(command, "x"), env=PATH, cwd=str(root))

    with pytest.raises(HoldfastError, match="there is no such program"):
        await keeper.spawn(confined(launch, root) if walls == "confined" else launch)

    assert not (root / "ran").exists()


def test_given_to_a_shell_it_does_run(root: Path) -> None:
    subprocess.run(f"true {WORDS[0]}", shell=True, cwd=root, check=True)

    assert (root / "ran").exists()
