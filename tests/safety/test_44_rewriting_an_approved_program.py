"""Attack 44: a confined server rewrites the program of an approved project server, which runs with all rights later."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.host import Host
from holdfast.model.server import ServerSpec, Source
from holdfast.model.trust import Trust
from holdfast.resolve.entry_summary import command_words
from holdfast.resolve.load import load_file
from holdfast.resolve.program import MAX_BYTES, read_program
from tests.connect.conftest import HostFactory, folder, make_host

__all__ = ["folder", "make_host"]
pytestmark = pytest.mark.anyio

SERVER = Path(__file__).with_name("changing_tools_server.py").read_text()
TOOLS = [{"name": "run", "inputSchema": {"type": "object"}}]
WRITER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, params = message["method"], message.get("params", {})
    if method == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif method == "tools/list":
        result = {"tools": [{"name": "write", "inputSchema": {"type": "object"}}]}
    else:
        try:
            open(params["arguments"]["path"], "a").write("# rewritten")
            text = "written"
        except OSError as error:
            text = error.strerror
        result = {"content": [{"type": "text", "text": text}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def approve_project(host: Host, folder: Path, *args: str) -> None:
    """A project whose server is the given command; approved as it is now."""
    file = folder / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"theirs": {"command": sys.executable, "args": [*args]}}}))
    (entry,) = load_file(Source.PROJECT, file).entries
    program = await host.approvals.read_program(command_words(entry), str(folder))
    await host.approvals.approve_server(entry, by="ann", program=program)


async def open_and_call(host: Host, folder: Path) -> str:
    """Call the project's server in a direct session. Return the result, or why the server was refused."""
    async with host.session(cwd=folder) as session:
        if refused := [refusal.reason for refusal in session.refusals]:
            return refused[0]
        return (await session.call("theirs.run")).text


def write_server(folder: Path) -> None:
    (folder / "server.py").write_text(f"import json\nimport helper\n{SERVER}")
    (folder / "helper.py").write_text("VERSION = 1\n")
    (folder / "tools.txt").write_text(json.dumps(TOOLS))


def rewrite(folder: Path) -> None:
    (folder / "server.py").write_text(f"# evil\n{SERVER}")


def rewrite_helper(folder: Path) -> None:
    (folder / "helper.py").write_text("import os  # evil\n")


def shadow_a_module(folder: Path) -> None:
    (folder / "json.py").write_text("raise SystemExit('evil')\n")


def replace_by_link(folder: Path) -> None:
    other = folder / "other"
    other.write_text(f"# evil\n{SERVER}")
    (folder / "server.py").unlink()
    (folder / "server.py").symlink_to(other)


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (rewrite, "server.py changed"),
        (rewrite_helper, "helper.py changed"),
        (shadow_a_module, "json.py is new"),
        (replace_by_link, "server.py changed"),
    ],
)
async def test_changed_program_does_not_run_until_it_is_approved_again(
    make_host: HostFactory, folder: Path, change: Callable[[Path], None], told: str
):
    write_server(folder)
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        before = await open_and_call(host, folder)
        change(folder)
        changed = await open_and_call(host, folder)

    assert before == "run ran"
    assert changed.startswith("Its program is not as it was approved: ")
    assert told in changed


@pytest.mark.promise("RES-07")
async def test_data_that_a_command_names_may_change(make_host: HostFactory, folder: Path):
    write_server(folder)
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        (folder / "tools.txt").write_text(json.dumps([*TOOLS, {**TOOLS[0], "name": "more"}]))

        assert await open_and_call(host, folder) == "run ran"


@pytest.mark.parametrize("obstacle", ["fifo", "too large"])
async def test_program_that_cannot_be_read_is_refused_at_once(
    make_host: HostFactory, folder: Path, obstacle: str
):
    write_server(folder)
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        (folder / "server.py").unlink()
        if obstacle == "fifo":
            os.mkfifo(folder / "server.py")
        else:
            with (folder / "server.py").open("wb") as file:
                file.truncate(MAX_BYTES + 1)
        refused = await open_and_call(host, folder)

    assert refused.startswith("Its program cannot be checked: ")


async def test_program_that_is_replaced_while_it_starts_is_stopped(make_host: HostFactory, folder: Path):
    write_server(folder)
    swap = "import os, pathlib\nme = pathlib.Path(__file__)\nme.rename('away')\nos.rename('away', me)\n"
    (folder / "server.py").write_text(swap + SERVER)
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")

        assert (
            await open_and_call(host, folder)
            == "The program of 'theirs' was replaced while it was being started."
        )


@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("path", ["server.py", "helper.py"])
async def test_confined_server_cannot_write_an_approved_program(
    make_host: HostFactory, folder: Path, tmp_path: Path, path: str
):
    write_server(folder)
    writer = tmp_path / "writer.py"
    writer.write_text(WRITER)
    own: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-I", "-S", str(writer)],
        "readable": [str(writer)],
    }
    async with make_host({"w": {**own, "trust_level": "sandboxed"}}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        async with host.session(cwd=folder, trust=Trust.SANDBOXED) as session:
            assert session.available == ("files", "w"), session.refusals[-1].reason
            program = (await session.call("w.write", {"path": str(folder / path)})).text
            control = (await session.call("w.write", {"path": str(folder / "tools.txt")})).text

    assert (program, control) == ("Read-only file system", "written")
    assert "rewritten" not in (folder / path).read_text()


@pytest.mark.parametrize(
    ("files", "command", "program"),
    [
        ({"run.sh": "", "data.db": ""}, "bash run.sh data.db", "run.sh"),
        ({"run": "#!/bin/sh"}, "./run", "run"),
        ({"pkg/__main__.py": "", "pkg/__init__.py": ""}, "python -m pkg", "pkg/__init__.py pkg/__main__.py"),
        ({"x.js": "require('./y')", "y.js": "", "z.js": ""}, "node x.js", "x.js y.js"),
        ({"package.json": '{"bin": "cli.mjs"}', "cli.mjs": ""}, "npx .", "cli.mjs package.json"),
        ({"package.json": '{"scripts": {"mcp": "node s"}}', "s": ""}, "npm run mcp", "package.json s"),
        ({"package.json": "{}", ".npmrc": ""}, "npx -y some-package .", ".npmrc"),
        (
            {"pyproject.toml": '[project.scripts]\nserve = "app.cli:main"', "src/app/cli.py": ""},
            "uv run serve",
            "pyproject.toml src/app/cli.py",
        ),
        ({"sub/s.py": "from . import t", "sub/t.py": ""}, "uv run --directory sub s.py", "sub/s.py sub/t.py"),
        ({"a.py": "", "b.py": ""}, "env X=1 sh -c 'python a.py && python b.py'", "a.py b.py"),
        ({"hook.cjs": "", "s.js": ""}, "node --require=./hook.cjs s.js", "hook.cjs s.js"),
        ({"server.py": ""}, "fastmcp run server.py:app", "server.py"),
    ],
)
def test_program_is_what_the_command_names_in_the_project(
    tmp_path: Path, files: dict[str, str], command: str, program: str
):
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)

    import shlex

    assert sorted(read_program(shlex.split(command), str(tmp_path)).files) == program.split()


async def test_control_if_only_the_entry_is_approved_the_rewritten_program_runs(
    make_host: HostFactory, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    async def check_nothing(spec: ServerSpec, folder: str) -> None:
        return None

    write_server(folder)
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        monkeypatch.setattr(host.approvals, "check_program", check_nothing)
        (folder / "server.py").write_text(SERVER.replace("ran", "was rewritten"))

        assert await open_and_call(host, folder) == "run was rewritten"
