"""Run a toolbox as a server, on stdio or over HTTP, until it is told to stop; then dispose of all it drives."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.believe import Belief, Strangers, Tokens, of_environment
from holdfast.toolkit.toolbox import Toolbox

log = logging.getLogger(__name__)

_GRACE = 5.0  # for handlers, when the client hung up
_HASTE = 0.5  # for handlers, when the server was told to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens, as whom, and whose tokens it takes."""

    host: str
    port: int
    path: str = "/mcp"
    hosts: tuple[str, ...] = ()
    """Further names that clients may know it by."""
    origins: tuple[str, ...] = ()
    """Pages of others that may use it."""
    public: str = ""
    """The address that hosts know it by, for tokens; its own when empty."""
    keys: Path | None = None
    """The host's public key set; without one nobody is identified."""
    strangers: bool = False
    """Whether callers without a token are let in all the same."""

    @property
    def url(self) -> str:
        """The address it is reached at."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


async def serve_stdio(box: Toolbox, *, allow_eval: bool = False) -> None:
    """Serve whoever started this process, until it hangs up or says stop."""
    from holdfast.wire.mcp.server import server_peer
    from holdfast.wire.pipe import over_stdio

    belief = of_environment(os.environ, box.aliases)
    peer = server_peer(box.answers(belief, allow_eval=allow_eval))
    async with _running(box) as stopped, over_stdio(peer, grace=_GRACE):
        belief.introduce()
        await _first(peer.ended, stopped)
        if stopped.is_set():
            await peer.close(grace=_HASTE)


async def serve_http(box: Toolbox, address: Address, *, allow_eval: bool = False) -> None:
    """Serve anybody who can reach the address, until told to stop."""
    from holdfast.toolkit.listen import bound, listen
    from holdfast.wire.http import LOOPBACK, Gate, HttpApp

    sock = bound(address.host, address.port)
    address = replace(address, port=sock.getsockname()[1])
    belief = belief_at(box, address)
    gate = Gate(
        hosts=LOOPBACK | {name.lower() for name in (address.host, *address.hosts)},
        origins=frozenset(address.origins),
    )
    app = HttpApp(box.answers(belief, allow_eval=allow_eval), gate=gate, path=address.path)
    async with _running(box) as stopped, listen(app, sock):
        belief.introduce()
        log.info("listening", extra={"url": address.url})
        await stopped.wait()
        app.close()


def belief_at(box: Toolbox, address: Address) -> Belief:
    """Whom a server over HTTP believes: the host whose key set it was given, or nobody."""
    strangers = Strangers(box.aliases)
    if address.keys is None:
        return strangers
    from holdfast.token import Verifier

    return Tokens(
        Verifier(address.keys), _audiences(address), strangers=strangers if address.strangers else None
    )


def _audiences(address: Address) -> set[str]:
    """The addresses that tokens for this server are for."""
    from holdfast.token import audience_of
    from holdfast.wire.http import LOOPBACK

    if address.public:
        return {audience_of(address.public)}
    if address.host in ("0.0.0.0", "::"):
        raise HoldfastError(
            codes.BAD_ARGUMENT, "With --keys, say by --public under which address the host knows this server."
        )
    own = audience_of(address.url)
    names = LOOPBACK if address.host in {name.strip("[]") for name in LOOPBACK} else set[str]()
    return {own, *(audience_of(f"http://{name}:{address.port}{address.path}") for name in names)}


@asynccontextmanager
async def _running(box: Toolbox) -> AsyncIterator[asyncio.Event]:
    """Set on SIGINT and SIGTERM; whatever happens, what is driven is disposed of at the end."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        await box.dispose()


async def _first(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
