"""Other people's servers, confined in a direct session, with nothing configured but `"confined": true`."""

import base64
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.connect.conftest import HostFactory, folder, make_host
from tests.peers.spawn import PACKAGES
from tests.sandbox.conftest import bwrap

__all__ = ["bwrap", "folder", "make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

HERE = Path(__file__).parent
EVERYTHING = PACKAGES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
NODE = str(PACKAGES / ".bin" / "node")
ECHO: dict[str, Any] = {"message": "hello"}

SERVERS: dict[str, tuple[list[str], str, dict[str, Any], str]] = {
    "everything, by node and a path": ([NODE, str(EVERYTHING), "stdio"], "echo", ECHO, "Echo: hello"),
    "everything, by .bin": ([str(PACKAGES / ".bin" / "mcp-server-everything")], "echo", ECHO, "Echo: hello"),
    "memory, by .bin": ([str(PACKAGES / ".bin" / "mcp-server-memory")], "read_graph", {}, '"entities": []'),
    "filesystem, by .bin": (
        [str(PACKAGES / ".bin" / "mcp-server-filesystem"), "{folder}"],
        "list_directory",
        {"path": "{folder}"},
        "[FILE] mine.txt",
    ),
    "FastMCP in a Python environment": (
        [sys.executable, str(HERE / "fastmcp_server.py")],
        "echo",
        {"text": "hello"},
        "hello",
    ),
    "the SDK in a Python environment": (
        [sys.executable, str(HERE / "sdk_server.py")],
        "echo",
        {"text": "hello"},
        "hello",
    ),
    "the toolkit, by a path": (
        [sys.executable, str(HERE / "toolkit_server.py")],
        "echo",
        {"text": "hello"},
        "hello",
    ),
    "the toolkit, by python -m": (
        [sys.executable, "-m", "holdfast.cli.up.demo_server"],
        "count",
        {},
        '"count":1',
    ),
}


@pytest.mark.slow
@pytest.mark.promise("BOX-08")
@pytest.mark.parametrize("case", SERVERS)
async def test_server_works_confined_with_no_more_than_its_command(
    make_host: HostFactory, folder: Path, case: str
):
    argv, tool, arguments, expected = SERVERS[case]
    (folder / "mine.txt").touch()
    command, *args = (word.format(folder=folder) for word in argv)
    given = {key: value.format(folder=folder) for key, value in arguments.items()}
    entry = {"command": shutil.which(command) or command, "args": args, "confined": True}
    async with make_host({"s": entry}) as host, host.session(cwd=folder) as session:
        assert [refusal.reason for refusal in session.refusals] == []
        assert session.server("s").confinement is not None
        answer = (await session.call(f"s.{tool}", given)).text

    assert expected in answer


SCRIPT = """#!/usr/bin/env node
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\\n");
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  const tools = [{ name: "trust", inputSchema: { type: "object" } }];
  const info = { capabilities: { tools: {} }, serverInfo: { name: "small", version: "1" } };
  if (method === "initialize") send({ id, result: { protocolVersion: params.protocolVersion, ...info } });
  else if (method === "tools/list") send({ id, result: { tools } });
  else if (method === "tools/call")
    send({ id, result: { content: [{ type: "text", text: process.env.HOLDFAST_TRUST_LEVEL }] } });
  else if (id !== undefined) send({ id, error: { code: -32601, message: "no such method" } });
});
"""


@contextmanager
def npm_registry() -> Iterator[str]:
    """A registry on loopback with one package, `small`."""
    manifest = {"name": "small", "version": "1.2.3", "bin": {"small": "server.js"}}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in {"package.json": json.dumps(manifest), "server.js": SCRIPT}.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(text), 0o755
            tar.addfile(member, io.BytesIO(text.encode()))
    content = archive.getvalue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = f"http://127.0.0.1:{server.server_port}"
            integrity = f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"
            version = {**manifest, "dist": {"tarball": f"{host}/small.tgz", "integrity": integrity}}
            document = {"name": "small", "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": version}}
            body = content if self.path.endswith(".tgz") else json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
@pytest.mark.promise("BOX-08")
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_npm_fetches_a_package_confined_and_its_server_runs_confined(
    make_host: HostFactory, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with npm_registry() as registry:
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://{registry}")
        variables = {
            "HOLDFAST_SERVERS_PACKAGES": str(tmp_path / "packages"),
            "HOLDFAST_SERVERS_REGISTRIES": registry,
            "HOLDFAST_SERVERS_REACHABLE": "127.0.0.1",
        }
        entry = {"command": "npx", "args": ["-y", "small"], "confined": True}
        async with make_host({"s": entry}, **variables) as host, host.session(cwd=folder) as session:
            assert [refusal.reason for refusal in session.refusals] == []
            answer = (await session.call("s.trust")).text

    assert answer == "sandboxed"


def make_wheel() -> bytes:
    """A Python package `small` with the program `small`, which is the script of the npm package in Python."""
    source = """
import json, os, sys

def main():
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        info = {"capabilities": {"tools": {}}, "serverInfo": {"name": "small", "version": "1"}}
        results = {
            "initialize": {"protocolVersion": params.get("protocolVersion"), **info},
            "tools/list": {"tools": [{"name": "trust", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": os.environ["HOLDFAST_TRUST_LEVEL"]}]},
        }
        if "id" in message:
            known = {"result": results[method]} if method in results else {"error": {"code": -32601, "message": "no"}}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **known}), flush=True)
"""
    info = "small-1.2.3.dist-info"
    files = {
        "small/__init__.py": source,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: small\nVersion: 1.2.3\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nsmall = small:main\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            zipped.writestr(name, text)
    return archive.getvalue()


@contextmanager
def python_index() -> Iterator[str]:
    """A package index on loopback with one package, `small`."""
    content, name = make_wheel(), "small-1.2.3-py3-none-any.whl"

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_file()

        def do_GET(self) -> None:
            self.wfile.write(self.send_file())

        def send_file(self) -> bytes:
            """Send the head of the answer, and return its body."""
            is_wheel = self.path.endswith(".whl")
            page = f'<!DOCTYPE html><html><body><a href="/{name}">{name}</a></body></html>'
            body = content if is_wheel else page.encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream" if is_wheel else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            return body

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
@pytest.mark.promise("BOX-08")
async def test_uv_fetches_a_package_confined_and_its_server_runs_confined(
    make_host: HostFactory, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    programs = Path(sys.executable).parent
    if not (programs / "uv").exists():
        pytest.skip("uv is not installed")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    entry = {"command": "uvx", "args": ["small"], "confined": True}

    async def ask() -> str:
        async with make_host({"s": entry}, **variables) as host, host.session(cwd=folder) as session:
            assert [refusal.reason for refusal in session.refusals] == []
            return (await session.call("s.trust")).text

    with python_index() as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://{index}/simple")
        variables = {
            "HOLDFAST_SERVERS_PACKAGES": str(tmp_path / "packages"),
            "HOLDFAST_SERVERS_REGISTRIES": index,
            "HOLDFAST_SERVERS_REACHABLE": "127.0.0.1",
        }
        first = await ask()
    (compiled,) = (tmp_path / "packages").glob(
        "*/tools/small/lib/python*/site-packages/small/__pycache__/*.pyc"
    )

    assert (first, await ask()) == ("sandboxed", "sandboxed"), "the second start needs no index"
    assert compiled.is_file()


@pytest.mark.promise("BOX-08")
@pytest.mark.skipif(os.environ.get("HOLDFAST_SLOW") != "1", reason="it downloads packages: run `make peers`")
@pytest.mark.parametrize(
    ("argv", "tool", "arguments"),
    [
        (["npx", "-y", "@modelcontextprotocol/server-everything"], "echo", ECHO),
        (["uvx", "mcp-server-time"], "get_current_time", {"timezone": "UTC"}),
    ],
    ids=["npx", "uvx"],
)
async def test_server_of_a_package_runner_works_confined(
    make_host: HostFactory,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    argv: list[str],
    tool: str,
    arguments: dict[str, Any],
):
    command, *args = argv
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")
    registries: tuple[str, ...] = ()
    reachable: tuple[str, ...] = ()
    entry = {"command": command, "args": args, "confined": True}
    for _ in range(6):  # the refusal names the registry, and the hosts that it refers to
        variables = {
            "HOLDFAST_SERVERS_PACKAGES": str(tmp_path / "packages"),
            "HOLDFAST_SERVERS_REGISTRIES": ",".join(registries),
            "HOLDFAST_SERVERS_REACHABLE": ",".join(reachable),
        }
        async with make_host({"s": entry}, **variables) as host, host.session(cwd=folder) as session:
            if session.available == ("files", "s"):
                assert (await session.call(f"s.{tool}", arguments)).ok
                return
            (refusal,) = session.refusals
            if "a private address" in refusal.reason:  # a mirror in the local network
                reachable += (refusal.reason.partition('reachable = ["')[2].partition('"')[0],)
                continue
            assert "tried to reach" in refusal.reason, refusal.reason
            registries += tuple(
                refusal.reason.partition("tried to reach ")[2].partition(". To")[0].split(", ")
            )
    pytest.fail(f"more registries than expected: {registries}")
