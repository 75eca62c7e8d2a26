"""Attack 33, from config to process: shell metacharacters in a server's entry are literal text."""

import sys
from pathlib import Path

import pytest

from tests.connect.conftest import HostFactory, folder, for_sandboxed, make_host

__all__ = ["folder", "make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

INJECTIONS = [
    "; touch ran",
    "$(touch ran)",
    "`touch ran`",
    "| touch ran",
    "&& touch ran",
    "> ran",
    "\ntouch ran",
    "$HOME",
]
PRINT_ARGUMENTS = "import sys; sys.stderr.write(repr(sys.argv[1:])); sys.exit(1)"


@pytest.mark.parametrize("trust", ["direct", "sandboxed"])
async def test_arguments_arrive_literally(make_host: HostFactory, folder: Path, trust: str):
    entry = for_sandboxed({"command": sys.executable, "args": ["-I", "-c", PRINT_ARGUMENTS, *INJECTIONS]})
    async with (
        make_host({"x": entry}, HOLDFAST_TRUST_CEILING=trust) as host,
        host.session(cwd=folder) as session,
    ):
        reasons = {refusal.server: refusal.reason for refusal in session.refusals}

    assert (repr(INJECTIONS) in reasons["x"], list(folder.iterdir())) == (True, [])


@pytest.mark.parametrize("command", ["true; touch ran", "$(touch ran)", "touch ran", "sh -c 'touch ran'"])
async def test_command_is_the_name_of_one_program(make_host: HostFactory, folder: Path, command: str):
    async with make_host({"x": {"command": command}}) as host, host.session(cwd=folder) as session:
        reasons = {refusal.server: refusal.reason for refusal in session.refusals}

    assert ("there is no such program" in reasons["x"], list(folder.iterdir())) == (True, [])


async def test_control_shell_runs_the_injected_command(make_host: HostFactory, folder: Path):
    entry = {"command": "sh", "args": ["-c", f"true {INJECTIONS[0]}"], "cwd": "."}
    async with make_host({"x": entry}) as host, host.session(cwd=folder):
        pass

    assert [path.name for path in folder.iterdir()] == ["ran"]
