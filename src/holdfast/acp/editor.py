"""One editor on one connection: every method about sessions, and the sessions it has open."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from holdfast.acp import modes, shapes
from holdfast.acp.blocks import check_prompt
from holdfast.acp.door import EditorDoor
from holdfast.acp.folders import grantable, real
from holdfast.acp.guesses import Guesses
from holdfast.acp.opened import Opened
from holdfast.acp.reading import read
from holdfast.acp.terms import Terms
from holdfast.acp.translate import Update
from holdfast.agent.agent import Agent
from holdfast.host import Host, Opening
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.trust import Trust, lowest, parse_trust
from holdfast.resolve.own import own_places
from holdfast.session.outlast import outlast
from holdfast.session.session import Session
from holdfast.store import clock
from holdfast.store.lease import check_free
from holdfast.store.query import Reach, SessionQuery
from holdfast.store.rows import StoredSession
from holdfast.wire.frame import Notification, Request
from holdfast.wire.peer import Peer

_AT_ONCE = 100
_MINE = Reach(user_id="")
"""Whoever runs the editor is the machine's own user, and sees the sessions that belong to no other."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Coming:
    """A prompt that is no turn yet; it can be cancelled all the same."""

    session_id: str
    cancelled: bool = False


class Editor:
    """Answers an editor. Nothing it sends ends the process; what it cannot have is said with a number and a reason."""

    def __init__(self, host: Host, agent: Agent, terms: Terms, peer: Peer) -> None:
        self._host = host
        self._agent = agent
        self._terms = terms
        self._peer = peer
        self._open: dict[str, Opened] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._coming: set[_Coming] = set()
        """The prompts that wait for their session to be ready."""
        self._guesses = Guesses()
        self._methods: dict[str, Callable[[Request, shapes.Initialize], Awaitable[Any]]] = {
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/prompt": self._prompt,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
        }

    async def handle(self, request: Request, client: shapes.Initialize) -> Any:
        """Answer one request of this client's."""
        return await self._methods[request.method](request, client)

    def notice(self, notification: Notification) -> None:
        """Hear a notification; an unknown one, or one about nothing we have, is passed over."""
        if notification.method != "session/cancel":
            return
        try:
            session_id = read(notification, shapes.Named).session_id
        except HoldfastError as error:
            log.warning("session/cancel not understood", extra={"reason": error.message})
            return
        # A prompt that came right before it has yet to take its first step.
        asyncio.get_running_loop().call_soon(self._cancel, session_id)

    def _cancel(self, session_id: str) -> None:
        for coming in self._coming:
            if coming.session_id == session_id:
                coming.cancelled = True
        found = self._open.get(session_id)
        if found is not None:
            found.conversation.cancel()

    async def stop(self) -> None:
        """End every turn as cancelled; the host closes the sessions."""
        await asyncio.gather(*(found.end() for found in self._open.values()))

    async def _authenticate(self, request: Request, client: shapes.Initialize) -> Any:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            "No authentication is needed, and there is no method for it.",
            hint="Go on without: send session/new.",
        )

    # Opening

    async def _new(self, request: Request, client: shapes.Initialize) -> Any:
        asked = read(request, shapes.NewSession)
        door = EditorDoor(self._peer, client.client_capabilities)
        session = await self._host.open(self._opening(asked, door))
        session_id = str(session.context.session_id)
        door.session_id = session_id
        found = self._open[session_id] = self._opened(session, door, titled=False)
        found.begin()
        return {"sessionId": session_id, **_state(found)}

    async def _load(self, request: Request, client: shapes.Initialize) -> Any:
        found = await self._reopen(request, client)
        async with self._until_ready(found):
            await self._replay(found)
        found.begin()
        return _state(found)

    async def _replay(self, found: Opened) -> None:
        waiting: list[Update] = []
        async for stored in self._host.store.events(found.session.context.session_id):
            waiting += found.telling.of(stored.event)
            if len(waiting) >= _AT_ONCE:
                await found.tell_all(waiting)
                waiting = []
        await found.tell_all(waiting)

    async def _resume(self, request: Request, client: shapes.Initialize) -> Any:
        found = await self._reopen(request, client)
        async with self._until_ready(found):
            found.begin()
            await found.wait_for_servers()
        return _state(found)

    @asynccontextmanager
    async def _until_ready(self, found: Opened) -> AsyncIterator[None]:
        """Restore its mode, then do what is left to do; what fails, or is closed meanwhile, is not left open."""
        session_id = found.session.context.session_id
        try:
            # As it is stored now that nobody else can change it.
            stored = await self._host.find(session_id)
            found.conversation.mode = modes.stored_mode(stored.settings)
            yield
        except BaseException:
            await outlast(self._give_up(found))
            raise
        if self._open.get(session_id) is not found:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                "The session was closed while it was opened again.",
                hint="Send session/load or session/resume once more.",
            )

    async def _give_up(self, found: Opened) -> None:
        session_id = found.session.context.session_id
        async with self._lock(session_id):
            if self._open.get(session_id) is found:
                await self._end(session_id)

    async def _reopen(self, request: Request, client: shapes.Initialize) -> Opened:
        """Take the session up; it is among the open ones, but not ready yet."""
        asked = read(request, shapes.OldSession)
        async with self._lock(asked.session_id):
            stored = await self._stored(asked.session_id)
            door = EditorDoor(self._peer, client.client_capabilities)
            door.session_id = asked.session_id
            opening = self._opening(asked, door)
            self._check_not_ours(asked.session_id)
            session = await self._host.reopen(asked.session_id, opening)
            found = self._opened(session, door, titled=bool(stored.title))
            self._open[asked.session_id] = found
            return found

    def _opened(self, session: Session, door: EditorDoor, *, titled: bool) -> Opened:
        patience = self._host.settings.links.wait_seconds
        return Opened(session, self._agent, door, self._peer, titled=titled, patience=patience)

    def _lock(self, session_id: str) -> asyncio.Lock:
        """Held while a session is opened again, closed or deleted: what is asked behind that comes after it.

        Nothing may be awaited before it is taken, or what was asked later could be first.
        """
        return self._locks.setdefault(session_id, asyncio.Lock())

    def _check_not_ours(self, session_id: str) -> None:
        if session_id in self._open:
            raise HoldfastError(
                codes.SESSION_HELD,
                f"The session {session_id} is open on this connection already: go on with it, or close it first.",
                sessionId=session_id,
            )

    def _opening(self, asked: shapes.NewSession | shapes.OldSession, door: EditorDoor) -> Opening:
        own = own_places(self._host.settings)
        cwd = grantable("cwd", asked.cwd, own)
        roots = [
            grantable(f"additionalDirectories[{place}]", found, own)
            for place, found in enumerate(asked.additional_directories or ())
        ]
        return Opening(
            cwd=cwd,
            roots=tuple(roots),
            workspace=self._terms.workspace,
            trust=self._terms.trust,
            servers=tuple(asked.mcp_servers or ()),
            source="acp",
            door=door,
        )

    # Working

    async def _prompt(self, request: Request, client: shapes.Initialize) -> Any:
        asked = read(request, shapes.Prompt)
        coming = _Coming(asked.session_id)
        self._coming.add(coming)
        try:
            found = await self._find(asked.session_id)
        finally:
            self._coming.discard(coming)
        check_prompt(asked.prompt)
        reason = await found.conversation.prompt(asked.prompt, cancelled=coming.cancelled)
        return {"stopReason": reason}

    async def _list(self, request: Request, client: shapes.Initialize) -> Any:
        asked = read(request, shapes.ListSessions)
        cwd = None if asked.cwd is None else real("cwd", asked.cwd)
        page = await self._host.store.sessions(SessionQuery(reach=_MINE, cwd=cwd, cursor=asked.cursor))
        listed: list[Json] = [_listed(stored) for stored in page.items]
        return (
            {"sessions": listed} if page.cursor is None else {"sessions": listed, "nextCursor": page.cursor}
        )

    async def _close(self, request: Request, client: shapes.Initialize) -> Any:
        session_id = read(request, shapes.Named).session_id
        async with self._lock(session_id):
            if session_id in self._open:
                await outlast(self._end(session_id))
            else:
                await self._check_closed(session_id)
        return {}

    async def _check_closed(self, session_id: str) -> None:
        """One that is closed already is closed; one that somebody else has open is not ours to close."""
        stored = await self._stored(session_id)
        lease = await self._host.store.read(lambda reads: reads.lease(stored.context.session_id))
        if lease is not None:
            check_free(lease, clock.now())

    async def _delete(self, request: Request, client: shapes.Initialize) -> Any:
        session_id = read(request, shapes.Named).session_id
        async with self._lock(session_id):
            await outlast(self._end(session_id))
            try:
                await self._host.forget(session_id)
            except HoldfastError as error:
                # One that is not there is deleted already; the answer tells nobody which ids there are.
                if error.code is not codes.UNKNOWN_SESSION:
                    raise
        return {}

    async def _end(self, session_id: str) -> None:
        found = self._open.pop(session_id, None)
        if found is not None:
            await found.end()
            await self._host.close_session(found.session)

    # Options

    async def _set_mode(self, request: Request, client: shapes.Initialize) -> Any:
        asked = read(request, shapes.SetMode)
        await self._change(await self._find(asked.session_id), modes.MODE, asked.mode_id)
        return {}

    async def _set_config_option(self, request: Request, client: shapes.Initialize) -> Any:
        asked = read(request, shapes.SetConfigOption)
        found = await self._find(asked.session_id)
        await self._change(found, asked.config_id, asked.value)
        return {"configOptions": _options(found)}

    async def _change(self, found: Opened, option: str, value: Any) -> None:
        if option == modes.MODE:
            await found.conversation.change_mode(modes.parse_mode(value))
        elif option == modes.TRUST:
            await self._lower(found, parse_trust(str(value)))
        else:
            raise HoldfastError(codes.BAD_ARGUMENT, f"There is no option {option[:40]!r}.")
        await found.session.record.told()
        await found.tell({"sessionUpdate": "config_option_update", "configOptions": _options(found)})

    async def _lower(self, found: Opened, trust: Trust) -> None:
        if lowest(trust, found.session.context.trust_level) is not trust:
            raise HoldfastError(codes.BAD_ARGUMENT, "A session's trust can be lowered, never raised.")
        if trust is Trust.SANDBOXED:
            await found.session.lower_trust()

    # Finding

    async def _find(self, session_id: str) -> Opened:
        """An open session, once its past has been replayed."""
        async with self._lock(session_id):
            found = self._open.get(session_id)
        if found is not None:
            await found.ready.wait()
        if found is None or self._open.get(session_id) is not found:
            await self._stored(session_id)
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"The session {session_id} is not open on this connection: load or resume it first.",
                hint="Send session/load or session/resume.",
                sessionId=session_id,
            )
        return found

    async def _stored(self, session_id: str) -> StoredSession:
        """A stored session; whoever asks for many that there are not is made to wait."""
        self._guesses.take()
        try:
            stored = await self._host.find(session_id)
        except HoldfastError as error:
            if error.code is not codes.UNKNOWN_SESSION:
                self._guesses.give_back()
            raise
        self._guesses.give_back()
        return stored


def _state(found: Opened) -> JsonObject:
    return modes.state(found.conversation.mode, found.session.context.trust_level)


def _options(found: Opened) -> list[Json]:
    return modes.options(found.conversation.mode, found.session.context.trust_level)


def _listed(stored: StoredSession) -> JsonObject:
    context = stored.context
    return {
        "sessionId": str(context.session_id),
        "cwd": context.cwd,
        "additionalDirectories": list(context.roots[1:]),
        "title": stored.title or None,
        "updatedAt": stored.updated.isoformat(),
    }
