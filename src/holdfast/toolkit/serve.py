"""Run a toolbox as a server, on stdio or over HTTP, until it is stopped; then dispose of its driven sessions."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.authentication import (
    AnonymousAuthenticator,
    Authenticator,
    TokenAuthenticator,
    authenticator_from_env,
)
from holdfast.toolkit.failures import drop_own_frames
from holdfast.toolkit.tool_server import ToolServer
from holdfast.toolkit.toolbox import Toolbox

if TYPE_CHECKING:
    from holdfast.wire.http import AllowedHosts

log = logging.getLogger(__name__)

_HANGUP_GRACE = 5.0  # seconds that running handlers get after the client has disconnected
_STOP_GRACE = 0.5  # seconds that running handlers get after SIGINT or SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Where a server over HTTP listens, which clients it accepts, and how it verifies their tokens."""

    host: str
    """The address to listen on."""
    port: int
    path: str = "/mcp"
    hosts: tuple[str, ...] = ()
    """Additional host names that the server answers to."""
    origins: tuple[str, ...] = ()
    """Origins, besides the server's own, whose web pages may send requests."""
    public_url: str = ""
    """The URL that the Holdfast host uses for this server and signs tokens for; empty if it is the same as `url`."""
    keys: Path | None = None
    """The file with the Holdfast host's public key set; if it is None, all callers are anonymous."""
    allow_anonymous: bool = False
    """With `keys`: whether callers without a token are accepted, as anonymous callers."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


async def serve_stdio(box: Toolbox, *, allow_eval: bool = False) -> None:
    """Serve the client that started this process, until it closes the connection or a signal stops the server."""
    from holdfast.wire.mcp.server import server_peer
    from holdfast.wire.pipe import connect_stdio, take_stdio

    stdio = take_stdio()  # now, because the lifespan may print
    authenticator = authenticator_from_env(os.environ, box.aliases)
    server = box.server(authenticator, allow_eval=allow_eval)
    peer = server_peer(server)
    async with (
        _run_until_stopped(box, server) as stopped,
        connect_stdio(peer, grace=_HANGUP_GRACE, stdio=stdio),
    ):
        authenticator.log_identity_source()
        await _wait_for_first(peer.ended, stopped)
        server.end_streams()
        if stopped.is_set():
            await peer.close(grace=_STOP_GRACE)


async def serve_http(
    box: Toolbox,
    options: HttpOptions,
    *,
    allow_eval: bool = False,
    on_listening: Callable[[HttpOptions], None] | None = None,
) -> None:
    """Serve clients over HTTP, until a signal stops the server.

    `on_listening` gets the options with the port that was chosen, if it was 0.
    """
    from holdfast.toolkit.health import with_health
    from holdfast.toolkit.http_server import bind, serve_app
    from holdfast.wire.http import HttpApp

    allowed_hosts = find_allowed_hosts(options)
    sock = bind(options.host, options.port)
    options = replace(options, port=sock.getsockname()[1])
    authenticator = http_authenticator(box, options)
    server = box.server(authenticator, allow_eval=allow_eval)
    app = HttpApp(server, allowed_hosts=allowed_hosts, path=options.path)
    async with _run_until_stopped(box, server) as stopped, serve_app(with_health(app), sock):
        authenticator.log_identity_source()
        log.info("listening", extra={"url": options.url})
        if on_listening is not None:
            on_listening(options)
        await stopped.wait()
        server.end_streams()
        app.close()


def find_allowed_hosts(options: HttpOptions) -> "AllowedHosts":
    """The hosts and origins that a server over HTTP accepts. Raise BAD_ARGUMENT if a name in the options is not valid."""
    from holdfast.wire.http import LOOPBACK, AllowedHosts
    from holdfast.wire.http.allowed_hosts import parse_host, parse_origin

    address = f"[{options.host}]" if ":" in options.host else options.host
    return AllowedHosts(
        hosts=LOOPBACK | {address.lower(), *(parse_host(host, "--allow-host") for host in options.hosts)},
        origins=frozenset(parse_origin(origin, "--allow-origin") for origin in options.origins),
    )


def http_authenticator(box: Toolbox, options: HttpOptions) -> Authenticator:
    """The authenticator of a server over HTTP: with a key set it verifies tokens, else all callers are anonymous."""
    anonymous = AnonymousAuthenticator(box.aliases)
    if options.keys is None:
        return anonymous
    from holdfast.token import Verifier

    return TokenAuthenticator(
        Verifier(options.keys), _audiences(options), anonymous=anonymous if options.allow_anonymous else None
    )


def _audiences(options: HttpOptions) -> set[str]:
    """The audiences that tokens for this server may have."""
    from holdfast.token import audience_of
    from holdfast.wire.http import LOOPBACK

    if options.public_url:
        return {audience_of(options.public_url)}
    if options.host in ("0.0.0.0", "::"):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"With --keys and the address {options.host}, add --public URL: the URL in this server's entry in the Holdfast host's mcp.json.",
        )
    listening = audience_of(options.url)
    names = LOOPBACK if options.host in {name.strip("[]") for name in LOOPBACK} else set[str]()
    return {listening, *(audience_of(f"http://{name}:{options.port}{options.path}") for name in names)}


@asynccontextmanager
async def _run_until_stopped(box: Toolbox, server: ToolServer) -> AsyncIterator[asyncio.Event]:
    """Start the lifespan, and yield an event that SIGINT and SIGTERM set. When the block ends, close what calls have used."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        await _start(box, server, stopped)
        yield stopped
    finally:
        try:
            await box.dispose()
        finally:
            await server.close()


async def _start(box: Toolbox, server: ToolServer, stopped: asyncio.Event) -> None:
    """Start the lifespans, or return early if a signal stops the server. If a lifespan fails, log where, and raise INTERNAL_ERROR."""
    tasks = [asyncio.ensure_future(server.start()), asyncio.ensure_future(stopped.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    except HoldfastError:
        raise
    except Exception as error:
        drop_own_frames(error)
        log.error("the lifespan failed", exc_info=error)
        raise HoldfastError(
            codes.INTERNAL_ERROR,
            f"{box.name!r} does not start: its lifespan failed with {type(error).__name__}: {error}",
            hint="Correct the lifespan. The log above says where it failed.",
        ) from None
    finally:
        for task in tasks:
            task.cancel()


async def _wait_for_first(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
