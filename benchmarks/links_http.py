"""Remote links: memory of an idle link and time of a warm call, compared with the official SDK's client.

Both sides talk to the same light server in a process of its own. Memory is measured in a fresh process per side.
"""

import asyncio
import gc
import json
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import msgspec
from mcp.client.client import Client as SdkClient
from mcp_types import TextContent

from benchmarks.result import Result
from holdfast.connect.connection import Connection, ConnectOptions
from holdfast.connect.http.remote_connector import RemoteConnector
from holdfast.connect.link_pool import LinkPool
from holdfast.connect.scope import Scope
from holdfast.connect.server_requests import ServerRequests
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.model.context import SessionContext, context_meta
from holdfast.model.ids import new_session_id
from holdfast.model.server import Http, ServerSpec, Source
from holdfast.model.trust import Trust
from holdfast.token.signer import Signer
from holdfast.wire.mcp.eras import Era

LINKS = 200
ROUNDS = 5
SECONDS = 0.7
CALLS = 1000
TEXT = "x" * 200
SERVER = Path(__file__).resolve().parent / "servers" / "web.py"
ERAS = {"modern": Era.MODERN, "handshake": Era.HANDSHAKE}


def results() -> list[Result]:
    found: list[Result] = []
    with light_server() as url:
        for era in ERAS:
            ours, peer = (in_a_process("memory", side, era, url) for side in ("ours", "sdk"))
            found.append(_result(f"idle_link.{era}", "kB", "<= 0.25", ours, peer))
        figures: dict[tuple[str, str], list[float]] = {}
        for _ in range(ROUNDS):
            for era in ERAS:
                for side in ("ours", "sdk"):
                    figures.setdefault((era, side), []).append(in_a_process("p50", side, era, url))
        for era in ERAS:
            ours, peer = (statistics.median(figures[era, side]) for side in ("ours", "sdk"))
            found.append(_result(f"p50.{era}", "ms", "<= 0.55", ours, peer))
        for era in ERAS:
            many, one = (in_a_process("cpu", count, era, url) for count in (str(LINKS), "1"))
            found.append(
                Result(
                    name=f"links.http.cpu_per_call.{era}",
                    ours=many,
                    peer=one,
                    peer_name=f"1 link; ours: {LINKS} in turn",
                    unit="ms",
                    goal="<= 1.2",
                )
            )
    return found


def _result(name: str, unit: str, goal: str, ours: float, peer: float) -> Result:
    return Result(
        name=f"links.http.{name}", ours=ours, peer=peer, peer_name="mcp SDK client", unit=unit, goal=goal
    )


@contextmanager
def light_server() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
    finally:
        process.kill()
        process.wait()


def in_a_process(what: str, side: str, era: str, url: str) -> float:
    """Measure in a new process. `side` is `ours` or `sdk`; for `cpu`, it is the number of links."""
    command = [sys.executable, "-m", __name__, what, side, era, url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout))


@asynccontextmanager
async def our_links(url: str, era: Era, signer: Signer | None = None) -> AsyncIterator[Any]:
    """Open links as a host does, each in a scope of its own."""

    class Known(dict[str, Era]):  # every server is known to have this era
        def get(self, key: str, default: Any = None) -> Any:
            return era

    options = ConnectOptions(eras=Known(), end_seconds=0.1)
    spec = ServerSpec(name="web", source=Source.USER, transport=Http(url=url))
    with TemporaryDirectory() as folder:
        keys = Path(folder)
        async with RemoteConnector(
            signer=signer or Signer(keys / "keys"), logins=keys / "oauth", obtained=ObtainedSecrets()
        ) as remote:
            links = LinkPool(
                lambda spec, scope: remote.open(
                    spec,
                    scope,
                    server_requests=ServerRequests(spec, scope),
                    meta=_meta(scope),
                    options=options,
                )
            )

            async def opened() -> Connection:
                context = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT, cwd="/")
                return (await links.connect(Scope(context), spec))[1]

            try:
                yield opened
            finally:
                await links.close()


def _meta(scope: Scope | None) -> Any:
    return context_meta(scope.context) if scope is not None else {}


async def memory(side: str, era: Era, url: str) -> float:
    """Kilobytes per idle link."""
    if side == "ours":
        async with our_links(url, era) as opened:
            return await _grown(opened)
    async with AsyncExitStack() as stack:

        async def opened() -> Any:
            return await stack.enter_async_context(SdkClient(url, mode=_mode(era)))

        return await _grown(opened)


async def _grown(opened: Any) -> float:
    for _ in range(3):
        await opened()
    before = _resident()
    for _ in range(LINKS):
        await opened()
    await asyncio.sleep(0.5)
    gc.collect()
    return (_resident() - before) / LINKS


def _resident() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1])
    raise AssertionError("no VmRSS")


async def p50(side: str, era: Era, url: str) -> float:
    """Milliseconds of a warm call."""
    if side == "ours":
        arguments = msgspec.Raw(msgspec.json.encode({"text": TEXT}))
        async with our_links(url, era) as opened:
            connection = await opened()

            async def ours() -> str:
                result = await connection.call("echo", arguments)
                return msgspec.json.decode(result.content[0])["text"]

            return await _median(ours)
    async with SdkClient(url, mode=_mode(era)) as client:

        async def sdk() -> str:
            (block,) = (await client.call_tool("echo", {"text": TEXT})).content
            assert isinstance(block, TextContent)
            return block.text

        return await _median(sdk)


async def cpu(links: str, era: Era, url: str) -> float:
    """Milliseconds of CPU per call, over each link in turn; the best of several rounds."""
    arguments = msgspec.Raw(msgspec.json.encode({"text": TEXT}))
    async with our_links(url, era) as opened:
        connections = [await opened() for _ in range(int(links))]
        best = float("inf")
        for _ in range(ROUNDS + 1):
            began = process_time()
            for connection in islice(cycle(connections), CALLS):
                await connection.call("echo", arguments)
            best = min(best, (process_time() - began) / CALLS)
    return best * 1000


async def _median(call: Any) -> float:
    assert await call() == TEXT
    times: list[float] = []
    for seconds, kept in ((SECONDS / 3, False), (SECONDS, True)):
        until = perf_counter() + seconds
        while (began := perf_counter()) < until:
            await call()
            if kept:
                times.append(perf_counter() - began)
    return statistics.median(times) * 1000


def _mode(era: Era) -> Any:
    return "legacy" if era is Era.HANDSHAKE else "auto"


if __name__ == "__main__":
    what, side, era, url = sys.argv[1:]
    measure = {"memory": memory, "p50": p50, "cpu": cpu}[what]
    print(json.dumps(asyncio.run(measure(side, ERAS[era], url))))
