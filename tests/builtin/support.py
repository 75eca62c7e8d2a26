"""File tools on real folders, called through the dispatcher."""

import json
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Raw

from holdfast.builtin.files.file_locks import FileLocks
from holdfast.builtin.files.tools import files_toolbox
from holdfast.model import codes
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.context import SessionContext
from holdfast.model.door import Door, DoorCapabilities, PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.ids import new_session_id
from holdfast.model.json import JsonObject
from holdfast.model.trust import Trust
from holdfast.toolkit.call import Call
from holdfast.toolkit.outcome import Failed, Ok

_LOCKS = Path(tempfile.gettempdir(), "holdfast-test-locks")


class Files:
    """The file tools of a session in these folders."""

    def __init__(
        self,
        *roots: Path,
        door: Door | None = None,
        trust: Trust = Trust.DIRECT,
        confined_folders: ConfinedFolders | None = None,
    ) -> None:
        folders = tuple(str(root.resolve()) for root in roots)
        context = SessionContext(
            session_id=new_session_id(), trust_level=trust, cwd=folders[0], roots=folders
        )
        self._dispatcher = files_toolbox(context, door, FileLocks(_LOCKS), (), confined_folders).dispatcher()

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The data of a successful call."""
        envelope = await self._envelope(tool, arguments)
        assert isinstance(envelope, Ok), envelope
        return json.loads(envelope.data)

    async def refused(self, tool: str, **arguments: Any) -> tuple[str, str]:
        """The code and the message of a failed call."""
        envelope = await self._envelope(tool, arguments)
        assert isinstance(envelope, Failed), envelope
        return envelope.code, envelope.message

    async def code(self, tool: str, **arguments: Any) -> str:
        """`OK`, or the error code."""
        envelope = await self._envelope(tool, arguments)
        return envelope.code if isinstance(envelope, Failed) else "OK"

    async def _envelope(self, tool: str, arguments: dict[str, Any]) -> Ok | Failed:
        raw = Raw(json.dumps(arguments).encode())
        return (await self._dispatcher.dispatch(Call(tool=tool), raw)).envelope


class Buffers:
    """An editor with open files. For other files, it reports NO_FILE or fails."""

    def __init__(
        self, texts: dict[str, str], *, writes: bool = True, fails: HoldfastError | None = None
    ) -> None:
        self.texts = texts
        self.fails = fails
        self.capabilities = DoorCapabilities(read_files=True, write_files=writes)

    async def read_text(self, path: str) -> str:
        if path not in self.texts:
            raise self.fails or HoldfastError(codes.NO_FILE, "There is none.")
        return self.texts[path]

    async def write_text(self, path: str, text: str) -> None:
        if path not in self.texts:
            raise HoldfastError(codes.PEER_ERROR, "Not in the project")
        self.texts[path] = text

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        return Decision.REJECT

    async def elicit(self, params: JsonObject) -> JsonObject:
        return {}

    async def sample(self, params: JsonObject) -> JsonObject:
        return {}
