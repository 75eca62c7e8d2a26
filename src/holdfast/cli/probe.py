"""`holdfast probe`: start an MCP server, ask who it is and what it offers, and end it."""

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import IO

import click

from holdfast import __version__, settings, telemetry
from holdfast.cli import table
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.mcp.client import Greeting, greet
from holdfast.wire.mcp.eras import Implementation, Introduction
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import over_pipes

_LAST_WORDS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a server said, and how long it took to say it."""

    greeting: Greeting
    tools: list[Tool]
    ready_seconds: float


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--timeout", default=30.0, show_default=True, help="Seconds to wait for the server.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def probe(command: tuple[str, ...], timeout: float, *, as_json: bool) -> None:
    """Ask an MCP server who it is and what it offers.

    COMMAND is the server's command line, after `--`. It runs with your own rights, so probe only what you would run.

    \b
    Examples:
      holdfast probe -- npx -y @modelcontextprotocol/server-everything
      holdfast probe --json -- python my_server.py
    """
    loaded = settings.load()
    telemetry.configure(loaded.log.level, loaded.log.format)
    found = asyncio.run(_probe(command, timeout, loaded.wire))
    if as_json:
        click.echo(json.dumps(_for_programs(found), indent=2))
    else:
        _for_people(found)


async def _probe(command: tuple[str, ...], timeout: float, limits: Limits) -> Found:
    me = Introduction(who=Implementation("holdfast", __version__))
    began = time.monotonic()
    with tempfile.TemporaryFile() as stderr, _started(command, stderr) as process:
        assert process.stdin
        assert process.stdout
        try:
            peer = Peer(limits=limits)
            async with over_pipes(peer, process.stdout, process.stdin):
                client = await greet(peer, me, timeout=timeout, limits=limits)
                ready = time.monotonic() - began
                offers_tools = "tools" in client.greeting.capabilities
                tools = await client.tools(timeout=timeout) if offers_tools else []
            return Found(greeting=client.greeting, tools=tools, ready_seconds=ready)
        except HoldfastError as error:
            raise HoldfastError(error.code, f"{command[0]!r}: {error.message}{_last_words(stderr)}") from None
        finally:
            await asyncio.to_thread(_end, process)


def _started(command: tuple[str, ...], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
        )
    except OSError as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"Could not start {command[0]!r}: {error.strerror}. Check the command and its path.",
        ) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Its input is closed already: a moment to go by itself, then the whole group is ended."""
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _last_words(stderr: IO[bytes]) -> str:
    stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, stderr.tell() - _LAST_WORDS))
    words = stderr.read().decode(errors="replace").strip()
    return "".join(f"\n  | {table.plain(line)}" for line in words.splitlines())


def _for_programs(found: Found) -> dict[str, object]:
    greeting = found.greeting
    return {
        "era": greeting.era,
        "version": greeting.version,
        "name": greeting.server.name,
        "server_version": greeting.server.version,
        "ready_ms": round(found.ready_seconds * 1000),
        "tools": [{"name": tool.name, "description": tool.description or ""} for tool in found.tools],
    }


def _for_people(found: Found) -> None:
    greeting = found.greeting
    click.echo(
        f"{table.plain(greeting.server.name) or '(no name)'} {table.plain(greeting.server.version)} speaks MCP {greeting.version}"
        f" ({greeting.era}), ready in {found.ready_seconds * 1000:.0f} ms, {len(found.tools)} tools."
    )
    if found.tools:
        rows = [
            (tool.name, (tool.description or tool.title or "").partition("\n")[0]) for tool in found.tools
        ]
        table.show(("tool", "what it does"), rows)
