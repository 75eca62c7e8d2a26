"""The command line that every toolbox has."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import HoldfastError
from holdfast.toolkit.serve import Address, serve_http, serve_stdio
from holdfast.toolkit.toolbox import Toolbox

if TYPE_CHECKING:
    from argparse import Namespace


def main(box: Toolbox, arguments: Sequence[str] | None = None) -> None:
    """Do what the command line says; a failure a person can act on is a sentence and a hint."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _run(box, given)
    except HoldfastError as error:
        sys.exit(f"Error: {error}\nHint: {error.code.hint} [{error.code.name}]")


def _run(box: Toolbox, given: list[str]) -> None:
    if not given:  # the common case needs no parser
        _log()
        asyncio.run(serve_stdio(box))
        return
    options = _parsed(box, given)
    box.plug_in(*options.plugin)
    if options.command == "manifest":
        _print(box.manifest())
        return
    _log()
    if options.http is None:
        asyncio.run(serve_stdio(box, allow_eval=options.allow_eval))
        return
    _fast_loop()(serve_http(box, _address(options), allow_eval=options.allow_eval))


def _parsed(box: Toolbox, given: list[str]) -> "Namespace":
    from argparse import ArgumentParser

    parser = ArgumentParser(
        prog=box.name, description=f"{box.name} {box.version}: an MCP server on standard input and output."
    )
    parser.add_argument("command", nargs="?", choices=["serve", "manifest"], default="serve")
    parser.add_argument("--http", metavar="HOST:PORT", help="serve over HTTP instead, at /mcp")
    parser.add_argument("--allow-eval", action="store_true", help="offer the tools that evaluate code")
    parser.add_argument(
        "--plugin", action="append", default=[], metavar="NAME", help="take in a plugin's tools"
    )
    parser.add_argument(
        "--keys", type=Path, metavar="FILE", help="the host's public key set: believe its tokens"
    )
    parser.add_argument(
        "--public", default="", metavar="URL", help="the address that the host knows this server by"
    )
    parser.add_argument(
        "--allow-strangers", action="store_true", help="with --keys: let callers without a token in"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="answer to this name too"
    )
    parser.add_argument(
        "--allow-origin", action="append", default=[], metavar="URL", help="let this page's scripts in"
    )
    return parser.parse_args(given)


def _address(options: "Namespace") -> Address:
    host, _, port = options.http.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        sys.exit("Error: --http wants HOST:PORT, as in 127.0.0.1:8080.")
    return Address(
        host=host.strip("[]") or "127.0.0.1",
        port=int(port),
        hosts=tuple(options.allow_host),
        origins=tuple(options.allow_origin),
        public=options.public,
        keys=options.keys,
        strangers=options.allow_strangers,
    )


def _fast_loop() -> Any:
    """The quicker loop, where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _print(manifest: dict[str, Any]) -> None:
    import json

    sys.stdout.write(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def _log() -> None:
    from holdfast import telemetry

    level = os.environ.get("HOLDFAST_LOG_LEVEL", "info")
    telemetry.configure(
        "debug"
        if level == "debug"
        else "warning"
        if level == "warning"
        else "error"
        if level == "error"
        else "info",
        "json" if os.environ.get("HOLDFAST_LOG_FORMAT") == "json" else "human",
    )
