"""Attack 33, from the config to the process: shell metacharacters in a server's entry are words, nothing more."""

import sys
from pathlib import Path

import pytest

from tests.connect.conftest import HostFactory, folder, for_sandboxed, make_host

__all__ = ["folder", "make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

WORDS = [
    "; touch ran",
    "$(touch ran)",
    "`touch ran`",
    "| touch ran",
    "&& touch ran",
    "> ran",
    "\ntouch ran",
    "$HOME",
]
TELL = "import sys; sys.stderr.write(repr(sys.argv[1:])); sys.exit(1)"


@pytest.mark.parametrize("trust", ["direct", "sandboxed"])
async def test_arguments_arrive_as_they_are_written(make_host: HostFactory, folder: Path, trust: str):
    entry = for_sandboxed({"command": sys.executable, "args": ["-I", "-c", TELL, *WORDS]})
    async with (
        make_host({"x": entry}, HOLDFAST_TRUST_CEILING=trust) as host,
        host.session(cwd=folder) as session,
    ):
        reasons = {refusal.server: refusal.reason for refusal in session.refusals}

    assert (repr(WORDS) in reasons["x"], list(folder.iterdir())) == (True, [])


@pytest.mark.parametrize("command", ["true; touch ran", "$(touch ran)", "touch ran", "sh -c 'touch ran'"])
async def test_a_command_is_one_program(make_host: HostFactory, folder: Path, command: str):
    async with make_host({"x": {"command": command}}) as host, host.session(cwd=folder) as session:
        reasons = {refusal.server: refusal.reason for refusal in session.refusals}

    assert ("there is no such program" in reasons["x"], list(folder.iterdir())) == (True, [])


async def test_control_handed_to_a_shell_they_run(make_host: HostFactory, folder: Path):
    entry = {"command": "sh", "args": ["-c", f"true {WORDS[0]}"]}
    async with make_host({"x": entry}) as host, host.session(cwd=folder):
        pass

    assert [path.name for path in folder.iterdir()] == ["ran"]
