"""`holdfast probe`: start an MCP server or connect to one, and show its version and tools."""

import asyncio
import os
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import click

from holdfast import __version__, log_output, settings
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.cli.terminal_text import replace_unprintable
from holdfast.model import codes
from holdfast.model.errors import WHY_SILENT, HoldfastError
from holdfast.model.limits import Limits
from holdfast.model.plural import count
from holdfast.model.visible_text import to_line
from holdfast.model.worker_threads import WorkerThreads
from holdfast.wire.mcp.client import ServerInfo, negotiate
from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.messages import Malformed
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_pipes

_STDERR_BYTES = 2000  # how much of the end of standard error an error message quotes
_RUNNERS = {".py": "python", ".js": "node", ".mjs": "node", ".cjs": "node"}
"""The program that runs a file, by the suffix of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """What a server reports about itself, its tools, and how long it took to start."""

    info: ServerInfo
    tools: list[Tool]
    ready_seconds: float


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--timeout", default=30.0, show_default=True, help="Seconds to wait for the server.")
@json_option
def probe(command: tuple[str, ...], timeout: float, *, as_json: bool) -> None:
    """Start an MCP server or connect to one, and show its version and tools.

    COMMAND is the server's command line; write it after `--`. The server runs without a sandbox, with your
    rights: probe only servers that you trust. Instead of a command, give the URL of a remote server.

    \b
    Examples:
      holdfast probe -- npx -y @modelcontextprotocol/server-everything
      holdfast probe --json -- python my_server.py
      holdfast probe http://127.0.0.1:8000/mcp
    """
    loaded = settings.load()
    log_output.configure(loaded.log.level, loaded.log.format)
    is_url = len(command) == 1 and command[0].startswith(("http://", "https://"))
    if is_url:
        try:
            report = asyncio.run(_probe_url(command[0], timeout, loaded))
        except HoldfastError as error:
            hint = "Check the address, and that the server is running."
            raise HoldfastError(error.code, error.message, hint=hint) from None
    else:
        report = asyncio.run(_probe_command(command, timeout, loaded.wire))
    if as_json:
        print_json(_to_json(report))
    else:
        _print_report(report)


async def _probe_command(command: tuple[str, ...], timeout: float, limits: Limits) -> ServerReport:
    client_info = OwnInfo(implementation=Implementation("holdfast", __version__))
    started_at = time.monotonic()
    with tempfile.TemporaryFile() as stderr, _start(command, stderr) as process:
        assert process.stdin
        assert process.stdout
        try:
            peer = Peer(limits=limits)
            peer.on_malformed = _print_malformed
            async with connect_pipes(peer, process.stdout, process.stdin):
                client = await negotiate(peer, client_info, timeout=timeout, limits=limits)
                ready_seconds = time.monotonic() - started_at
                offers_tools = "tools" in client.server_info.capabilities
                tools = await client.list_tools(timeout=timeout) if offers_tools else []
            return ServerReport(info=client.server_info, tools=tools, ready_seconds=ready_seconds)
        except HoldfastError as error:
            written = _stderr_tail(stderr)
            has_ended = error.code is codes.CONNECTION_CLOSED
            reason = "The server ended before it answered." if has_ended else error.message
            hint = "Check that this command starts an MCP server on standard input and output."
            if has_ended and written:
                hint = "Correct the error that the server wrote to standard error, and try again."
            elif has_ended and await WorkerThreads("wait", threads=1).run(_exit_status, process) == 0:
                hint = WHY_SILENT
            raise HoldfastError(error.code, f"{command[0]!r}: {reason}{written}", hint=hint) from None
        finally:
            # In a thread, because `_stop` blocks.
            await WorkerThreads("stop", threads=1).run(_stop, process)


def _print_malformed(message: Malformed) -> None:
    text = f" It begins with: {to_line(message.excerpt)}" if message.excerpt else f" {message.reason}"
    print_line(f"Warning: a line of the server's standard output is not an MCP message.{text}", err=True)


async def _probe_url(url: str, timeout: float, loaded: settings.Settings) -> ServerReport:
    # Imported here, because these imports are slow.
    from holdfast.connect.connection import ConnectOptions
    from holdfast.connect.http.login_store import LOGIN_FOLDER
    from holdfast.connect.http.remote_connector import RemoteConnector
    from holdfast.connect.server_requests import ServerRequests
    from holdfast.host.data_folder import KEYS_FOLDER
    from holdfast.masking.obtained_secrets import ObtainedSecrets
    from holdfast.model.server import Http, ServerSpec, Source
    from holdfast.token.signer import Signer

    spec = ServerSpec(name=url, source=Source.USER, transport=Http(url=url))
    options = ConnectOptions(connect_seconds=timeout, list_seconds=timeout, limits=loaded.wire)
    started_at = time.monotonic()
    with ObtainedSecrets() as obtained:
        remote = RemoteConnector(
            signer=Signer(loaded.data_dir / KEYS_FOLDER),
            logins=loaded.data_dir / LOGIN_FOLDER,
            obtained=obtained,
            reachable=loaded.servers.reachable,
        )
        opened = remote.open(spec, None, server_requests=ServerRequests(spec, None), meta={}, options=options)
        async with remote, opened as connection:
            ready_seconds = time.monotonic() - started_at
            return ServerReport(
                info=connection.server_info,
                tools=list(await connection.list_tools(timeout=timeout)),
                ready_seconds=ready_seconds,
            )


def _start(command: tuple[str, ...], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
        )
    except OSError as error:
        from holdfast.sandbox.keeper.spawn_request import SpawnRequest, spawn_error

        request = SpawnRequest(argv=command, env=dict(os.environ), cwd=".")
        text = (error.strerror or str(error)).lower()
        message = spawn_error(request, "exec", error.errno, text).message
        raise HoldfastError(codes.BAD_ARGUMENT, message, hint=_hint_for(command)) from None


def _hint_for(command: tuple[str, ...]) -> str:
    """What to type instead of a command that cannot be started."""
    file = Path(command[0])
    if not file.is_file() or (runner := _RUNNERS.get(file.suffix)) is None:
        return "Check the command and its path."
    return f"{command[0]!r} is a file. Name the program that runs it: {shlex.join(['holdfast', 'probe', '--', runner, *command])}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Wait a second for the server to exit, because its input is closed. Then end its process group."""
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _exit_status(process: subprocess.Popen[bytes]) -> int | None:
    """The exit status; None if the server does not exit within a second."""
    try:
        return process.wait(1.0)
    except subprocess.TimeoutExpired:
        return None


def _stderr_tail(stderr: IO[bytes]) -> str:
    stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, stderr.tell() - _STDERR_BYTES))
    text = stderr.read().decode(errors="replace").strip()
    return "".join(f"\n  | {replace_unprintable(line)}" for line in text.splitlines())


def _to_json(report: ServerReport) -> dict[str, object]:
    info = report.info
    return {
        "era": info.era,
        "version": info.version,
        "name": info.server.name,
        "server_version": info.server.version,
        "ready_ms": round(report.ready_seconds * 1000),
        "tools": [{"name": tool.name, "description": tool.description or ""} for tool in report.tools],
    }


def _print_report(report: ServerReport) -> None:
    info = report.info
    print_line(
        f"{info.server.name or '(no name)'} {info.server.version} speaks MCP {info.version}"
        f" ({info.era}), ready in {report.ready_seconds * 1000:.0f} ms, {count(len(report.tools), 'tool')}."
    )
    if report.tools:
        rows = [(tool.name, tool.summary) for tool in report.tools]
        print_table(("tool", "what it does"), rows)
