"""Connects to a stdio server: starts the program, negotiates with it, and ends its processes on exit."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from holdfast.connect.connection import Connection, ConnectOptions
from holdfast.connect.explain_confined import explain_start
from holdfast.connect.negotiate import negotiate
from holdfast.connect.server_log import ServerLog
from holdfast.connect.server_messages import ChangeSubscription, ServerMessages
from holdfast.connect.server_requests import ServerRequests
from holdfast.connect.server_text import clean_server_text
from holdfast.connect.stderr import ServerStderr, capture_stderr
from holdfast.model import codes
from holdfast.model.errors import WHY_SILENT, HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.json import JsonObject
from holdfast.model.process import ProcessSpec
from holdfast.model.server import Lifetime, ServerSpec, Source, Stdio
from holdfast.model.visible_text import to_line
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.view import SandboxView
from holdfast.wire.messages import Malformed
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_pipes

log = logging.getLogger(__name__)

_NOT_FOUND_MESSAGES = ("No module named", "Cannot find module", "No such file", "ENOENT")
_EXIT_SECONDS = 0.2  # how long to wait for the last output and the exit status


@asynccontextmanager
async def open_stdio(
    spec: ServerSpec,
    folder: str,
    *,
    server_requests: ServerRequests,
    meta: JsonObject,
    spawn: Callable[[ProcessSpec], Awaitable[Child]],
    options: ConnectOptions,
) -> AsyncIterator[Connection]:
    """Start the program in `folder` (`""` means the home folder), and negotiate with it. On exit, end all its processes.

    `spawn` starts the program, or returns a process that was started in advance.
    """
    assert isinstance(spec.transport, Stdio)
    server_log = server_requests.server_log
    child = await spawn(_process_spec(spec, spec.transport, folder))
    try:
        stderr, transport = await capture_stderr(child.stderr, spec, server_requests.throttle, server_log)
        try:
            server_messages = ServerMessages(server_requests)
            peer = Peer(
                on_request=server_messages.answer,
                on_notification=server_messages.receive,
                limits=options.limits,
                throttle=server_requests.throttle,
            )
            peer.on_malformed = partial(_report_malformed, spec, server_log)
            peer.on_many_malformed = partial(_report_many_malformed, spec.name)
            async with connect_pipes(peer, child.stdout, child.stdin):
                try:
                    client = await negotiate(
                        spec, peer, server_requests=server_requests, meta=meta, options=options
                    )
                except HoldfastError as error:
                    malformed_lines = peer.stats.malformed_lines
                    raise await _start_error(
                        spec, error, stderr, child, in_home=not folder, malformed_lines=malformed_lines
                    ) from None
                async with ChangeSubscription(client, server_requests):
                    connection = Connection(
                        client, ended=peer.ended, server_messages=server_messages, stderr=stderr
                    )
                    connection.view = child.view
                    yield connection
        finally:
            transport.close()
    finally:
        child.close()  # if the caller was cancelled, some pipes have no transport that closes them
        await child.end(options.end_seconds)


def _report_malformed(spec: ServerSpec, server_log: ServerLog | None, message: Malformed) -> None:
    reason = message.reason
    if message.excerpt:
        reason += f" It begins with: {clean_server_text(spec, message.excerpt)}"
    extra = {"server": spec.name, "code": message.code.name, "reason": reason}
    log.warning("malformed line of %s: %s", spec.name, to_line(reason), extra=extra)
    if server_log is not None:
        server_log.note(
            f"a line of its standard output is not an MCP message ({message.code.name}): {to_line(reason)}"
        )


def _report_many_malformed(server: str, count: int) -> None:
    log.warning("malformed lines of %s: %s in all", server, count, extra={"server": server, "count": count})


def _process_spec(spec: ServerSpec, stdio: Stdio, folder: str) -> ProcessSpec:
    return ProcessSpec(
        argv=(stdio.command, *stdio.args),
        env=stdio.env,
        cwd=folder or str(Path.home()),
        confinement=spec.confinement,
    )


async def _start_error(
    spec: ServerSpec,
    error: HoldfastError,
    stderr: ServerStderr,
    child: Child,
    *,
    in_home: bool,
    malformed_lines: int,
) -> HoldfastError:
    """The error to raise if the negotiation failed: what happened, what the server wrote, and what to do."""
    # The error message of a program that just exited may not have arrived yet.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stderr.closed.wait(), _EXIT_SECONDS)
    written, reason = stderr.report_since(0), clean_server_text(spec, error.message)
    if error.code is codes.CONNECTION_CLOSED:
        status = await _exit_status(child)
        reason = _describe_exit(status)
        if _misses_its_folder(spec, stderr.text_since(0)):
            reason += ' It was started in an empty folder. If it looks for its code in a folder, as `python -m` does, add "cwd" with that folder to its entry.'
        if in_home and spec.lifetime is Lifetime.HOST:
            reason += f' It was started in {Path.home()}, because sessions share it: write absolute paths in its entry, or add "cwd" to it.'
        written = (
            written
            or f"It wrote nothing to stderr. {WHY_SILENT if status == 0 else 'Run it by hand to see why.'}"
        )
    if malformed_lines:
        lines = (
            "1 line that is not an MCP message"
            if malformed_lines == 1
            else f"{malformed_lines} lines that are not MCP messages"
        )
        reason += f" It printed {lines} to standard output, which is for MCP alone."
    if child.view is not None and isinstance(spec.transport, Stdio):
        why = await _explain(spec, child.view, stderr.text_since(0))
        written = "\n".join(filter(None, (written, why)))
    details = f"\n{written}" if written else ""
    return HoldfastError(error.code, f"Could not start {spec.name!r}: {reason}{details}", **error.details)


def _misses_its_folder(spec: ServerSpec, written: str) -> bool:
    """Whether `cwd` in the entry may help: the server was started in an empty folder, and did not find a file or module."""
    return (
        isinstance(spec.transport, Stdio)
        and spec.transport.has_empty_folder
        and spec.source in (Source.APP, Source.OPERATOR, Source.USER)
        and any(text in written for text in _NOT_FOUND_MESSAGES)
    )


async def _explain(spec: ServerSpec, view: SandboxView, written: str) -> str:
    try:
        folder = spec.confinement.roots[0] if spec.confinement and spec.confinement.roots else "/"
        return await run_with_file_timeout(explain_start, spec, view, written, path=folder)
    except HoldfastError:
        return ""


async def _exit_status(child: Child) -> int | None:
    try:
        return await asyncio.wait_for(child.wait(), _EXIT_SECONDS)
    except TimeoutError:
        return None


def _describe_exit(status: int | None) -> str:
    if status is None:
        return "It closed its output before the MCP negotiation was complete."
    how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
    return f"It {how} before the MCP negotiation was complete."
