"""A gateway as a process, without tokens, for clients that run as processes of their own.

python -m tests.gateway.gateway_process --http 127.0.0.1:0 '{"name": {"command": …}}' [--bare-names]
"""

import asyncio
import json
import signal
import sys
import tempfile
from pathlib import Path

from holdfast import Host, settings
from holdfast.gateway import Credential, GatewayOptions, app
from holdfast.model.permission import Mode
from holdfast.toolkit.http_server import bind, serve_app


async def serve(servers: str) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with tempfile.TemporaryDirectory() as folder:
        data, project = Path(folder) / "data", Path(folder) / "project"
        project.mkdir()
        loaded = settings.load(
            environ={"HOLDFAST_DATA_DIR": str(data), "HOME": folder, "PATH": "/usr/bin:/bin"}
        )
        async with Host(servers=json.loads(servers), settings=loaded) as host:
            credential = Credential(id="test", mode=Mode.AUTO)
            options = GatewayOptions(cwd=project, bare_names="--bare-names" in sys.argv or None)
            gateway = app(host, authenticate=lambda headers, client_address: credential, options=options)
            sock = bind("127.0.0.1", 0)
            async with serve_app(gateway, sock):
                print(
                    f"listening url=http://127.0.0.1:{sock.getsockname()[1]}/mcp", file=sys.stderr, flush=True
                )
                await stopped.wait()
                await gateway.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[3]))
