"""The gateway in front of one stdio server: gateway.py <memory|durable> <handles> <command…>. Prints its URL and the handles."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import uvloop

from holdfast import Host, settings
from holdfast.gateway import Credential, GatewayOptions, app
from holdfast.model.permission import Mode
from holdfast.store.memory import MemoryStore
from holdfast.toolkit.http_server import bind, serve_app
from holdfast.wire.http.limits import HttpLimits

MANY = HttpLimits(sessions_per_caller=10_000)


async def main(store: str, handles: int, command: list[str]) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    with tempfile.TemporaryDirectory() as folder:
        config, cwd = Path(folder) / "config.toml", Path(folder) / "project"
        config.touch()
        cwd.mkdir()
        environ = {
            **os.environ,
            "HOLDFAST_DATA_DIR": str(Path(folder) / "data"),
            "HOLDFAST_LINKS_MAX_OPEN": "2000",
        }
        async with Host(
            settings=settings.load(config, environ),
            servers={"echo": {"command": command[0], "args": command[1:]}},
            store=MemoryStore() if store == "memory" else None,
        ) as host:
            credential = Credential(id="bench", mode=Mode.AUTO)
            options = GatewayOptions(cwd=cwd, http_limits=MANY)
            gateway = app(host, authenticate=lambda headers, peer: credential, options=options)
            issued = [gateway.issue_handle(credential) for _ in range(handles)]
            sock = bind("127.0.0.1", 0)
            async with serve_app(gateway, sock):
                url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
                print(json.dumps({"url": url, "handles": issued}), flush=True)
                await stopped.wait()
                await gateway.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
