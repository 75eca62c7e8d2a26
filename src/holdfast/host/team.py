"""The sessions of a workspace as a team: a session can create others, send messages to them, and list and search them."""

import asyncio
import logging
import time
from collections import deque
from dataclasses import replace

from holdfast.builtin.call_facts import CallFacts
from holdfast.builtin.team.interface import NewChild, ReceivedMessage, SearchHit, SessionSummary
from holdfast.host.created_sessions import CreatedSessions
from holdfast.host.live_sessions import LiveSessions
from holdfast.host.open_options import inherit_options
from holdfast.host.opening import Opener
from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.event import MAIN_AGENT_ORIGIN, Origin
from holdfast.model.ids import SessionId, parse_session_id
from holdfast.model.trust import Trust
from holdfast.session.parent_door import ParentDoor
from holdfast.session.session import Session
from holdfast.settings import AgentSettings
from holdfast.store.query import SearchQuery, SessionQuery, Visibility
from holdfast.store.store import Store

log = logging.getLogger(__name__)

_HOUR = 3600.0
_CHECK_SECONDS = 1.0  # how often messages that other processes stored are looked for


class HostTeam:
    """The team tools of one host's sessions."""

    opener: Opener
    """Opens the new sessions. `compose` sets it later, because the opener is made after the tools of sessions."""

    def __init__(self, live: LiveSessions, store: Store, limits: AgentSettings) -> None:
        self._live = live
        self._store = store
        self._created = CreatedSessions(live, limits.max_depth)
        self._max_messages = limits.max_messages_per_hour
        self._sent: dict[str, deque[float]] = {}
        """When the sessions of each workspace sent messages in the last hour, or tried to."""

    async def create_session(self, caller: SessionId, facts: CallFacts, child: NewChild) -> str:
        """Create a session in the caller's workspace, with at most its rights. Return its id."""
        parent = self._require_member(caller)
        if facts.agent:
            raise HoldfastError(codes.NOT_PERMITTED, "A sub-agent cannot create sessions.")
        with self._created.reserve(parent) as keep_until_closed:
            outer = self._live.options_of(parent)
            options = replace(
                inherit_options({"title": child.title}, parent, outer),
                opened_by=outer.opened_by,
                agent_name=child.agent,
                restrictions=outer.restrictions,
                door=ParentDoor(parent.doors, child.title),
            )
            session = await self.opener.open(options)
            keep_until_closed(session)
        if not child.detached:
            parent.own_child(session)
        session_id = session.context.session_id
        if await self._send(parent, facts, session_id, child.initial_message) is None:
            await session.close("its first message could not be sent")
            raise _no_such_session()
        return session_id

    async def send_message(self, caller: SessionId, facts: CallFacts, target: str, text: str) -> str:
        """Send a message. Return its id. Every target that the caller may not reach gives the same error."""
        sender = self._require_member(caller)
        try:
            target_id = parse_session_id(target)
        except HoldfastError:
            target_id = SessionId("")
        message_id = await self._send(sender, facts, target_id, text)
        if message_id is None:
            raise _no_such_session()
        return message_id

    async def read_inbox(self, caller: SessionId, limit: int) -> list[ReceivedMessage]:
        """The latest messages to the caller, including those that were delivered."""
        session = self._require_member(caller)
        messages = await session.record.read(
            lambda tx: tx.inbox(session.context.session_id, only_undelivered=False, limit=limit)
        )
        return [
            ReceivedMessage(
                message_id=message.message_id,
                sender=message.sender,
                sender_title=message.sender_title,
                text=message.text,
                sent=message.sent,
                delivered=bool(message.delivered),
            )
            for message in messages
        ]

    async def list_sessions(self, caller: SessionId, limit: int) -> list[SessionSummary]:
        """The other sessions of the workspace that the caller may reach, the latest first."""
        context = self._require_member(caller).context
        query = SessionQuery(visibility=_visibility(context), limit=limit + 1)  # one may be the caller
        page = await self._store.sessions(query)
        return [
            SessionSummary(
                session_id=stored.context.session_id,
                title=stored.title,
                state=stored.state,
                updated=stored.updated,
                source=stored.source,
                tags=stored.tags,
                is_child=stored.context.parent_session_id == caller,
            )
            for stored in page.items
            if stored.context.session_id != caller
        ][:limit]

    async def search_sessions(
        self, caller: SessionId, query: str, *, limit: int, source: str, tags: tuple[str, ...]
    ) -> list[SearchHit]:
        """Messages and titles of the sessions that the caller may reach, if they contain all of the words."""
        context = self._require_member(caller).context
        search = SearchQuery(
            visibility=_visibility(context), words=query, limit=limit, source=source or None, tags=tags
        )
        page = await self._store.search(search)
        return [
            SearchHit(session_id=hit.session.context.session_id, title=hit.session.title, snippet=hit.snippet)
            for hit in page.items
        ]

    def can_create(self, session: Session) -> bool:
        """Whether the session may create another one now. If not, its agent does not see the tool."""
        return self._created.is_allowed(session)

    async def watch(self) -> None:
        """Deliver the messages that other processes stored for sessions of this host, and those that were waiting."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            if not self._live.any_in_workspace():
                continue
            try:
                waiting = await self._store.read(lambda tx: tx.sessions_with_messages())
            except HoldfastError as error:
                log.warning("could not look for messages", extra={"reason": error.message})
                continue
            for session_id in waiting:
                self._notify(session_id)

    async def _send(self, sender: Session, facts: CallFacts, target: SessionId, text: str) -> str | None:
        self._count_message(sender)
        origin = Origin(agent=facts.agent) if facts.agent else MAIN_AGENT_ORIGIN
        message_id = await sender.mailbox.send(target, text, title=await sender.title(), origin=origin)
        if message_id is not None:
            self._notify(target)
        return message_id

    def _count_message(self, sender: Session) -> None:
        """Count one more message of the workspace. Raise if there are too many: two agents could answer each other without end."""
        sent = self._sent.setdefault(sender.context.workspace_id or "", deque())
        now = time.monotonic()
        while sent and now - sent[0] > _HOUR:
            sent.popleft()
        if len(sent) >= self._max_messages:
            raise HoldfastError(
                codes.BUSY,
                f"The sessions of this workspace have sent {self._max_messages} messages in the last hour, which is the limit "
                "(agents.max_messages_per_hour).",
                hint="Wait, or let the user raise the limit in the settings.",
            )
        sent.append(now)

    def _notify(self, target: SessionId) -> None:
        session = self._live.find(target)
        if session is not None:
            session.deliver_messages()

    def _require_member(self, caller: SessionId) -> Session:
        """The calling session. It must belong to a workspace: a team is the sessions of one."""
        session = self._live.require(caller)
        if not session.context.workspace_id:
            raise HoldfastError(
                codes.NO_CONTEXT,
                "This session belongs to no workspace, so it has no team. Open a session in a folder that was registered with `holdfast workspaces add PATH`.",
            )
        return session


def _visibility(context: SessionContext) -> Visibility:
    return Visibility(
        workspace_id=context.workspace_id,
        trust_level=None if context.trust_level is Trust.DIRECT else Trust.SANDBOXED,
        user_id=context.user_id or "",
    )


def _no_such_session() -> HoldfastError:
    # One message for every reason: it must not reveal whether there is such a session.
    return HoldfastError(
        codes.UNKNOWN_SESSION, "There is no session with this id that this session may send messages to."
    )
