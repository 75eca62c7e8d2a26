"""A server for tests: it counts, returns the context that it got, and misbehaves on request."""

import json
import os
import sys
import time
from typing import Any

if not __package__:  # run as a script
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from tests.light_server import INVALID_PARAMS, CancelledError, LightServer, Request, RpcError, text_result

META_KEY = "dev.holdfast/session"
QUESTION: dict[str, Any] = {
    "message": "How many?",
    "requestedSchema": {"type": "object", "properties": {"number": {"type": "integer"}}},
}
TOOLS = [
    "count",
    "whoami",
    "sleep",
    "die",
    "fail",
    "progress",
    "roots",
    "sample",
    "grow",
    "orphan",
    "refuse",
    "linger",
    "cancelled",
    "received",
    "read",
    "elicit",
    "wants",
    "mutter",
]


class Counter(LightServer):
    name = "counter"

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        later = os.environ.get("LATER", "")
        self.extra = [_read(later)] if os.path.exists(later) else []  # noqa: PTH110
        self.cancelled: list[str] = []
        self.received: dict[str, Any] = {}
        self.more = {"nextCursor": "again"} if "--endless" in sys.argv else {}
        extensions: dict[str, Any] = {"extensions": {META_KEY: {}}} if "--shared" in sys.argv else {}
        self.capabilities = {"tools": {"listChanged": True}, **extensions}
        if "--handshake" in sys.argv:
            self.unknown_methods = ("server/discover",)
        if "--modern" in sys.argv:
            self.unknown_methods = ("initialize",)

    def answer(self, request: Request) -> dict[str, Any]:
        self.received[request.method] = request.meta.get(META_KEY)
        match request.method:
            case "tools/list":
                names = [*TOOLS, *self.extra]
                return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
            case "tools/call":
                return self.call(request, request.params["name"], request.params.get("arguments") or {})
            case "resources/list":
                return {"resources": [{"uri": "note://one", "name": "one"}], **self.more}
            case "resources/read":
                return {"contents": [{"uri": "note://one", "text": "hello"}]}
            case "prompts/list":
                return {"prompts": [{"name": "greet"}], **self.more}
            case "prompts/get":
                return {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]}
            case _:
                return super().answer(request)

    def call(self, request: Request, name: str, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: PLR0912
        match name:
            case "count":
                self.count += 1
                return text_result(str(self.count))
            case "whoami":
                seen = {
                    "env": {key: value for key, value in os.environ.items() if key.startswith("HOLDFAST_")},
                    "meta": request.meta.get(META_KEY),
                    "initialize": request.initialize_meta.get(META_KEY),
                    "pid": os.getpid(),
                    "cwd": os.getcwd(),  # noqa: PTH109
                    "arguments": arguments,
                    "era": "modern" if request.is_modern else "handshake",
                    "keys": sorted(request.meta),
                    "all": request.meta,
                }
                return {"content": [], "structuredContent": seen}
            case "sleep":
                request.sleep(arguments["seconds"])
                return text_result("awake")
            case "die":
                print(arguments.get("stderr", "\x1b[31mlast words"), file=sys.stderr, flush=True)
                os._exit(3)
            case "linger":
                _report_progress(request, {"progress": 0})
                try:
                    request.sleep(600)
                except CancelledError:
                    self.cancelled.append(name)
                    raise
                return text_result("done")
            case "read":
                return text_result(_read(arguments["path"]))
            case "elicit":
                return text_result(_encode(self.ask("elicitation/create", arguments or QUESTION)))
            case "wants":
                if "inputResponses" in request.params:
                    return text_result(_encode(request.params["inputResponses"]))
                wanted = {"it": {"method": arguments["method"], "params": arguments.get("params", QUESTION)}}
                return {"resultType": "input_required", "inputRequests": wanted}
            case "mutter":
                print(arguments["stderr"], end=arguments.get("end", "\n"), file=sys.stderr, flush=True)
                request.sleep(0 if arguments.get("answers") else 600)
                return text_result("ok")
            case "received":
                return {"content": [], "structuredContent": self.received}
            case "cancelled":
                return text_result(" ".join(self.cancelled))
            case "fail":
                return text_result("it did not work", is_error=True)
            case "refuse":
                raise RpcError(INVALID_PARAMS, "not like this")
            case "progress":
                for step in range(3):
                    _report_progress(request, {"progress": step, "total": 3})
                return text_result("done")
            case "roots":
                return text_result(_encode(self.ask("roots/list")))
            case "sample":
                return text_result(_encode(self.ask("sampling/createMessage", arguments)))
            case "grow":
                self.extra.append(arguments["name"])
                request.notify("notifications/tools/list_changed", {})
                return text_result("grown")
            case "orphan":
                import subprocess

                code = "import os, signal, sys, time; os.setsid(); signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"
                child = subprocess.Popen(
                    [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
                )
                assert child.stdout
                return text_result(child.stdout.readline().decode().strip())
            case _:
                return text_result(f"{name} is new here")

    def on_end(self) -> None:
        if "--stubborn" in sys.argv:
            time.sleep(600)


def _report_progress(request: Request, params: dict[str, Any]) -> None:
    if "progressToken" in request.meta:
        params = {"progressToken": request.meta["progressToken"], **params}
        request.notify("notifications/progress", params)


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        return file.read()


def main() -> None:
    if "--slow" in sys.argv:
        time.sleep(0.3)
    if "--exits" in sys.argv:
        sys.exit(os.environ["LAST_WORDS"])
    if "--mute" in sys.argv:
        time.sleep(600)
    if "--stubborn" in sys.argv:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Counter().run()


if __name__ == "__main__":
    main()
