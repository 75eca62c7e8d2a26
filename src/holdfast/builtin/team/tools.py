"""The team tools. Workspace, trust and user come from the caller's session, and are never arguments."""

from typing import Annotated, Any

from msgspec import Meta

from holdfast import __version__
from holdfast.builtin.call_facts import read_call_facts
from holdfast.builtin.team.interface import NewChild, Team
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.authentication import EnvironmentAuthenticator
from holdfast.toolkit.call import Call
from holdfast.toolkit.operation import Annotations
from holdfast.toolkit.toolbox import Toolbox
from holdfast.wire.mcp.server import Service

MAX_MESSAGE = 50_000  # characters
_ALLOWED_CONTROLS = frozenset("\n\t")
_MAX_TITLE = 200

TargetId = Annotated[str, Meta(max_length=100, description="A session id.")]
Text = Annotated[str, Meta(min_length=1, max_length=MAX_MESSAGE)]
Limit = Annotated[int, Meta(ge=1, le=100)]


def team_service(context: SessionContext, team: Team) -> Service:
    """Return the in-process server with the team tools of one session."""
    return team_toolbox(context, team).server(EnvironmentAuthenticator(context))


def team_toolbox(context: SessionContext, team: Team) -> Toolbox:
    """Return the toolbox with the team tools of one session."""
    box = Toolbox("team", version=__version__)
    caller = context.session_id
    refusals = [codes.UNKNOWN_SESSION.name, codes.BAD_MESSAGE.name]

    @box.tool(
        title="Create a session",
        codes=[codes.TOO_MANY_CHILDREN.name, *refusals],
        annotations=Annotations(destructive=False),
    )
    async def create_session(
        title: Annotated[str, Meta(min_length=1, max_length=_MAX_TITLE)],
        initial_message: Text,
        call: Call,
        agent: Annotated[str, Meta(max_length=100, description="The name of an agent definition.")] = "",
        detached: Annotated[bool, "Let it go on when this session ends."] = False,  # noqa: FBT002
    ) -> dict[str, Any]:
        """Start another agent in a session of its own, with at most your rights. It answers with messages."""
        child = NewChild(
            title=check_text(title),
            agent=agent,
            initial_message=check_text(initial_message),
            detached=detached,
        )
        return {"session_id": await team.create_session(caller, read_call_facts(call), child)}

    @box.tool(title="Send a message", codes=refusals, annotations=Annotations(destructive=False))
    async def send_message(session_id: TargetId, text: Text, call: Call) -> dict[str, Any]:
        """Send a message to another session of this workspace. It is delivered in a turn there; do not wait or poll for the answer."""
        sent = await team.send_message(caller, read_call_facts(call), session_id, check_text(text))
        return {"message_id": sent, "state": "stored"}

    @box.tool(title="Read the inbox", operation="query")
    async def read_inbox(limit: Limit = 20) -> dict[str, Any]:
        """Show the latest messages to this session. New messages also arrive by themselves."""
        return {"messages": await team.read_inbox(caller, limit)}

    @box.tool(title="List sessions", operation="query")
    async def list_workspace_sessions(limit: Limit = 20) -> dict[str, Any]:
        """List the other sessions of this workspace."""
        return {"sessions": await team.list_sessions(caller, limit)}

    @box.tool(title="Search sessions", operation="query")
    async def search_sessions(
        query: Annotated[str, Meta(min_length=1, max_length=1000)],
        limit: Limit = 10,
        source: Annotated[str, Meta(max_length=20)] = "",
        tags: Annotated[list[str], Meta(max_length=32)] | None = None,
    ) -> dict[str, Any]:
        """Find messages and titles in this workspace's sessions that contain all words."""
        matches = await team.search_sessions(
            caller, query, limit=limit, source=source, tags=tuple(tags or ())
        )
        return {"found": matches}

    return box


def check_text(text: str) -> str:
    """Raise BAD_MESSAGE if the text is too long, or has a control character other than a line break or a tab."""
    if len(text) > MAX_MESSAGE:
        raise HoldfastError(
            codes.BAD_MESSAGE, f"The text has {len(text)} characters; the maximum is {MAX_MESSAGE}."
        )
    for character in text:
        if not character.isprintable() and character not in _ALLOWED_CONTROLS and _is_control(character):
            raise HoldfastError(codes.BAD_MESSAGE, f"The text contains the control character {character!r}.")
    return text


def _is_control(character: str) -> bool:
    """Return whether a character moves the cursor or changes the direction of text. Other invisible ones, such as those in emoji, are allowed."""
    return (
        ord(character) < 32
        or 127 <= ord(character) < 160
        or character in "\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
    )
