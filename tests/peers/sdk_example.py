"""The official Python SDK's `everything-server` example over HTTP, on a free port. HOLDFAST_SDK_EXAMPLE is its folder."""

import os
import signal
import socket
import sys
from importlib import import_module

import uvicorn


def end(*_: object) -> None:
    """uvicorn ends the connections, and then sends itself the signal again."""
    sys.exit(0)


if __name__ == "__main__":
    sys.path.insert(0, os.environ["HOLDFAST_SDK_EXAMPLE"])
    example = import_module("mcp_everything_server.server")
    app = example.mcp.streamable_http_app(event_store=example.event_store, retry_interval=100)
    sock = socket.create_server(("127.0.0.1", 0))
    signal.signal(signal.SIGTERM, end)
    print(f"listening url=http://127.0.0.1:{sock.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])
