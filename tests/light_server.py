"""An MCP server for tests over stdio, in both eras. It starts in a few milliseconds: it imports little, and nothing of Holdfast.

Each request is answered in a thread of its own, so that a test can cancel one, or send others while it waits.
"""

import json
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

PREFIX = "io.modelcontextprotocol/"
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
METHOD_NOT_FOUND, INVALID_PARAMS = -32601, -32602
CACHEABLE = ("server/discover", "tools/list", "prompts/list", "resources/list", "resources/read")


class RpcError(Exception):
    """An error to answer with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class CancelledError(Exception):
    """The client has cancelled the request: it gets no answer."""


class Request:
    """A request of the client."""

    def __init__(self, server: "LightServer", message: Mapping[str, Any]) -> None:
        self._server = server
        self.id: Any = message["id"]
        self.method: str = message["method"]
        self.params: dict[str, Any] = message.get("params") or {}
        self.meta: dict[str, Any] = self.params.get("_meta") or {}
        self.is_cancelled = threading.Event()
        self.thread: threading.Thread | None = None

    @property
    def is_modern(self) -> bool:
        return f"{PREFIX}protocolVersion" in self.meta

    @property
    def initialize_meta(self) -> dict[str, Any]:
        """The `_meta` of `initialize`."""
        return {} if self.is_modern else self._server.initialize_meta

    def notify(self, method: str, params: Any) -> None:
        self._server.send({"method": method, "params": params})

    def sleep(self, seconds: float) -> None:
        """Wait. Raise `CancelledError` if the client cancels the request."""
        if self.is_cancelled.wait(seconds):
            raise CancelledError


class LightServer:
    """Answers requests until standard input ends. Override `answer`."""

    name = "light"
    capabilities: Mapping[str, Any] = {"tools": {}}
    unknown_methods: tuple[str, ...] = ()
    """Methods of MCP that this server does not have: `server/discover`, or `initialize`."""

    def __init__(self) -> None:
        self.initialize_meta: dict[str, Any] = {}
        self._output = os.fdopen(os.dup(1), "wb", buffering=0)
        self._sending = threading.Lock()
        self._running: dict[Any, Request] = {}
        self._answers: dict[str, tuple[threading.Event, list[dict[str, Any]]]] = {}
        os.dup2(2, 1)  # what a handler prints is no message

    def answer(self, request: Request) -> dict[str, Any]:
        raise RpcError(METHOD_NOT_FOUND, f"There is no method {request.method!r} here.")

    def ask(self, method: str, params: Any = None, *, timeout: float = 20) -> dict[str, Any]:
        """Send a request to the client and wait for its result."""
        request_id = f"s{len(self._answers)}"
        arrived, answers = self._answers[request_id] = (threading.Event(), [])
        self.send({"id": request_id, "method": method, "params": params or {}})
        if not arrived.wait(timeout):
            raise RpcError(-32000, f"No answer to {method}.")
        if "error" in answers[0]:
            raise RpcError(answers[0]["error"]["code"], answers[0]["error"]["message"])
        return answers[0]["result"]

    def send(self, message: dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":")) + "\n"
        data = line.encode()
        with self._sending:
            while data:
                data = data[self._output.write(data) :]

    def run(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "method" not in message:
                arrived, answers = self._answers[message["id"]]
                answers.append(message)
                arrived.set()
            elif "id" in message:
                request = self._running[message["id"]] = Request(self, message)
                request.thread = threading.Thread(target=self._respond, args=[request], daemon=True)
                request.thread.start()
            elif message["method"] == "notifications/cancelled":
                self._cancel(message["params"].get("requestId"))
        self.on_end()
        os._exit(0)  # without waiting for calls

    def on_end(self) -> None:
        """Called when standard input has ended."""

    def _cancel(self, request_id: Any) -> None:
        """Cancel a call, and wait until it has ended: later requests see its effects."""
        request = self._running.get(request_id)
        if request is not None and request.thread is not None:
            request.is_cancelled.set()
            request.thread.join(1)

    def _respond(self, request: Request) -> None:
        try:
            response = {"result": self._answer(request)}
        except RpcError as error:
            response = {"error": {"code": error.code, "message": str(error)}}
        except CancelledError:
            return
        except Exception as error:
            response = {"error": {"code": -32603, "message": repr(error)}}
        finally:
            del self._running[request.id]
        self.send({"id": request.id, **response})

    def _answer(self, request: Request) -> dict[str, Any]:
        if request.method in self.unknown_methods:
            raise RpcError(METHOD_NOT_FOUND, "Method not found")
        info = {"name": self.name, "version": "1"}
        if request.method == "initialize":
            self.initialize_meta = request.meta
            version = request.params["protocolVersion"]
            return {
                "protocolVersion": version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
                "capabilities": self.capabilities,
                "serverInfo": info,
            }
        if request.method == "ping":
            return {}
        if not request.is_modern:
            return self.answer(request)
        if request.method == "server/discover":
            result: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities}
        else:
            result = self.answer(request)
        cached = {"ttlMs": 0, "cacheScope": "private"} if request.method in CACHEABLE else {}
        meta = {f"{PREFIX}serverInfo": info, **result.get("_meta", {})}
        return {"resultType": "complete", **cached, **result, "_meta": meta}


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """The result of a call: one block of text."""
    return {"content": [{"type": "text", "text": text}], **({"isError": True} if is_error else {})}
