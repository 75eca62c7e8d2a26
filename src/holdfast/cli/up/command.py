"""`holdfast up`: reads the options, then serves MCP clients."""

import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command_name import command_name
from holdfast.cli.options import json_lines_option
from holdfast.cli.up.client_configs import CLIENTS
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    import socket

    from holdfast.cli.up.serve import UpOptions

_CHECK_SECONDS = 3.0  # the check of a large store stops after this time
_TOKEN_LIFETIME = "52w"  # the message below says: a year


@click.command()
@click.option(
    "--cwd",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="The folder of the sessions. Default: the current folder. A token can name another one.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The port; 0 chooses a free one. Default: the setting gateway.port.",
)
@click.option(
    "--host",
    "address",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The address to listen on. If it is not loopback, other machines can connect.",
)
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="A host name that clients may use. Can be repeated."
)
@click.option(
    "--public-url",
    metavar="URL",
    help="The URL of a proxy in front of the gateway, such as https://mcp.example.org/mcp. Its host and origin are allowed.",
)
@click.option(
    "--allow-origin",
    multiple=True,
    metavar="ORIGIN",
    help="The origin of web pages that may connect, such as https://app.example.org. Can be repeated.",
)
@click.option(
    "--print-config",
    type=click.Choice([*CLIENTS]),
    help="Create a token, print the configuration of this client with it, and exit.",
)
@click.option(
    "--no-tokens", is_flag=True, help="Accept every local client without a token. Only on loopback."
)
@click.option(
    "--mode",
    type=click.Choice(["ask", "auto", "read-only"]),
    help="With --no-tokens: the permission mode of the sessions. Default: ask.",
)
@click.option(
    "--demo",
    is_flag=True,
    help="Show how the sessions of two clients differ, and exit. Takes less than a minute.",
)
@json_lines_option
def up(**options: Any) -> None:
    """Serve MCP clients at one URL; every client session gets its own servers.

    Each client presents a token (see `holdfast tokens`). As in an editor or a chat, every call is recorded and audited, and
    servers that are not trusted are confined. The servers are those that `holdfast servers list` shows, except the built-in
    ones: the setting gateway.builtin adds these.

    \b
    Examples:
      holdfast up
      holdfast up --print-config claude-code
      holdfast up --cwd ~/blog --port 8080
      holdfast up --demo
    """
    if options["demo"]:
        _run_demo(as_json=options["as_json"])
        return
    _check_no_tokens(options)
    if options["print_config"]:
        _print_config(options)
    else:
        _serve(options)


def _serve(given: dict[str, Any]) -> None:
    from holdfast import log_output, settings
    from holdfast.cli.exit_deadline import ExitDeadline
    from holdfast.cli.up.printer import HumanPrinter, JsonPrinter
    from holdfast.cli.up.serve import UpOptions, serve
    from holdfast.host.data_folder import DATABASE_FILE, check_data_folder
    from holdfast.model.descriptor_limit import raise_descriptor_limit
    from holdfast.model.own_ports import hold_port
    from holdfast.store.maintenance import check_quickly
    from holdfast.store.suspension import suspend_between_transactions

    loaded = settings.load()
    log_output.configure(loaded.log.level, loaded.log.format)
    check_data_folder(loaded.data_dir)
    # With a damaged store, every client would get an error.
    check_quickly(loaded.data_dir / DATABASE_FILE, _CHECK_SECONDS)
    port = loaded.gateway.port if given["port"] is None else given["port"]
    options = UpOptions(
        address=given["address"],
        port=port,
        cwd=given["cwd"].absolute(),
        hosts=(*given["allow_host"], *([_public_host(given)] if given["public_url"] else [])),
        origins=(*given["allow_origin"], *([_public_origin(given)] if given["public_url"] else [])),
        local=_local_credential(given),
        public_url=_public_url(given),
        print_config_options=_print_config_options(given),
    )
    sock = _bind(options)
    # The settings need the actual port: web pages in the browsers of sessions must not reach it.
    loaded = replace(loaded, gateway=replace(loaded.gateway, port=sock.getsockname()[1]))
    raise_descriptor_limit()
    suspend_between_transactions()
    printer = JsonPrinter() if given["as_json"] else HumanPrinter()
    with hold_port(loaded.data_dir, loaded.gateway.port), ExitDeadline() as deadline:
        run = _find_run_function()
        run(serve(loaded, options, sock, printer, deadline.start))


def _bind(options: "UpOptions") -> "socket.socket":
    from holdfast.toolkit.http_server import bind

    try:
        return bind(options.address, options.port)
    except HoldfastError as error:
        raise HoldfastError(
            error.code,
            error.message,
            hint=f"Choose another port, for example: {command_name()} up --port 0 (a free one). If an earlier `up` still runs, stop it first.",
        ) from None


def _find_run_function() -> Callable[[Coroutine[Any, Any, None]], None]:
    """`uvloop.run` if uvloop is installed, else `asyncio.run`."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.run
    return uvloop.run


def _check_no_tokens(given: dict[str, Any]) -> None:
    """Raise if `--no-tokens` would let other machines or web pages use the servers, or if `--mode` is given without it."""
    from holdfast.cli.up.serve import is_loopback

    if given["mode"] is not None and not given["no_tokens"]:
        raise click.UsageError(
            "--mode needs --no-tokens. To give a token a mode: holdfast tokens create NAME --mode MODE"
        )
    if given["no_tokens"] and not is_loopback(given["address"]):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"--no-tokens works on loopback only: anyone who can reach {given['address']} could use your servers.",
            hint="Leave out --no-tokens, or leave out --host.",
        )
    for option in ("--allow-host", "--public-url"):
        if given["no_tokens"] and given[option.removeprefix("--").replace("-", "_")]:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"--no-tokens cannot be combined with {option}: anyone who can reach that host name could use your servers.",
                hint=f"Leave out --no-tokens, or leave out {option}.",
            )
    for origin in given["allow_origin"]:
        if given["no_tokens"] and not _is_local_page(origin):
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"--no-tokens cannot be combined with --allow-origin {origin}: its pages could use your servers.",
                hint="Leave out --no-tokens, or allow only origins on this machine, such as http://localhost:6274.",
            )


def _is_local_page(origin: str) -> bool:
    from urllib.parse import urlsplit

    from holdfast.cli.up.serve import is_loopback

    try:
        return is_loopback(urlsplit(origin).hostname or "")
    except ValueError:
        return False


def _local_credential(given: dict[str, Any]) -> Any:
    """With `--no-tokens`, the credential of all clients; else None."""
    if not given["no_tokens"]:
        return None
    from holdfast.gateway.credential import LOCAL
    from holdfast.model.permission import Mode

    return replace(
        LOCAL,
        mode=None if given["mode"] is None else Mode(given["mode"]),
        how_to_stop_asking="the operator can add --mode auto to the command that starts the gateway, `holdfast up --no-tokens`",
    )


def _print_config(given: dict[str, Any]) -> None:
    """Create a token for a client, and print its configuration. Explanations go to standard error."""
    from holdfast import settings
    from holdfast.cli.output import print_json, print_line
    from holdfast.cli.tokens import create_token, parse_expiry
    from holdfast.gateway.credential import Credential

    client = CLIENTS[given["print_config"]]
    port = settings.load().gateway.port if given["port"] is None else given["port"]
    url = _public_url(given) or f"http://{_url_host(given)}:{port}/mcp"
    token: str | None = None
    token_id = ""
    if not given["no_tokens"]:
        is_cwd_given = given["cwd"] != Path()
        cwd = str(given["cwd"].absolute()) if is_cwd_given else ""
        expires_at = parse_expiry(_TOKEN_LIFETIME, time.time())
        credential = Credential(id="", name=given["print_config"], cwd=cwd, expires_at=expires_at)
        token, stored = create_token(credential)
        token_id = stored.id
    text = client.make_text(url, token)
    if given["as_json"]:
        print_json(
            {
                "client": given["print_config"],
                "url": url,
                "token": token,
                "token_id": token_id,
                "config": text,
            }
        )
        return
    for row in text.splitlines():
        print_line(row)
    print_line(f"This goes into {client.place}.", err=True)
    if token_id:
        revoke = " ".join((command_name(), "tokens", "revoke", token_id))
        print_line(
            f"It contains a new token, {token_id}, which expires in a year. To revoke it: {revoke}", err=True
        )


def _print_config_options(given: dict[str, Any]) -> tuple[str, ...]:
    """The options to add to `--print-config`, so that it prints the URL of this gateway."""
    options = () if given["port"] is None else ("--port", str(given["port"]))
    if given["public_url"]:
        return ("--public-url", given["public_url"])
    if given["address"] != "127.0.0.1":
        options = (*options, "--host", given["address"])
    for name in given["allow_host"]:
        options = (*options, "--allow-host", name)
    return options


def _public_url(given: dict[str, Any]) -> str:
    """The URL in `--public-url`, with the path of the gateway if it has none; empty if the option is not given."""
    from urllib.parse import urlsplit

    text: str | None = given["public_url"]
    if text is None:
        return ""
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url, parts = False, urlsplit("")
    if not is_url or "@" in parts.netloc or parts.query or parts.fragment:
        raise click.BadParameter(
            "give a URL such as https://mcp.example.org/mcp.", param_hint="'--public-url'"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/mcp'}"


def _public_origin(given: dict[str, Any]) -> str:
    """The origin of the web pages at `--public-url`."""
    from urllib.parse import urlsplit

    parts = urlsplit(_public_url(given))
    return f"{parts.scheme}://{parts.netloc}"


def _public_host(given: dict[str, Any]) -> str:
    """The host of `--public-url`, as in the header `Host`, without a port."""
    from urllib.parse import urlsplit

    host = urlsplit(_public_url(given)).hostname or ""
    return f"[{host}]" if ":" in host else host


def _url_host(given: dict[str, Any]) -> str:
    """The host in the URL that clients use, if there is no `--public-url`."""
    if given["allow_host"]:
        return str(given["allow_host"][0])
    given_address = str(given["address"])
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(given_address, given_address)
    return f"[{address}]" if ":" in address else address


def _run_demo(*, as_json: bool) -> None:
    from holdfast.cli.up.demo import run_demo

    run_demo(as_json=as_json)
