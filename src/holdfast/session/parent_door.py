"""Passes the questions of a child session to the doors of its parent."""

from dataclasses import replace

from holdfast.model import codes
from holdfast.model.door import DoorCapabilities, PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject
from holdfast.model.visible_text import quote_line
from holdfast.session.doors import Doors

_MAX_NAME = 80  # characters
_UNSUPPORTED = "This session has no editor of its own."


class ParentDoor:
    """The doors of the parent session, as a door of its child."""

    capabilities = DoorCapabilities(permission=True, elicitation=True, elicitation_url=True)

    def __init__(self, parent: Doors, asker: str) -> None:
        """`asker` is the title of the child."""
        self._parent = parent
        self._asker = f"asked by the session {quote_line(asker, _MAX_NAME)}"

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        """Ask the parent's doors. The question names the child."""
        return await self._parent.request_permission(
            replace(question, title=f"{question.title}, {self._asker}")
        )

    async def elicit(self, params: JsonObject) -> JsonObject:
        message = params.get("message", "")
        return await self._parent.elicit({**params, "message": f"{message} ({self._asker})"})

    async def sample(self, params: JsonObject) -> JsonObject:
        return await self._parent.sample(params)

    async def read_text(self, path: str) -> str:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, _UNSUPPORTED)

    async def write_text(self, path: str, text: str) -> None:
        raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, _UNSUPPORTED)
