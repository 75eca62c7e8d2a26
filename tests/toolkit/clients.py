"""Plain clients for toolkit servers: real processes, stdio and HTTP, both eras, one call at a time."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol
from urllib.parse import urlsplit

from tests.toolkit.http import ROOT, served

Era = Literal["handshake", "modern"]
WAYS = [("stdio", "handshake"), ("stdio", "modern"), ("http", "handshake"), ("http", "modern")]

VERSIONS = {"handshake": "2025-11-25", "modern": "2026-07-28"}
MODERN_META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
}


class Carrier(Protocol):
    """Brings one message to a server, and back what it says about it."""

    def ask(self, message: dict[str, Any]) -> list[dict[str, Any]]: ...

    def tell(self, message: dict[str, Any]) -> None: ...


class Client:
    """One client of one server."""

    def __init__(self, carrier: Carrier, era: Era, hello: dict[str, Any] | None = None) -> None:
        self.carrier = carrier
        self.era = era
        self.notifications: list[dict[str, Any]] = []
        self._ids = iter(range(1, 1_000_000))
        if era == "handshake":
            self.initialize(hello or {})

    def initialize(self, meta: dict[str, Any]) -> Any:
        offer: dict[str, Any] = {
            "protocolVersion": VERSIONS["handshake"],
            "capabilities": {},
            "clientInfo": {"name": "tests", "version": "1"},
        }
        answer = self.request("initialize", {**offer, **({"_meta": meta} if meta else {})}, meta={})
        self.carrier.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def request(self, method: str, params: dict[str, Any], meta: dict[str, Any] | None = None) -> Any:
        """The result; an error as `{"error": …}`."""
        said = {**(MODERN_META if self.era == "modern" else {}), **(meta or {})}
        params = {**params, **({"_meta": said} if said else {})}
        *notifications, answer = self.carrier.ask(
            {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        )
        self.notifications += notifications
        return answer.get("result", {"error": answer.get("error")})

    def raw_call(self, tool: str, arguments: dict[str, Any] | None = None, **meta: Any) -> Any:
        return self.request("tools/call", {"name": tool, "arguments": arguments or {}}, meta)

    def call(
        self, tool: str, arguments: dict[str, Any] | None = None, meta: dict[str, Any] | None = None
    ) -> Any:
        """The envelope: the same as text, as structure and as `isError`."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments or {}}, meta)
        assert "structuredContent" in result, result
        envelope = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == envelope
        assert result.get("isError", False) is (not envelope["ok"])
        return envelope

    def tools(self) -> dict[str, Any]:
        return {tool["name"]: tool for tool in self.request("tools/list", {})["tools"]}


class Pipes:
    """A server that this process started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        self.process = process
        self._stdin: IO[bytes] = process.stdin
        self._stdout: IO[bytes] = process.stdout

    def ask(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        self.tell(message)
        said: list[dict[str, Any]] = []
        while not said or said[-1].get("id") != message["id"]:
            line = self._stdout.readline()
            assert line, "The server hung up."
            said.append(json.loads(line))
        return said

    def tell(self, message: dict[str, Any]) -> None:
        self._stdin.write(json.dumps(message).encode() + b"\n")
        self._stdin.flush()


class Http:
    """A server at an address."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        self._path = parts.path
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
        self.headers = dict(headers or {})
        self.session_id = ""
        self.status = 0

    def ask(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        return self.post(json.dumps(message).encode(), {**mcp_headers(message), **self.headers})

    def tell(self, message: dict[str, Any]) -> None:
        self.ask(message)

    def close(self) -> None:
        self.connection.close()

    def post(self, body: bytes, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        session = {"Mcp-Session-Id": self.session_id} if self.session_id else {}
        self.connection.request("POST", self._path, body, {**kinds, **session, **headers})
        response = self.connection.getresponse()
        self.status = response.status
        self.session_id = response.headers.get("Mcp-Session-Id") or self.session_id
        text = response.read().decode()
        if response.headers.get("Content-Type") == "text/event-stream":
            return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        return [json.loads(text)] if text else []


def mcp_headers(message: dict[str, Any]) -> dict[str, str]:
    """What the modern era wants repeated in headers."""
    if "io.modelcontextprotocol/protocolVersion" not in message.get("params", {}).get("_meta", {}):
        return {}
    headers = {"MCP-Protocol-Version": VERSIONS["modern"], "Mcp-Method": message["method"]}
    if message["method"] == "tools/call":
        headers["Mcp-Name"] = message["params"]["name"]
    return headers


@contextmanager
def spawned(
    module: str,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    stderr: IO[bytes] | int | None = None,
) -> Iterator[Pipes]:
    """`python -m module` on pipes; it must end by itself when its input ends."""
    with started(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, environ=environ, stderr=stderr
    ) as pipes:
        yield pipes


@contextmanager
def started(
    command: list[str],
    *,
    cwd: Path,
    environ: Mapping[str, str] | None = None,
    stderr: IO[bytes] | int | None = None,
) -> Iterator[Pipes]:
    """Any command on pipes."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if stderr is None else stderr,
    )
    with process:
        try:
            pipes = Pipes(process)
            yield pipes
            if process.stdin and not process.stdin.closed:
                process.stdin.close()
            process.wait(10)
        finally:
            process.kill()


@contextmanager
def client(
    way: tuple[str, Era],
    module: str,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    hello: dict[str, Any] | None = None,
) -> Iterator[Client]:
    """A client of its own server, over this transport and in this era."""
    transport, era = way
    if transport == "stdio":
        with spawned(module, *arguments, environ=environ) as pipes:
            yield Client(pipes, era, hello)
    else:
        with served(module, *arguments, environ=environ) as url, closing(Http(url)) as carrier:
            yield Client(carrier, era, hello)
