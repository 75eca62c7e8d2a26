"""Runs a command in a terminal of the editor."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.model import codes
from holdfast.model.door import CommandResult, ShellCommand
from holdfast.model.errors import HoldfastError
from holdfast.session.run_to_completion import run_to_completion
from holdfast.wire.messages import PeerError, Raw

_ANSWER_SECONDS = 30.0


class _Created(msgspec.Struct, rename="camel"):
    terminal_id: str


class _ExitStatus(msgspec.Struct, rename="camel"):
    exit_code: int | None = None
    signal: str | None = None


class _Output(msgspec.Struct, rename="camel"):
    output: str
    truncated: bool = False
    exit_status: _ExitStatus | None = None


def _keep_only(names: Sequence[str]) -> str:
    """Return a shell script that runs the command in `$0` with only these environment variables."""
    kept = (f'${{{name}+"{name}=${name}"}}' for name in names if name.isascii() and name.isidentifier())
    return f'exec env -i {" ".join(kept)} /bin/sh -c "$0"'


class SendRequest(Protocol):
    """Sends a request to the editor."""

    async def __call__(
        self, method: str, params: Mapping[str, Any], *, timeout: float | None = None
    ) -> Raw: ...


class EditorTerminal:
    """One terminal of the editor, for one command."""

    def __init__(self, request: SendRequest, session_id: str) -> None:
        self._request = request
        self._session_id = session_id

    async def run(self, command: ShellCommand) -> CommandResult:
        """Run the command and wait until it ends. If the time runs out or the caller is cancelled, the command is killed."""
        create = {
            "sessionId": self._session_id,
            "command": "/bin/sh",
            "args": ["-c", _keep_only(command.variables), command.text],
            "cwd": command.cwd,
            "outputByteLimit": command.output_bytes,
        }
        try:
            raw = await self._request("terminal/create", create, timeout=_ANSWER_SECONDS)
            params = {"sessionId": self._session_id, "terminalId": _decode(raw, _Created).terminal_id}
        except PeerError as error:
            raise _refused(error) from None
        try:
            return await self._wait(command, params)
        except PeerError as error:
            raise _refused(error) from None
        finally:
            # The editor kills the command if it is still running, and frees the terminal.
            await run_to_completion(self._release(params))

    async def _wait(self, command: ShellCommand, params: Mapping[str, Any]) -> CommandResult:
        timed_out = False
        try:
            async with asyncio.timeout(command.seconds):
                await self._request("terminal/wait_for_exit", params)
        except TimeoutError:
            timed_out = True
            await self._request("terminal/kill", params, timeout=_ANSWER_SECONDS)
        written = _decode(await self._request("terminal/output", params, timeout=_ANSWER_SECONDS), _Output)
        exit_code = written.exit_status.exit_code if written.exit_status is not None else None
        return CommandResult(
            output=written.output[-command.output_bytes :],
            exit_code=None if timed_out else exit_code,
            timed_out=timed_out,
            truncated=written.truncated,
        )

    async def _release(self, params: Mapping[str, Any]) -> None:
        try:
            await self._request("terminal/release", params, timeout=_ANSWER_SECONDS)
        except (HoldfastError, PeerError):
            return  # the editor has disconnected, or has already released the terminal


def _decode(raw: Raw, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:
        raise HoldfastError(
            codes.BAD_ANSWER, "The editor sent a malformed response about its terminal."
        ) from None


def _refused(error: PeerError) -> HoldfastError:
    return HoldfastError(codes.EDITOR_REFUSED, f"The editor did not run the command: {error.message}")
