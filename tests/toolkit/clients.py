"""Plain clients for toolkit servers: real processes, stdio and HTTP, both eras, one call at a time."""

import http.client
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol
from urllib.parse import urlsplit

from tests.commands import ForkedProcess, start_holdfast
from tests.toolkit.server_process import ROOT, run_http_server

Era = Literal["handshake", "modern"]
TRANSPORTS_AND_ERAS = [("stdio", "handshake"), ("stdio", "modern"), ("http", "handshake"), ("http", "modern")]

VERSIONS = {"handshake": "2025-11-25", "modern": "2026-07-28"}
MODERN_META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
}


class PlainTransport(Protocol):
    """Sends one message to a server; a request returns all messages up to its response."""

    def request(self, message: dict[str, Any]) -> list[dict[str, Any]]: ...

    def notify(self, message: dict[str, Any]) -> None: ...


class Client:
    """One client of one server."""

    def __init__(
        self, transport: PlainTransport, era: Era, initialize_meta: dict[str, Any] | None = None
    ) -> None:
        self.transport = transport
        self.era: Era = era
        self.notifications: list[dict[str, Any]] = []
        self._ids = iter(range(1, 1_000_000))
        if era == "handshake":
            self.initialize(initialize_meta or {})

    def initialize(self, meta: dict[str, Any]) -> Any:
        offer: dict[str, Any] = {
            "protocolVersion": VERSIONS["handshake"],
            "capabilities": {},
            "clientInfo": {"name": "tests", "version": "1"},
        }
        answer = self.request("initialize", {**offer, **({"_meta": meta} if meta else {})}, meta={})
        self.transport.notify({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def request(self, method: str, params: dict[str, Any], meta: dict[str, Any] | None = None) -> Any:
        """The result; an error as `{"error": …}`."""
        merged_meta = {**(MODERN_META if self.era == "modern" else {}), **(meta or {})}
        params = {**params, **({"_meta": merged_meta} if merged_meta else {})}
        *notifications, answer = self.transport.request(
            {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        )
        self.notifications += notifications
        return answer.get("result", {"error": answer.get("error")})

    def raw_call(self, tool: str, arguments: dict[str, Any] | None = None, **meta: Any) -> Any:
        return self.request("tools/call", {"name": tool, "arguments": arguments or {}}, meta)

    def call(
        self, tool: str, arguments: dict[str, Any] | None = None, meta: dict[str, Any] | None = None
    ) -> Any:
        """The envelope, after checking that text, structured content and `isError` agree."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments or {}}, meta)
        assert "structuredContent" in result, result
        envelope = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == envelope
        assert result.get("isError", False) is (not envelope["ok"])
        return envelope

    def tools(self) -> dict[str, Any]:
        return {tool["name"]: tool for tool in self.request("tools/list", {})["tools"]}


class PlainStdioTransport:
    """A server that this process started."""

    def __init__(
        self, process: "subprocess.Popen[bytes] | ForkedProcess", stdin: IO[bytes], stdout: IO[bytes]
    ) -> None:
        self.process = process
        self.stdin = stdin
        self._stdout = stdout

    def request(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        self.notify(message)
        received: list[dict[str, Any]] = []
        while not received or received[-1].get("id") != message["id"]:
            line = self._stdout.readline()
            assert line, "The server closed its output."
            received.append(json.loads(line))
        return received

    def notify(self, message: dict[str, Any]) -> None:
        self.stdin.write(json.dumps(message).encode() + b"\n")
        self.stdin.flush()


class PlainHttpTransport:
    """A server at an address."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        self._path = parts.path
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
        self.headers = dict(headers or {})
        self.session_id = ""
        self.status = 0

    def request(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        return self.post(json.dumps(message).encode(), {**mcp_headers(message), **self.headers})

    def notify(self, message: dict[str, Any]) -> None:
        self.request(message)

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
    """The headers that the modern era requires."""
    if "io.modelcontextprotocol/protocolVersion" not in message.get("params", {}).get("_meta", {}):
        return {}
    headers = {"MCP-Protocol-Version": VERSIONS["modern"], "Mcp-Method": message["method"]}
    if message["method"] in ("tools/call", "prompts/get", "resources/read"):
        headers["Mcp-Name"] = message["params"].get("uri") or message["params"]["name"]
    return headers


@contextmanager
def spawn_server(
    module: str,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    stderr: IO[bytes] | int | None = None,
) -> Iterator[PlainStdioTransport]:
    """Run `python -m module` on pipes; it must exit by itself when its input ends."""
    (their_input, stdin), (stdout, their_output) = os.pipe(), os.pipe()
    with (
        open(stdin, "wb") as our_input,  # noqa: PTH123
        open(stdout, "rb") as our_output,  # noqa: PTH123
        open(os.devnull, "wb") as nowhere,  # noqa: PTH123
    ):
        process = start_holdfast(
            ["-m", module, *arguments],
            *(their_input, their_output, nowhere if stderr is None else stderr),
            cwd=ROOT,
            env={**os.environ, **(environ or {})},
        )
        os.close(their_input)
        os.close(their_output)
        try:
            yield PlainStdioTransport(process, our_input, our_output)
            our_input.close()
            process.wait(10)
        finally:
            process.kill()
            process.wait()


@contextmanager
def spawn_command(
    command: list[str],
    *,
    cwd: Path,
    environ: Mapping[str, str] | None = None,
    stderr: IO[bytes] | int | None = None,
) -> Iterator[PlainStdioTransport]:
    """Run a command on pipes."""
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
            assert process.stdin
            assert process.stdout
            yield PlainStdioTransport(process, process.stdin, process.stdout)
            process.stdin.close()
            process.wait(10)
        finally:
            process.kill()


@contextmanager
def connect_client(
    transport_and_era: tuple[str, Era],
    module: str,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    initialize_meta: dict[str, Any] | None = None,
) -> Iterator[Client]:
    """Start a server and connect a client to it, over this transport and in this era."""
    kind, era = transport_and_era
    if kind == "stdio":
        with spawn_server(module, *arguments, environ=environ) as pipes:
            yield Client(pipes, era, initialize_meta)
    else:
        with (
            run_http_server(module, *arguments, environ=environ) as url,
            closing(PlainHttpTransport(url)) as transport,
        ):
            yield Client(transport, era, initialize_meta)
