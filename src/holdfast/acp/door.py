"""An editor as a session sees it: it permits, and it reads and writes files."""

import msgspec

from holdfast.acp.shapes import ClientCapabilities, FileText, PermissionAnswer
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject
from holdfast.model.ports import Powers
from holdfast.wire.frame import Raw
from holdfast.wire.peer import Peer

_OPTIONS = [
    {"optionId": Decision.ALLOW_ONCE.value, "name": "Allow once", "kind": "allow_once"},
    {"optionId": Decision.ALLOW_ALWAYS.value, "name": "Always allow in this session", "kind": "allow_always"},
    {"optionId": Decision.REJECT.value, "name": "Reject", "kind": "reject_once"},
]
_FILE_SECONDS = 30.0


class EditorDoor:
    """One editor, for one session."""

    def __init__(self, peer: Peer, capabilities: ClientCapabilities) -> None:
        self._peer = peer
        self._capabilities = capabilities
        self.session_id = ""
        """Set as soon as the session has one."""

    @property
    def powers(self) -> Powers:
        """What this editor said that it can do."""
        fs = self._capabilities.fs
        return Powers(
            permits=True,
            elicits=self._capabilities.elicitation is not None,
            reads_files=fs.read_text_file,
            writes_files=fs.write_text_file,
        )

    async def permit(self, call: ToolCall, title: str) -> Decision:
        """Ask the person; whatever is no clear yes is a no."""
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
        raw = await self._peer.request("session/request_permission", params)
        try:
            answer = msgspec.json.decode(raw, type=PermissionAnswer).outcome
        except msgspec.ValidationError:
            return Decision.REJECT
        if answer.outcome == "selected" and answer.option_id in (Decision.ALLOW_ONCE, Decision.ALLOW_ALWAYS):
            return Decision(answer.option_id)
        return Decision.REJECT

    async def read_text(self, path: str) -> str:
        """A file with its unsaved changes."""
        raw = await self._peer.request(
            "fs/read_text_file", {"sessionId": self.session_id, "path": path}, timeout=_FILE_SECONDS
        )
        try:
            return msgspec.json.decode(raw, type=FileText).content
        except msgspec.ValidationError:
            raise HoldfastError(
                codes.BAD_ANSWER, f"The editor's answer about {path!r} cannot be read."
            ) from None

    async def write_text(self, path: str, text: str) -> None:
        """Write a file through the editor."""
        params = {"sessionId": self.session_id, "path": path, "content": text}
        await self._peer.request("fs/write_text_file", params, timeout=_FILE_SECONDS)

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the person what a server wants to know."""
        raw = await self._peer.request("elicitation/create", {**params, "sessionId": self.session_id})
        return msgspec.json.decode(raw)

    async def sample(self, params: JsonObject) -> JsonObject:
        """No editor offers its model."""
        raise HoldfastError(codes.NOT_GRANTED, "This editor does not offer its model.")
