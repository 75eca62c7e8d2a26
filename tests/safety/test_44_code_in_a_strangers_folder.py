"""Attack 44: a stranger's folder contains code that the user's own server would run: a module, a package, a script."""

import json
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.model.resolution import Resolution
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve.command_words import runs_absolute_script, runs_relative_script
from holdfast.resolve.confine import ConfinePolicy, confine
from holdfast.resolve.other_clients import CLIENT_APPS, ImportedServer, read_servers
from holdfast.sandbox.keeper.keeper import Keeper
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
    # `wrap` stands for any program that starts others: xvfb-run, conda run, tini, mcp-proxy …
    wrap = '#!/bin/sh\nshift\nexec sh -c "exec $*"\n'
    for name, text in (("npx", RUNNER), ("uvx", RUNNER), ("wrap", wrap)):
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
        "wrapped": {
            **module,
            "command": str(own / "wrap"),
            "args": ["--", sys.executable, "-m", "my_server"],
        },
        "script": {"command": sys.executable, "args": ["-u", str(own / "my_server.py")]},
        "npx": {"command": str(own / "npx"), "args": ["-y", "server"]},
        "wrapped_npx": {"command": str(own / "wrap"), "args": ["--stdio", f"{own / 'npx'} server"]},
        "in_sh": {"command": "sh", "args": ["-c", f"exec {own / 'uvx'} server"]},
    }


async def where(host: Host, folder: Path, names: list[str], **options: Any) -> dict[str, str]:
    """The working folder of each server."""
    session = await host.open(OpenOptions(cwd=folder, **options))
    try:
        await session.wait_ready_and_store()
        refused = [refusal.reason for refusal in session.refusals if refusal.server in names]
        assert not refused
        return {name: (await session.call(f"{name}.where")).text for name in names}
    finally:
        await session.close()


@pytest.mark.promise("RES-07")
async def test_users_own_servers_run_no_code_of_the_sessions_folder(
    make_host: HostFactory, folder: Path, own: Path, marker: Path, tmp_path: Path
):
    async with make_host(own_entries(own)) as host:
        folders = await where(host, folder, [*own_entries(own)])

    assert not marker.exists()
    assert folders.pop("script") == str(folder)
    assert {str(Path(path).parent) for path in folders.values()} == {str(tmp_path / "data" / "empty")}
    assert len({*folders.values()}) == len(folders)
    assert not any(map(os.path.exists, folders.values()))


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    "search_path", ["", ".:/usr/bin:/bin", "/usr/bin:/bin:", "/usr/bin::/bin", "node_modules/.bin:/bin"]
)
@pytest.mark.parametrize("command", [("server",), ("sh", "-c", "server")])
async def test_no_program_is_looked_for_in_the_folder_that_a_server_starts_in(
    folder: Path, marker: Path, search_path: str, command: tuple[str, ...]
):
    for path in (folder / "server", folder / "node_modules" / ".bin" / "server"):
        path.write_text(f"#!/bin/sh\n: > {shlex.quote(str(marker))}\n")
        path.chmod(0o755)
    spec = ProcessSpec(argv=command, env={"PATH": search_path}, cwd=str(folder))
    async with Keeper() as keeper:
        with suppress(HoldfastError):  # there is no such program
            child = await keeper.spawn(spec)
            child.close()
            await child.wait()
    ran = marker.exists()
    subprocess.run(["/bin/sh", "-c", "server"], env=spec.env, cwd=folder, check=False)

    assert not ran
    assert marker.exists(), "the control did not run the stranger's program"


@pytest.mark.promise("RES-07")
async def test_servers_that_a_client_brings_run_no_code_of_the_sessions_folder(
    make_host: HostFactory, folder: Path, own: Path, marker: Path, tmp_path: Path
):
    brought: list[dict[str, Any]] = [
        {"name": name, "command": entry["command"], "args": entry["args"], "env": []}
        for name, entry in own_entries(own).items()
        if name in ("text", "npx")
    ]
    async with make_host({}) as host:
        folders = await where(host, folder, ["text", "npx"], client_servers=tuple(brought))

    assert {str(Path(path).parent) for path in folders.values()} == {str(tmp_path / "data" / "empty")}
    assert not marker.exists()


@pytest.mark.promise("RES-07")
@pytest.mark.usefixtures("bwrap")
async def test_confined_servers_run_no_code_of_the_sessions_folder(
    make_host: HostFactory, folder: Path, own: Path, marker: Path
):
    confined = {
        name: {**own_entries(own)[name], "trust_level": "sandboxed", "readable": [str(own)]}
        for name in ("module", "npx")
    }
    async with make_host(confined) as host:
        folders = await where(host, folder, [*confined], trust=Trust.SANDBOXED)

    assert (folders, marker.exists()) == ({"module": "/", "npx": "/"}, False)


@pytest.mark.parametrize("name", ["module", "npx", "wrapped_npx"])
async def test_control_in_the_sessions_folder_the_strangers_code_runs(
    make_host: HostFactory, folder: Path, own: Path, marker: Path, name: str
):
    entry = {**own_entries(own)[name], "cwd": "."}
    async with make_host({name: entry}) as host, host.session(cwd=folder) as session:
        assert name not in session.available

    assert marker.exists()


async def test_user_can_name_the_folder_that_a_server_starts_in(
    make_host: HostFactory, folder: Path, own: Path
):
    entry = {"command": sys.executable, "args": ["-m", "my_server"], "cwd": str(own)}
    servers = {"s": entry, "t": {**entry, "cwd": "own"}}
    async with make_host(servers) as host, host.session(cwd=folder) as session:
        found = (await session.call("s.where")).text
        (refusal,) = session.refusals

    assert (found, refusal.reason) == (
        str(own),
        '"cwd" is neither "." (the session\'s folder) nor an absolute path. Write one of these.',
    )


# Like the programs of mise, asdf, pyenv and volta: reads in its working folder which program to run.
SHIM = f"""#!/bin/sh
if [ -e .tool-versions ]; then exec "$(cut -d: -f2 .tool-versions)/bin/python3" "$@"; fi
exec {shlex.quote(sys.executable)} "$@"
"""


@pytest.mark.promise("RES-07")
async def test_version_manager_reads_nothing_in_the_sessions_folder(
    make_host: HostFactory, folder: Path, own: Path, marker: Path, tmp_path: Path
):
    (own / "bin").mkdir()
    (own / "bin" / "mise").write_text(SHIM)
    (own / "bin" / "python3.13").write_text(SHIM)
    (own / "bin" / "python3").symlink_to("mise")
    (own / "shims").mkdir()
    (own / "shims" / "python3").symlink_to(sys.executable)  # not a script: proto copies a program of its own
    (folder / ".tool-versions").write_text("python path:./tools")
    tool = folder / "tools" / "bin" / "python3"
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!/bin/sh\n: > {shlex.quote(str(marker))}\n")
    for path in (tool, own / "bin" / "mise", own / "bin" / "python3.13"):
        path.chmod(0o755)
    args = [str(own / "my_server.py")]
    entries: dict[str, Any] = {
        "link": {"command": str(own / "bin" / "python3"), "args": args},
        "script": {"command": str(own / "bin" / "python3.13"), "args": args},
        "searched": {"command": "python3.13", "args": args, "env": {"PATH": f"{own / 'bin'}:/usr/bin:/bin"}},
        "copied": {"command": str(own / "shims" / "python3"), "args": args},
    }
    brought = {"name": "brought", "command": entries["link"]["command"], "args": args, "env": []}
    async with make_host(entries) as host:
        folders = await where(host, folder, [*entries, "brought"], client_servers=(brought,))
    ran = marker.exists()
    subprocess.run([own / "bin" / "python3", *args], cwd=folder, check=True)

    assert {str(Path(path).parent) for path in folders.values()} == {str(tmp_path / "data" / "empty")}
    assert not ran
    assert marker.exists(), "the control did not run the stranger's program"


def imported(app: str, content: Any) -> ImportedServer:
    (server,) = read_servers(json.dumps(content).encode(), CLIENT_APPS[app], Path("config.json"))
    return server


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize("scope", ["cwd", "project"])
async def test_imported_server_runs_the_script_of_its_own_folder(
    make_host: HostFactory, folder: Path, own: Path, marker: Path, scope: str
):
    entry = {"command": sys.executable, "args": ["my_server.py"]}
    if scope == "cwd":
        server = imported("vscode", {"servers": {"s": {**entry, "cwd": str(own)}}})
    else:
        server = imported("claude-code", {"projects": {str(own): {"mcpServers": {"s": entry}}}})
    async with make_host({"s": server.entry}) as host:
        folders = await where(host, own if scope == "project" else folder, ["s"])
        if scope == "project":
            async with host.session(cwd=folder) as session:
                assert "s" not in session.available, "it is for sessions in its project only"
    imported_right = (folders, server.problem, marker.exists())
    # The control: the entry without its folder, as it was imported before.
    async with make_host({"s": entry}) as host, host.session(cwd=folder) as session:
        assert "s" not in session.available

    assert imported_right == ({"s": str(own)}, "", False)
    assert marker.exists()


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "python3", "args": ["server.py"]},
        {"command": "./server"},
        {"command": "npx", "args": ["x"], "cwd": "."},
        {"command": "npx", "args": ["x"], "cwd": "${workspaceFolder}"},
        {"command": "npx", "args": ["x"], "cwd": ["/"]},
    ],
)
def test_server_that_depends_on_the_open_folder_is_not_imported(entry: Any):
    server = imported("vscode", {"servers": {"s": entry}})

    assert "so the server would run another program in each session's folder" in server.problem


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("./server", "relative"),
        ("bin/server --flag", "relative"),
        ("python3.12 -X dev server.py -m x", "relative"),
        ("/usr/bin/node dist/index.js", "relative"),
        ("bun run server.ts", "relative"),
        ("bash ./start", "relative"),
        ("dotnet server.dll", "relative"),
        ("python -I -W error /home/me/server.py data.py", "absolute"),
        ("/usr/bin/node /home/me/server.js ./data", "absolute"),
        ("/home/me/server", ""),
        ("bash /home/me/start.sh", ""),
        ("bun /home/me/server.ts", ""),
        ("node --import tsx /home/me/server.js", ""),
        ("xvfb-run python /home/me/server.py", ""),
        ("python -Im server server.py", ""),
        ("python -c text /home/me/server.py", ""),
        ("python", ""),
        ("sh -c ./server", ""),
        ("node --import tsx server.ts", ""),
        ("deno run npm:server", ""),
        ("bun x server", ""),
        ("npx server server.py", ""),
        ("xvfb-run npx ./server", ""),
        ("${HOME}/server.py", ""),
        ("python ${HOME}/server.py", ""),
    ],
)
def test_commands_that_name_the_script_they_run(command: str, script: str):
    argv = shlex.split(command)

    assert (runs_relative_script(argv), runs_absolute_script(argv)) == (
        script == "relative",
        script == "absolute",
    )


def test_projects_own_server_still_starts_in_its_project():
    spec = ServerSpec(name="x", source=Source.PROJECT, transport=Stdio(command="npx"))
    (kept,) = confine(Resolution(servers=(spec,)), Trust.DIRECT, ConfinePolicy()).servers

    assert kept == spec
