"""An editor as a session's door: it asks the user questions, reads and writes files, and runs commands."""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from holdfast.acp.content import diff_block
from holdfast.acp.messages import (
    ClientCapabilities,
    ElicitationResponse,
    PermissionResponse,
    ReadFileResponse,
)
from holdfast.acp.terminal import EditorTerminal
from holdfast.model import codes
from holdfast.model.door import CommandResult, DoorCapabilities, PermissionQuestion, ShellCommand
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject
from holdfast.model.visible_text import to_line
from holdfast.wire.messages import PeerError, Raw
from holdfast.wire.peer import Peer

_OPTION_KINDS = {
    Decision.ALLOW_ONCE: "allow_once",
    Decision.ALLOW_ALWAYS: "allow_always",
    Decision.REJECT: "reject_once",
}
_DISCONNECTING_CODES = (codes.CANCELLED.rpc_code, codes.CONNECTION_CLOSED.rpc_code)
"""The errors with which an editor answers open requests when it is about to disconnect."""
_FILE_SECONDS = 30.0
_MAX_REASON_LENGTH = 200
_MAX_QUESTIONS = 8
"""How many questions of one session the editor shows at a time."""
_NOT_FOUND = -32002
"""ACP's error code for a file that does not exist."""


class _FormField(msgspec.Struct, omit_defaults=True, rename="camel"):
    type: Literal["string", "number", "integer", "boolean"]
    title: str | None = None
    description: str | None = None
    default: str | int | float | bool | None = None
    enum: list[str] | None = None
    format: Literal["email", "uri", "date", "date-time"] | None = None
    min_length: int | None = None
    max_length: int | None = None
    minimum: float | None = None
    maximum: float | None = None


class _FormSchema(msgspec.Struct, omit_defaults=True):
    properties: dict[str, _FormField]
    type: Literal["object"] = "object"
    required: list[str] | None = None


class _FormElicitation(msgspec.Struct, rename="camel"):
    message: str
    requested_schema: _FormSchema


class _UrlElicitation(msgspec.Struct, rename="camel"):
    message: str
    url: str
    elicitation_id: str


class EditorDoor:
    """One session's access to its editor."""

    def __init__(
        self, peer: Peer, capabilities: ClientCapabilities, session_id: str = "", *, name: str = ""
    ) -> None:
        self._peer = peer
        self._capabilities = capabilities
        self._name = name
        self._session_id = session_id
        self._has_session_id = asyncio.Event()
        self._questions = asyncio.Semaphore(_MAX_QUESTIONS)
        if session_id:
            self._has_session_id.set()

    def set_session_id(self, session_id: str) -> None:
        """Set the id of a new session. Until then, questions to the editor wait."""
        self._session_id = session_id
        self._has_session_id.set()

    @property
    def capabilities(self) -> DoorCapabilities:
        """What the editor declared in `initialize`."""
        fs = self._capabilities.fs
        return DoorCapabilities(
            permission=True,
            elicitation=self._can_elicit("form") or self._can_elicit("url"),
            elicitation_url=self._can_elicit("url"),
            read_files=fs.read_text_file,
            write_files=fs.write_text_file,
            terminal=self._capabilities.terminal,
            name=self._name or "an editor",
        )

    @property
    def supports_notices(self) -> bool:
        """Whether the editor shows notices outside of the conversation."""
        session = self._capabilities.session
        return session is not None and session.get("notices") is not None

    @property
    def supports_sub_agents(self) -> bool:
        """Whether the editor shows sub-agents as sessions of their own."""
        return self._capabilities.subagents is not None

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        """Ask the user. Every answer except a clear yes counts as a rejection.

        Raises if the user could not be asked because the request is too long or the editor has disconnected.
        """
        await self._has_session_id.wait()
        params = {
            "sessionId": self._session_id,
            "toolCall": {
                "toolCallId": question.call.call_id,
                "title": question.title,
                "rawInput": Raw(question.call.arguments),
                "status": "pending",
                **({"content": [diff_block(question.change)]} if question.change is not None else {}),
            },
            "options": [
                {"optionId": decision.value, "name": label, "kind": _OPTION_KINDS[decision]}
                for decision, label in question.choices.items()
            ],
        }
        try:
            raw = await self._ask("session/request_permission", params)
            answer = msgspec.json.decode(raw, type=PermissionResponse).outcome
        except PeerError as error:
            if error.rpc_code in _DISCONNECTING_CODES:
                raise HoldfastError(codes.CONNECTION_CLOSED, "The editor cancelled the question.") from None
            return Decision.REJECT
        except msgspec.ValidationError:
            return Decision.REJECT
        if answer.outcome == "selected" and answer.option_id in (Decision.ALLOW_ONCE, Decision.ALLOW_ALWAYS):
            return Decision(answer.option_id)
        return Decision.REJECT

    async def read_text(self, path: str) -> str:
        """Read a file with its unsaved changes. Raise NO_FILE if the editor has no such file."""
        params = {"sessionId": self._session_id, "path": path}
        try:
            raw = await self._request("fs/read_text_file", params, timeout=_FILE_SECONDS)
        except PeerError as error:
            if error.rpc_code == _NOT_FOUND:
                raise HoldfastError(codes.NO_FILE, f"The editor has no file {path!r}.") from None
            raise
        try:
            return msgspec.json.decode(raw, type=ReadFileResponse).content
        except msgspec.ValidationError:
            raise HoldfastError(
                codes.BAD_ANSWER, f"The editor sent a malformed response for {path!r}."
            ) from None

    async def write_text(self, path: str, text: str) -> None:
        params = {"sessionId": self._session_id, "path": path, "content": text}
        await self._request("fs/write_text_file", params, timeout=_FILE_SECONDS)

    async def run_command(self, command: ShellCommand) -> CommandResult:
        await self._has_session_id.wait()
        return await EditorTerminal(self._request, self._session_id).run(command)

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the user for the input that a server requests. Members that ACP does not define are dropped."""
        mode = params.get("mode", "form")
        if not isinstance(mode, str) or not self._can_elicit(mode):
            raise HoldfastError(
                codes.UNSUPPORTED_BY_CLIENT,
                f"This editor does not support elicitation by {str(mode)[:40]!r}.",
            )
        await self._has_session_id.wait()
        raw = await self._ask(
            "elicitation/create", {"sessionId": self._session_id, **convert_elicitation(params, mode)}
        )
        try:
            answer = msgspec.json.decode(raw, type=ElicitationResponse)
        except msgspec.ValidationError:
            return {"action": "cancel"}
        if answer.action == "accept":
            return {"action": "accept", "content": answer.content or {}}
        return {"action": "decline" if answer.action == "decline" else "cancel"}

    async def _ask(self, method: str, params: Mapping[str, Any]) -> Raw:
        async with self._questions:
            return await self._request(method, params)

    async def _request(self, method: str, params: Mapping[str, Any], *, timeout: float | None = None) -> Raw:
        try:
            return await self._peer.request(method, params, timeout=timeout, owner=self._session_id)
        except PeerError as error:
            raise PeerError(error.rpc_code, _with_details(error), error.data) from None

    def _can_elicit(self, mode: str) -> bool:
        supported = self._capabilities.elicitation
        match mode:
            case "form":
                return supported is not None and supported.form is not None
            case "url":
                return supported is not None and supported.url is not None
            case _:
                return False

    async def sample(self, params: JsonObject) -> JsonObject:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "This editor does not support sampling.")


class _ErrorData(msgspec.Struct):
    details: str = ""


def _with_details(error: PeerError) -> str:
    """Return the message of an editor's error, with the reason that some editors send in the error's data."""
    try:
        details = msgspec.json.decode(error.data or b"{}", type=_ErrorData).details
    except (msgspec.DecodeError, TypeError):
        return error.message
    reason = to_line(details[: 4 * _MAX_REASON_LENGTH])[:_MAX_REASON_LENGTH]
    return f"{error.message}: {reason}" if reason and reason not in error.message else error.message


_PARAMS_BY_MODE = {"form": _FormElicitation, "url": _UrlElicitation}


def convert_elicitation(params: JsonObject, mode: str) -> JsonObject:
    """Convert the params of an MCP elicitation to ACP's. Raise BAD_ARGUMENT if they are malformed."""
    try:
        elicitation = msgspec.convert(params, _PARAMS_BY_MODE[mode])
    except msgspec.ValidationError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"Malformed elicitation: {error}.") from None
    return {"mode": mode, **msgspec.to_builtins(elicitation)}
