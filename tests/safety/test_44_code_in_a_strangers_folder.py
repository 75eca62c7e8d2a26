"""Attack 44: a stranger's folder contains code of the name that the user's own server looks up: a module, a package."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.host import Host
from holdfast.model.resolution import Resolution
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.command_words import looks_up_modules, looks_up_packages
from holdfast.resolve.confine import ConfinePolicy, confine
from tests.connect.conftest import HostFactory, folder, make_host

__all__ = ["folder", "make_host"]
pytestmark = pytest.mark.anyio

SERVER = """
import json, os, sys
TOOLS = [{"name": "where", "inputSchema": {"type": "object"}}]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    match message["method"]:
        case "server/discover":
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        case "tools/list":
            result = {"tools": TOOLS}
        case _:
            result = {"content": [{"type": "text", "text": os.getcwd()}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
# Like `npx`: runs the package of the working folder if there is one, else its own.
RUNNER = f"""#!{sys.executable} -IS
import os, sys
if os.path.exists("node_modules/.bin/server"):
    os.execv("node_modules/.bin/server", ["server"])
if os.getcwd() != "/":
    if os.listdir():
        sys.exit("not empty")
    open("written", "w")
{SERVER}"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The user's own server: as a module, and behind package runners."""
    path = tmp_path / "own"
    path.mkdir()
    (path / "my_server.py").write_text(SERVER)
    old_python = f'#!/bin/sh\nexec env -u PYTHONSAFEPATH {sys.executable} "$@"\n'
    for name, text in (("npx", RUNNER), ("uvx", RUNNER), ("python3.10", old_python)):
        (path / name).write_text(text)
        (path / name).chmod(0o755)
    return path


@pytest.fixture
def marker(folder: Path) -> Path:
    """A file that exists once the code in the stranger's folder has run."""
    marker = folder / "strangers-code-ran"
    for name in ("my_server.py", "json.py"):
        (folder / name).write_text(f"open({str(marker)!r}, 'w')\nraise SystemExit\n")
    package = folder / "node_modules" / ".bin" / "server"
    package.parent.mkdir(parents=True)
    package.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(marker))}\n")
    package.chmod(0o755)
    return marker


def own_entries(own: Path) -> dict[str, dict[str, Any]]:
    module = {"command": sys.executable, "args": ["-m", "my_server"], "env": {"PYTHONPATH": str(own)}}
    return {
        "module": module,
        "text": {"command": sys.executable, "args": ["-uc", SERVER]},
        "wrapped": {**module, "command": "env", "args": [sys.executable, "-X", "dev", "-m", "my_server"]},
        "old": {**module, "command": str(own / "python3.10")},
        "npx": {"command": str(own / "npx"), "args": ["-y", "server"]},
        "shell": {"command": "sh", "args": ["-c", f"exec {own / 'uvx'} server"]},
    }


async def where(host: Host, folder: Path, names: list[str], **options: Any) -> dict[str, str]:
    """The working folder of each server."""
    async with host.session(cwd=folder, **options) as session:
        refused = [refusal.reason for refusal in session.refusals if refusal.server in names]
        assert not refused
        return {name: (await session.call(f"{name}.where")).text for name in names}


@pytest.mark.promise("RES-07")
async def test_users_own_servers_run_no_code_of_the_sessions_folder(
    make_host: HostFactory, folder: Path, own: Path, marker: Path, tmp_path: Path
):
    async with make_host(own_entries(own)) as host:
        folders = await where(host, folder, [*own_entries(own)])
    private = [folders.pop(name) for name in ("npx", "shell", "old")]

    assert not marker.exists()
    assert folders == dict.fromkeys(("module", "text", "wrapped"), str(folder))
    assert {str(Path(path).parent) for path in private} == {str(tmp_path / "data" / "empty")}
    assert not any(map(os.path.exists, private))


@pytest.mark.promise("RES-07")
async def test_neither_do_the_servers_that_a_client_brings(
    make_host: HostFactory, folder: Path, own: Path, marker: Path
):
    brought: list[dict[str, Any]] = [
        {"name": name, "command": entry["command"], "args": entry["args"], "env": []}
        for name, entry in own_entries(own).items()
        if name in ("text", "npx")
    ]
    async with make_host({}) as host:
        folders = await where(host, folder, ["text", "npx"], servers=brought)

    assert (folders["text"], marker.exists()) == (str(folder), False)


@pytest.mark.promise("RES-07")
@pytest.mark.usefixtures("bwrap")
async def test_nor_do_confined_ones(make_host: HostFactory, folder: Path, own: Path, marker: Path):
    confined = {
        name: {**own_entries(own)[name], "trust_level": "sandboxed", "readable": [str(own)]}
        for name in ("module", "npx")
    }
    async with make_host(confined) as host:
        folders = await where(host, folder, [*confined], trust=Trust.SANDBOXED)

    assert (folders, marker.exists()) == ({"module": str(folder), "npx": "/"}, False)


@pytest.mark.parametrize("name", ["module", "npx"])
async def test_control_in_the_sessions_folder_the_strangers_code_runs(
    make_host: HostFactory, folder: Path, own: Path, marker: Path, name: str
):
    entry = {**own_entries(own)[name], "cwd": "."}
    async with make_host({name: entry}) as host, host.session(cwd=folder) as session:
        assert name not in session.available

    assert marker.exists()


async def test_user_can_name_the_folder(make_host: HostFactory, folder: Path, own: Path):
    entry = {"command": sys.executable, "args": ["-m", "my_server"], "cwd": str(own)}
    servers = {"s": entry, "t": {**entry, "cwd": "own"}}
    async with make_host(servers) as host, host.session(cwd=folder) as session:
        found = (await session.call("s.where")).text
        (refusal,) = session.refusals

    assert (found, refusal.reason) == (
        str(own),
        '"cwd" is neither "." (the session\'s folder) nor an absolute path.',
    )


@pytest.mark.parametrize(
    ("command", "modules", "packages"),
    [
        ("python3.12 -Im server", True, False),
        ("python server.py -m x", False, False),
        ("python -X dev /home/me/server.py -c", False, False),
        ("python", True, False),
        ("python -m pipx run server", True, True),
        ("bash -c 'cd /x && pypy3 -c y'", True, False),
        ("npm exec server", False, True),
        ("/usr/bin/pnpm dlx server", False, True),
        ("yarn dlx server", False, True),
        ("bun x server", False, True),
        ("bun run server.ts", False, False),
        ("deno run npm:server", False, True),
        ("dotnet run", False, True),
        ("dotnet server.dll", False, False),
        ("uv run server", False, True),
        ("uv tool run server", False, True),
        ("node /usr/lib/node_modules/npm/bin/npx-cli.js server", False, True),
        ("node --import tsx /home/me/server.ts", False, True),
        ("node server.js", False, False),
        ("docker run -i image npx", False, False),
        ("docker compose run server", False, True),
        ("my-server --tool make", False, False),
    ],
)
def test_commands_that_look_for_code_by_name(command: str, modules: bool, packages: bool):
    argv = shlex.split(command)

    assert (looks_up_modules(argv), looks_up_packages(argv)) == (modules, packages)


def test_projects_own_server_still_starts_in_its_project():
    spec = ServerSpec(name="x", source=Source.PROJECT, transport=Stdio(command="npx"))
    (kept,) = confine(Resolution(servers=(spec,)), Trust.DIRECT, ConfinePolicy()).servers

    assert kept == spec
