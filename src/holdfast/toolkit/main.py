"""The command line of a toolbox."""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import HoldfastError
from holdfast.toolkit.serve import HttpOptions, serve_http, serve_stdio
from holdfast.toolkit.toolbox import Toolbox

if TYPE_CHECKING:
    from argparse import Namespace

_ONLY_OVER_HTTP = ("keys", "public", "allow_anonymous", "allow_host", "allow_origin")


def main(box: Toolbox, arguments: Sequence[str] | None = None) -> None:
    """Run the command line. After a `HoldfastError`, print its message and hint, and exit with status 1."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _run(box, words)
    except HoldfastError as error:
        sys.exit(f"Error: {error}\nHint: {error.hint} [{error.code.name}]")


def _run(box: Toolbox, words: list[str]) -> None:
    if not words:  # the common case needs no parser
        _configure_logging()
        asyncio.run(serve_stdio(box))
        return
    options = _parse_arguments(box, words)
    box.plug_in(*options.plugin)
    if options.command == "manifest":
        _print_manifest(box.manifest())
        return
    _configure_logging()
    if options.http is None:
        asyncio.run(serve_stdio(box, allow_eval=options.allow_eval))
        return
    _event_loop_runner()(
        serve_http(
            box,
            _http_options(options),
            allow_eval=options.allow_eval,
            on_listening=partial(_print_how_to_connect, box.name),
        )
    )


def _parse_arguments(box: Toolbox, words: list[str]) -> "Namespace":
    from argparse import ArgumentParser

    parser = ArgumentParser(prog=box.name, description=f"{box.name} {box.version}: an MCP server.")
    parser.add_argument(
        "command",
        nargs="?",
        choices=["serve", "manifest"],
        default="serve",
        help="serve (the default), or print the tools, resources, prompts and error codes as JSON",
    )
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="serve over HTTP, at /mcp, instead of standard input and output"
    )
    parser.add_argument("--allow-eval", action="store_true", help="offer the tools that evaluate code")
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="add the tools, resources and prompts of this plugin",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="FILE",
        help="the public key set of the Holdfast host, to verify its tokens",
    )
    parser.add_argument(
        "--public",
        default="",
        metavar="URL",
        help="the URL of this server in the Holdfast host's mcp.json, if it is not http://HOST:PORT/mcp",
    )
    parser.add_argument(
        "--allow-anonymous", action="store_true", help="with --keys: accept callers without a token too"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="answer to this host name too"
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="URL",
        help="accept requests from web pages of this origin",
    )
    options = parser.parse_args(words)
    ignored = [f"--{name.replace('_', '-')}" for name in _ONLY_OVER_HTTP if getattr(options, name)]
    if ignored and options.http is None:
        parser.error(f"{', '.join(ignored)} can only be used over HTTP: add --http HOST:PORT.")
    return options


def _http_options(options: "Namespace") -> HttpOptions:
    host, _, port = options.http.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        sys.exit("Error: --http needs HOST:PORT, for example 127.0.0.1:8080.")
    return HttpOptions(
        host=host.strip("[]") or "127.0.0.1",
        port=int(port),
        hosts=tuple(options.allow_host),
        origins=tuple(options.allow_origin),
        public_url=options.public,
        keys=options.keys,
        allow_anonymous=options.allow_anonymous,
    )


def _print_how_to_connect(name: str, options: HttpOptions) -> None:
    """Print what to paste into a client, unless the log is JSON."""
    if os.environ.get("HOLDFAST_LOG_FORMAT") == "json":
        return
    import json
    import shlex

    url = options.public_url or replace(options, host=_reachable_host(options.host)).url
    entry = json.dumps({"mcpServers": {name: {"type": "http", "url": url}}}, ensure_ascii=False)
    lines = [f"  mcp.json     {entry}"]
    if options.keys is None or options.allow_anonymous:
        lines.append(f"  Claude Code  claude mcp add --transport http {shlex.quote(name)} {shlex.quote(url)}")
        lines.append(f"  a browser    npx @modelcontextprotocol/inspector, then connect to {url}")
    else:
        lines.append("  Only the Holdfast host can call this server, with the tokens that it signs (--keys).")
    sys.stderr.write("\n".join((f"{name}: connect to {url}", *lines, "  Press Ctrl-C to stop.", "")))
    sys.stderr.flush()


def _reachable_host(host: str) -> str:
    """The host to connect to: loopback, if the server listens on all addresses of this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _event_loop_runner() -> Any:
    """`uvloop.run` if uvloop is installed, else `asyncio.run`."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _print_manifest(manifest: dict[str, Any]) -> None:
    import json

    sys.stdout.write(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def _configure_logging() -> None:
    from holdfast import log_output

    level = os.environ.get("HOLDFAST_LOG_LEVEL")
    log_format = os.environ.get("HOLDFAST_LOG_FORMAT")
    log_output.configure(
        level if level in ("debug", "warning", "error") else "info",
        "json" if log_format == "json" else "human",
    )
