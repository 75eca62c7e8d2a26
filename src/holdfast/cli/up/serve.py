"""Serve MCP clients until a signal arrives; then finish running calls and stop."""

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.cli.up.printer import GatewayUrls, Printer, ServerNames
from holdfast.gateway.credential import Credential
from holdfast.gateway.open_gateway import Gateway, open_gateway
from holdfast.gateway.options import GatewayOptions
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.settings import Settings
from holdfast.toolkit.http_server import serve_app
from holdfast.wire.http.allowed_hosts import LOOPBACK, AllowedHosts

DRAIN_SECONDS = 10.0
"""How long running calls may take to finish when the gateway stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The options of `holdfast up` that the gateway needs."""

    address: str
    port: int
    cwd: Path
    hosts: tuple[str, ...] = ()
    """Additional host names that clients may use."""
    origins: tuple[str, ...] = ()
    """The origins of web pages that may connect."""
    local: Credential | None = None
    """The credential of all clients, if there are no tokens."""
    public_url: str = ""
    """The URL of a proxy in front of the gateway; empty if there is none."""
    print_config_options: tuple[str, ...] = ()
    """The options to add to `--print-config`, so that it prints the URL of this gateway."""


async def serve(
    settings: Settings, options: UpOptions, sock: socket.socket, printer: Printer, on_end: Callable[[], None]
) -> None:
    """Serve on a bound socket until SIGINT or SIGTERM, then let running calls finish. A second signal cancels them."""
    stopped = asyncio.Event()
    task = asyncio.current_task()

    def stop() -> None:
        if stopped.is_set() and task is not None:
            task.cancel()
        stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        await _serve_until(stopped, settings, options, sock, printer, on_end)
    except asyncio.CancelledError:
        if not stopped.is_set():
            raise
        # The second signal: the host has closed its sessions.


async def _serve_until(
    stopped: asyncio.Event,
    settings: Settings,
    options: UpOptions,
    sock: socket.socket,
    printer: Printer,
    on_end: Callable[[], None],
) -> None:
    gateway_options = GatewayOptions(
        cwd=options.cwd, allowed_hosts=_allowed_hosts(options), on_change=printer.session
    )
    async with Host(settings=settings) as host:
        servers = await _find_servers(host, options.cwd)
        async with (
            open_gateway(host, gateway_options, local=options.local) as gateway,
            serve_app(gateway.asgi, sock),
        ):
            url = url_of(options.address, sock)
            port = str(sock.getsockname()[1])
            # Port 0 stands for a free port, which is known now.
            print_config_options = tuple(
                port if option == "0" else option for option in options.print_config_options
            )
            printer.ready(
                GatewayUrls(local=url, public=options.public_url),
                servers,
                without_tokens=options.local is not None,
                print_config_options=print_config_options,
            )
            await stopped.wait()
            on_end()
            await _drain(gateway, printer)


def url_of(address: str, sock: socket.socket) -> str:
    """The URL that clients on this machine use."""
    port = sock.getsockname()[1]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def is_loopback(address: str) -> bool:
    """Whether only programs on this machine can reach the address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


async def _drain(gateway: Gateway, printer: Printer) -> None:
    """Open no more sessions, let running calls finish, then end the sessions and their streams."""
    printer.stopping(len(gateway.app.open_sessions()))
    await gateway.app.drain(DRAIN_SECONDS)
    await gateway.app.close("holdfast up was stopped")


async def _find_servers(host: Host, cwd: Path) -> ServerNames:
    builtins = frozenset(host.settings.gateway.builtin)
    _, resolution = await host.plan(OpenOptions(cwd=cwd, opened_by="gateway", mode=None, builtins=builtins))
    names = tuple(server.name for server in resolution.servers)
    return ServerNames(
        folder=str(cwd),
        names=names,
        refused={refusal.server: refusal.reason for refusal in resolution.refusals},
    )


def _allowed_hosts(options: UpOptions) -> AllowedHosts:
    address = f"[{options.address}]" if ":" in options.address else options.address
    own = frozenset[str]() if options.address in ("0.0.0.0", "::") else {address.lower()}
    return AllowedHosts(
        hosts=LOOPBACK | own | {name.lower() for name in options.hosts},
        origins=frozenset(options.origins),
        own_origin_only=True,
    )
