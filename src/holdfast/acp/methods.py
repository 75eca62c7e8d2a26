"""Answers the requests of one editor connection: ACP's methods for sessions."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from holdfast.acp import messages
from holdfast.acp.config_options import (
    AGENT_OPTION,
    MODE_OPTION,
    MODEL_OPTION,
    TRUST_OPTION,
    describe_options,
    describe_state,
)
from holdfast.acp.content import check_prompt
from holdfast.acp.door import EditorDoor
from holdfast.acp.editor_session import EditorSession
from holdfast.acp.messages import decode_params
from holdfast.acp.own_session import OwnSession
from holdfast.acp.reopen_session import reopen_session
from holdfast.acp.serve import SessionDefaults
from holdfast.acp.unknown_id_limit import UnknownIdLimit
from holdfast.builtin.servers import AGENT_SERVERS
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.host.session_folders import check_folder, check_folders, resolve_path
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.json import Json, JsonObject
from holdfast.model.permission import DoorKind, require_mode
from holdfast.model.trust import Trust, lowest_trust, parse_trust
from holdfast.resolve.protected_paths import paths_closed_to_tools
from holdfast.session.run_to_completion import run_to_completion
from holdfast.store.lease import check_free
from holdfast.store.query import SessionQuery, Visibility
from holdfast.store.types import StoredSession
from holdfast.wire.messages import Notification, Request
from holdfast.wire.peer import Peer

_MAX_LISTS = 4
"""How many `session/list` requests are answered at a time."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _WaitingPrompt:
    """A prompt that waits until its session is ready."""

    session_id: str
    cancelled: bool = False


class SessionMethods:
    """Answers an editor's requests about sessions."""

    def __init__(self, host: Host, defaults: SessionDefaults, peer: Peer) -> None:
        self._host = host
        self._defaults = defaults
        self._peer = peer
        self._sessions: dict[str, EditorSession] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._sent_notices: set[tuple[str, str]] = set()
        self._waiting_prompts: set[_WaitingPrompt] = set()
        self._unknown_id_limit = UnknownIdLimit()
        self._listing = asyncio.Semaphore(_MAX_LISTS)
        self._handlers: dict[str, Callable[[Request, messages.InitializeParams], Awaitable[Any]]] = {
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

    async def handle(self, request: Request, client_params: messages.InitializeParams) -> Any:
        """Answer one request. `client_params` are the params of `initialize`."""
        handler = self._handlers.get(request.method)
        if handler is None:
            raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method[:80]!r}.")
        return await handler(request, client_params)

    def on_notification(self, notification: Notification) -> None:
        """Handle `session/cancel`. Ignore other notifications."""
        if notification.method != "session/cancel":
            return
        try:
            session_id = decode_params(notification, messages.SessionIdParams).session_id
        except HoldfastError as error:
            log.warning("malformed session/cancel ignored", extra={"reason": error.message})
            return
        # Cancel a little later: the task of a prompt that arrived just before has not run yet.
        asyncio.get_running_loop().call_soon(self._cancel, session_id)

    def _cancel(self, session_id: str) -> None:
        for waiting in self._waiting_prompts:
            if waiting.session_id == session_id:
                waiting.cancelled = True
        if session_id in self._sessions:
            self._sessions[session_id].cancel()

    async def stop(self) -> None:
        """Stop every session, and wait until every request is answered."""
        await asyncio.gather(*(session.stop() for session in self._sessions.values()))
        await self._peer.wait_idle()

    async def leave_all(self) -> None:
        """Detach the editor from every session."""
        sessions, self._sessions = self._sessions, {}
        await asyncio.gather(*(session.leave() for session in sessions.values()))

    async def _authenticate(self, request: Request, client_params: messages.InitializeParams) -> Any:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            "No authentication is needed, and there is no method for it.",
            hint="Send session/new without authenticating.",
        )

    # Opening sessions

    async def _new(self, request: Request, client_params: messages.InitializeParams) -> Any:
        params = decode_params(request, messages.NewSessionParams)
        door = EditorDoor(self._peer, client_params.client_capabilities, name=client_params.client_name)
        options = await run_with_file_timeout(self._open_options, params, door, path=str(params.cwd))
        session = await self._host.open(options)
        session_id = str(session.context.session_id)
        wait_seconds = self._host.settings.links.wait_seconds
        editor_session = OwnSession(session, door, self._peer, replay=False, wait_seconds=wait_seconds)
        editor_session.agents = await self._list_agents(session.context.cwd)
        editor_session.opened_with = options
        editor_session.sent_notices = self._sent_notices
        self._sessions[session_id] = editor_session
        await editor_session.start()
        door.set_session_id(session_id)
        return {"sessionId": session_id, **describe_state(editor_session.options)}

    async def _load(self, request: Request, client_params: messages.InitializeParams) -> Any:
        editor_session = await self._reopen(request, client_params, replay=True)
        async with self._finish_reopen(editor_session):
            await editor_session.start()
        return describe_state(editor_session.options)

    async def _resume(self, request: Request, client_params: messages.InitializeParams) -> Any:
        editor_session = await self._reopen(request, client_params, replay=False)
        async with self._finish_reopen(editor_session):
            await editor_session.start()
            await editor_session.wait_for_servers()
        return describe_state(editor_session.options)

    @asynccontextmanager
    async def _finish_reopen(self, editor_session: EditorSession) -> AsyncIterator[None]:
        """Run the block, which finishes reopening a session: it replays events or waits for servers. If it fails, leave the session.

        Raises BAD_ARGUMENT if another request closed the session during the block.
        """
        try:
            yield
        except BaseException:
            await run_to_completion(self._leave_if_open(editor_session))
            raise
        if self._sessions.get(editor_session.session_id) is not editor_session:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                "The session was closed while it was being reopened.",
                hint="Send session/load or session/resume again.",
            )

    async def _leave_if_open(self, editor_session: EditorSession) -> None:
        async with self._lock(editor_session.session_id):
            if self._sessions.get(editor_session.session_id) is editor_session:
                await self._leave(editor_session.session_id)

    async def _reopen(
        self, request: Request, client_params: messages.InitializeParams, *, replay: bool
    ) -> EditorSession:
        """Reopen the session and attach the editor. The caller starts it."""
        params = decode_params(request, messages.LoadSessionParams)
        async with self._lock(params.session_id):
            await self._find_stored(params.session_id)
            door = EditorDoor(
                self._peer,
                client_params.client_capabilities,
                params.session_id,
                name=client_params.client_name,
            )
            options = await run_with_file_timeout(self._open_options, params, door, path=str(params.cwd))
            self._check_not_open(params.session_id)
            # The connection may still have a session that was closed elsewhere, or whose events could not be read.
            await self._leave(params.session_id)
            return await self._reopen_with(params.session_id, options, door, replay=replay)

    async def _reopen_with(
        self, session_id: str, options: OpenOptions, door: EditorDoor, *, replay: bool
    ) -> EditorSession:
        editor_session = await reopen_session(
            self._host, self._peer, session_id, options, door, replay=replay
        )
        editor_session.opened_with = options
        editor_session.sent_notices = self._sent_notices
        if isinstance(editor_session, OwnSession):
            editor_session.agents = await self._list_agents(str(options.cwd))
        self._sessions[session_id] = editor_session
        return editor_session

    async def _list_agents(self, folder: str) -> tuple[tuple[str, str], ...]:
        """Return the names and descriptions of the agents that a session in this folder can use."""
        return tuple(
            (agent.name, agent.definition.description)
            for agent in await self._host.agent_definitions.list(folder)
            if agent.definition is not None
        )

    def _lock(self, session_id: str) -> asyncio.Lock:
        """Return the lock for requests that reopen, close or delete this session, so that they run in order.

        Do not await anything before you take the lock, or a later request could overtake.
        """
        return self._locks.setdefault(session_id, asyncio.Lock())

    def _check_not_open(self, session_id: str) -> None:
        if self._find_open(session_id) is not None:
            raise HoldfastError(
                codes.SESSION_HELD,
                f"The session {session_id} is already open on this connection.",
                hint="Use it, or send session/close first.",
                session_id=session_id,
            )

    def _open_options(
        self, params: messages.NewSessionParams | messages.LoadSessionParams, door: EditorDoor
    ) -> OpenOptions:
        protected = paths_closed_to_tools(self._host.settings)
        return OpenOptions(
            cwd=check_folder("cwd", params.cwd, protected),
            roots=check_folders("additionalDirectories", params.additional_directories or (), protected),
            workspace=self._defaults.workspace,
            trust=self._defaults.trust,
            model=self._defaults.model,
            user_id=self._defaults.user_id,
            client_servers=tuple(params.mcp_servers or ()),
            opened_by=DoorKind.ACP,
            extra_builtins=AGENT_SERVERS,
            mode=None,
            door=door,
        )

    # Prompting, listing and closing

    async def _prompt(self, request: Request, client_params: messages.InitializeParams) -> Any:
        params = decode_params(request, messages.PromptParams)
        waiting = _WaitingPrompt(params.session_id)
        self._waiting_prompts.add(waiting)
        try:
            editor_session = await self._get_open(params.session_id)
        finally:
            self._waiting_prompts.discard(waiting)
        check_prompt(params.prompt)
        return {"stopReason": await editor_session.prompt(params.prompt, is_cancelled=waiting.cancelled)}

    async def _list(self, request: Request, client_params: messages.InitializeParams) -> Any:
        params = decode_params(request, messages.ListSessionsParams)
        cwd = None
        if params.cwd is not None:
            cwd = await run_with_file_timeout(resolve_path, "cwd", params.cwd, path=params.cwd)
        query = SessionQuery(
            visibility=Visibility(user_id=self._defaults.user_id or ""), cwd=cwd, cursor=params.cursor
        )
        async with self._listing:
            await self._peer.wait_writable()  # the answers may be large
            page = await self._host.store.sessions(query)
        sessions: list[Json] = [_describe_session(stored) for stored in page.items]
        if page.cursor is None:
            return {"sessions": sessions}
        return {"sessions": sessions, "nextCursor": page.cursor}

    async def _close(self, request: Request, client_params: messages.InitializeParams) -> Any:
        session_id = decode_params(request, messages.SessionIdParams).session_id
        async with self._lock(session_id):
            if self._find_open(session_id) is not None:
                await run_to_completion(self._leave(session_id))
            else:
                await self._check_closed(session_id)
        return {}

    async def _check_closed(self, session_id: str) -> None:
        """Raise if the session does not exist, or if another process has it open."""
        stored = await self._find_stored(session_id)
        lease = await self._host.store.read(lambda tx: tx.lease(stored.context.session_id))
        if lease is not None:
            check_free(lease, self._host.store.now())

    async def _delete(self, request: Request, client_params: messages.InitializeParams) -> Any:
        session_id = decode_params(request, messages.SessionIdParams).session_id
        async with self._lock(session_id):
            self._unknown_id_limit.acquire()
            try:
                await run_to_completion(self._close_for_all(session_id))
                await self._host.delete_session(session_id, self._defaults.user_id)
            except HoldfastError as error:
                # Deleting an unknown session succeeds, so the response does not reveal which ids exist.
                if error.code is codes.UNKNOWN_SESSION:
                    return {}
                self._unknown_id_limit.refund()
                raise
            self._unknown_id_limit.refund()
        return {}

    async def _leave(self, session_id: str) -> None:
        editor_session = self._sessions.pop(session_id, None)
        if editor_session is not None:
            await editor_session.leave()

    async def _close_for_all(self, session_id: str) -> None:
        """Close a live session of this process, even if other doors are attached."""
        if (live := self._host.find_live(session_id)) is not None:
            # Raises if the session is another user's.
            await self._host.find_session(session_id, self._defaults.user_id)
            await live.close("deleted")
        editor_session = self._sessions.get(session_id)
        if editor_session is not None and editor_session.is_closed:
            await self._leave(session_id)

    # Config options

    async def _set_mode(self, request: Request, client_params: messages.InitializeParams) -> Any:
        params = decode_params(request, messages.SetModeParams)
        await self._change_option(await self._get_open(params.session_id), MODE_OPTION, params.mode_id)
        return {}

    async def _set_config_option(self, request: Request, client_params: messages.InitializeParams) -> Any:
        params = decode_params(request, messages.SetConfigOptionParams)
        editor_session = await self._get_open(params.session_id)
        if params.config_id == AGENT_OPTION:
            editor_session = await self._change_agent(editor_session, str(params.value), client_params)
        else:
            await self._change_option(editor_session, params.config_id, params.value)
        return {"configOptions": describe_options(editor_session.options)}

    async def _change_agent(
        self, editor_session: EditorSession, name: str, client_params: messages.InitializeParams
    ) -> EditorSession:
        """Close the session and open it with another agent."""
        session_id = editor_session.session_id
        async with self._lock(session_id):
            if name == editor_session.options.agent:
                return editor_session
            if not name:
                raise HoldfastError(
                    codes.BAD_ARGUMENT, "An agent can be replaced by another one, never removed."
                )
            editor_session.check_can_reopen()
            assert editor_session.opened_with is not None
            before = editor_session.opened_with
            try:
                await self._host.agent_definitions.require(name, str(before.cwd))
            except HoldfastError as error:
                raise HoldfastError(
                    codes.BAD_ARGUMENT, error.message, hint="Choose one of the options."
                ) from None
            door = EditorDoor(
                self._peer, client_params.client_capabilities, session_id, name=client_params.client_name
            )
            await run_to_completion(self._leave(session_id))
            reopened = await self._reopen_with(
                session_id, replace(before, agent_name=name, model="", door=door), door, replay=False
            )
        async with self._finish_reopen(reopened):
            await reopened.start()
            await reopened.wait_for_servers()
        return reopened

    async def _change_option(self, editor_session: EditorSession, option: str, value: Any) -> None:
        """Change an option, and wait until the editor was told."""
        if option == MODE_OPTION:
            await editor_session.change_mode(require_mode(value))
        elif option == MODEL_OPTION:
            models = editor_session.options.models
            if value not in models:
                raise HoldfastError(
                    codes.BAD_ARGUMENT,
                    f"{str(value)[:80]!r} is not one of the models that can be chosen: {', '.join(models) or 'none'}.",
                    hint="Choose one of the options, or type /model NAME.",
                )
            await editor_session.set_model(str(value))
        elif option == TRUST_OPTION:
            await _lower_trust(editor_session, parse_trust(str(value)))
        else:
            raise HoldfastError(codes.BAD_ARGUMENT, f"There is no option {option[:40]!r}.")

    # Finding sessions

    def _find_open(self, session_id: str) -> EditorSession | None:
        """Return the session if this connection has it open and can still use it; None otherwise."""
        editor_session = self._sessions.get(session_id)
        return None if editor_session is None or editor_session.is_closed else editor_session

    async def _get_open(self, session_id: str) -> EditorSession:
        """Return a session that this connection has open, once it is ready. Raises if it is not open, or does not exist."""
        async with self._lock(session_id):
            editor_session = self._find_open(session_id)
        if editor_session is not None:
            await editor_session.ready.wait()
        if editor_session is None or self._find_open(session_id) is not editor_session:
            await self._find_stored(session_id)
            ended = self._sessions.get(session_id)
            why = f": {ended.failure.message}" if ended is not None and ended.failure is not None else "."
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"The session {session_id} is not open on this connection{why} Load or resume it first.",
                hint="Send session/load or session/resume.",
                session_id=session_id,
            )
        return editor_session

    async def _find_stored(self, session_id: str) -> StoredSession:
        """Find a stored session. Raise BUSY after too many unknown ids."""
        self._unknown_id_limit.acquire()
        try:
            stored = await self._host.find_session(session_id, self._defaults.user_id)
        except HoldfastError as error:
            if error.code is not codes.UNKNOWN_SESSION:
                self._unknown_id_limit.refund()
            raise
        self._unknown_id_limit.refund()
        return stored


async def _lower_trust(editor_session: EditorSession, trust: Trust) -> None:
    if lowest_trust(trust, editor_session.options.trust) is not trust:
        raise HoldfastError(codes.BAD_ARGUMENT, "A session's trust can be lowered, never raised.")
    if trust is Trust.SANDBOXED:
        await editor_session.lower_trust()


def _describe_session(stored: StoredSession) -> JsonObject:
    context = stored.context
    return {
        "sessionId": str(context.session_id),
        "cwd": context.cwd,
        "additionalDirectories": list(context.roots[1:]),
        "title": stored.title or None,
        "updatedAt": stored.updated.isoformat(),
    }
