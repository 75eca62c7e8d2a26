"""The editor as a session's door: it puts questions to the user, and reads and writes files."""

from typing import Literal

import msgspec

from holdfast.acp.messages import (
    ClientCapabilities,
    ElicitationResponse,
    PermissionResponse,
    ReadFileResponse,
)
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import DoorCapabilities
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject
from holdfast.wire.frame import Raw
from holdfast.wire.peer import Peer, PeerError

_OPTIONS = [
    {"optionId": Decision.ALLOW_ONCE.value, "name": "Allow once", "kind": "allow_once"},
    {"optionId": Decision.ALLOW_ALWAYS.value, "name": "Always allow in this session", "kind": "allow_always"},
    {"optionId": Decision.REJECT.value, "name": "Reject", "kind": "reject_once"},
]
_FILE_SECONDS = 30.0
_NOT_FOUND = -32002
"""ACP's error code for a file that does not exist."""


class _Property(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One field of a form: the keywords that both MCP and ACP define."""

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


class _Schema(msgspec.Struct, omit_defaults=True):
    properties: dict[str, _Property]
    type: Literal["object"] = "object"
    required: list[str] | None = None


class _Form(msgspec.Struct, rename="camel"):
    message: str
    requested_schema: _Schema


class _Url(msgspec.Struct, rename="camel"):
    message: str
    url: str
    elicitation_id: str


class EditorDoor:
    """One session's access to the editor."""

    def __init__(self, peer: Peer, capabilities: ClientCapabilities) -> None:
        self._peer = peer
        self._capabilities = capabilities
        self.session_id = ""
        """Set once the session has an id; until then empty."""

    @property
    def capabilities(self) -> DoorCapabilities:
        """What the editor declared in `initialize`."""
        fs = self._capabilities.fs
        return DoorCapabilities(
            permission=True,
            elicitation=self._can_elicit("form") or self._can_elicit("url"),
            read_files=fs.read_text_file,
            write_files=fs.write_text_file,
        )

    @property
    def supports_notices(self) -> bool:
        """Whether the editor shows notices beside the conversation."""
        session = self._capabilities.session
        return session is not None and session.get("notices") is not None

    async def request_permission(self, call: ToolCall, title: str) -> Decision:
        """Ask the user. Any answer but a valid permission is a rejection. Raises TOO_LARGE if the request is too long to send."""
        params = {
            "sessionId": self.session_id,
            "toolCall": {
                "toolCallId": call.call_id,
                "title": title,
                "rawInput": Raw(call.arguments),
                "status": "pending",
            },
            "options": _OPTIONS,
        }
        try:
            raw = await self._peer.request("session/request_permission", params)
            answer = msgspec.json.decode(raw, type=PermissionResponse).outcome
        except msgspec.ValidationError:
            return Decision.REJECT
        except HoldfastError as error:
            if error.code is codes.TOO_LARGE:
                raise
            return Decision.REJECT
        if answer.outcome == "selected" and answer.option_id in (Decision.ALLOW_ONCE, Decision.ALLOW_ALWAYS):
            return Decision(answer.option_id)
        return Decision.REJECT

    async def read_text(self, path: str) -> str:
        """Read a file with its unsaved changes. Raises NO_FILE if the editor has no such file."""
        params = {"sessionId": self.session_id, "path": path}
        try:
            raw = await self._peer.request("fs/read_text_file", params, timeout=_FILE_SECONDS)
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
        """Write a file through the editor."""
        params = {"sessionId": self.session_id, "path": path, "content": text}
        await self._peer.request("fs/write_text_file", params, timeout=_FILE_SECONDS)

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the user a server's question. Fields that ACP does not define are dropped."""
        mode = params.get("mode", "form")
        if not isinstance(mode, str) or not self._can_elicit(mode):
            raise HoldfastError(
                codes.UNSUPPORTED_BY_CLIENT,
                f"This editor does not support elicitation by {str(mode)[:40]!r}.",
            )
        raw = await self._peer.request(
            "elicitation/create", {"sessionId": self.session_id, **convert_elicitation(params, mode)}
        )
        try:
            answer = msgspec.json.decode(raw, type=ElicitationResponse)
        except msgspec.ValidationError:
            return {"action": "cancel"}
        if answer.action == "accept":
            return {"action": "accept", "content": answer.content or {}}
        return {"action": "decline" if answer.action == "decline" else "cancel"}

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
        """Raise NOT_GRANTED: ACP has no sampling."""
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, "This editor does not support sampling.")


_PARAMS_BY_MODE = {"form": _Form, "url": _Url}


def convert_elicitation(params: JsonObject, mode: str) -> JsonObject:
    """Convert the params of an MCP elicitation to ACP's. Raises BAD_ARGUMENT if they are malformed."""
    try:
        elicitation = msgspec.convert(params, _PARAMS_BY_MODE[mode])
    except msgspec.ValidationError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"Malformed elicitation: {error}.") from None
    return {"mode": mode, **msgspec.to_builtins(elicitation)}
