"""The project's `AGENTS.md`, which the model gets as instructions once the user has approved it."""

import hashlib
import json
import os
from pathlib import Path

import msgspec

from holdfast.connect.scope import Scope
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.ids import new_call_id
from holdfast.model.untrusted_file import read_untrusted_file
from holdfast.model.visible_text import strip_invisible
from holdfast.session.doors import Doors
from holdfast.session.record import Record

FILE = "AGENTS.md"
_MAX_BYTES = 64 * 1024
_HEAD = f"The user approved these instructions of the project's {FILE}:"
_ALWAYS_SCOPE = "in this folder, also in later sessions, as long as the file is unchanged"


def instructions_key(folder: str, user: str) -> str:
    """The key of the approvals that a user gave to the instructions of the project in this folder."""
    return json.dumps(["instructions", folder, FILE, user])


def instructions_prefix(folder: str) -> str:
    """The beginning of the keys of all users' approvals for this folder."""
    return json.dumps(["instructions", folder, FILE])[:-1]


class ProjectInstructions:
    """Reads the file when the agent asks for it, and asks the user about content that is not approved."""

    def __init__(self, scope: Scope, record: Record, doors: Doors) -> None:
        self._scope = scope
        self._record = record
        self._doors = doors
        self._answers: dict[str, bool] = {}
        """The user's answers for this session only, by the hash of the content."""

    async def text(self) -> str:
        """The approved instructions; empty if there are none, if the user declined, or if the user did not answer."""
        folder = self._scope.context.cwd
        content = await self._read(folder)
        if content is None:
            return ""
        digest = hashlib.sha256(content.encode()).hexdigest()
        try:
            is_allowed = await self._ask_if_undecided(folder, digest, content)
        except HoldfastError as error:
            if error.code not in (codes.NO_ANSWER, codes.TOO_LARGE, codes.CONNECTION_CLOSED):
                raise
            return ""  # the user is asked again in the next turn
        return f"{_HEAD}\n\n{content}" if is_allowed else ""

    async def _ask_if_undecided(self, folder: str, digest: str, content: str) -> bool:
        """Whether the user has approved the content. Ask the user, and keep the answer, unless it is known."""
        user = self._scope.context.user_id or ""
        key = instructions_key(folder, user)
        if digest in self._answers:
            return self._answers[digest]
        if await self._record.is_approved(key, digest):
            return True
        arguments = msgspec.json.encode({"file": FILE, "content": content})
        shown = await self._record.masks.mask_for_question(arguments)
        question = PermissionQuestion(
            call=ToolCall(call_id=new_call_id(), server="holdfast", tool=FILE, arguments=shown),
            title=f"Give the model this project's {FILE} as instructions?",
            can_remember=True,
            always_scope=_ALWAYS_SCOPE,
        )
        answer = await self._doors.request_permission(question)
        if answer is Decision.ALLOW_ALWAYS:
            await self._record.approve(key, digest, by=user or os.environ.get("USER", "") or "the user")
            return True
        self._answers[digest] = answer is Decision.ALLOW_ONCE
        return self._answers[digest]

    async def _read(self, folder: str) -> str | None:
        """The text of the file, without invisible characters; None if there is no readable file."""
        if not folder:
            return None
        path = Path(folder) / FILE
        try:
            content = await run_with_file_timeout(_read_file, path, path=str(path))
        except HoldfastError:
            return None
        # The user must see, and approve, exactly the text that the model gets.
        return None if content is None else strip_invisible(content)


def _read_file(path: Path) -> str | None:
    try:
        return read_untrusted_file(path, limit=_MAX_BYTES, follow_link=False).decode()
    except (OSError, UnicodeDecodeError):
        return None
