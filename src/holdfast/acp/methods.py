"""ACP's session methods, for one connection and the sessions that are open on it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from holdfast.acp import messages, session_options
from holdfast.acp.attachment import Attachment
from holdfast.acp.content import check_prompt
from holdfast.acp.door import EditorDoor
from holdfast.acp.folders import check_folder, check_folders, resolve_path
from holdfast.acp.messages import decode_params
from holdfast.acp.rate_limit import RateLimit
from holdfast.acp.serve import SessionDefaults
from holdfast.acp.updates import Update
from holdfast.agent.agent import Agent
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.file_access import access_files
from holdfast.model.json import Json, JsonObject
from holdfast.model.trust import Trust, lowest_trust, parse_trust
from holdfast.resolve.protected import paths_closed_to_tools
from holdfast.session.permission import stored_mode
from holdfast.session.run_to_completion import run_to_completion
from holdfast.session.session import Session
from holdfast.store import clock
from holdfast.store.lease import check_free
from holdfast.store.query import SessionQuery, Visibility
from holdfast.store.types import StoredSession
from holdfast.wire.frame import Notification, Request
from holdfast.wire.peer import Peer

_REPLAY_BATCH = 100
_LOCAL_USER = Visibility(user_id="")
"""The editor runs as the local user, who sees the sessions that belong to no other user."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _WaitingPrompt:
    """A prompt that waits until its session is ready. `session/cancel` can cancel it before its turn exists."""

    session_id: str
    cancelled: bool = False


class SessionMethods:
    """Answers an editor's requests. No message of the editor ends the process; every error has a code and a reason."""

    def __init__(self, host: Host, agent: Agent, defaults: SessionDefaults, peer: Peer) -> None:
        self._host = host
        self._agent = agent
        self._defaults = defaults
        self._peer = peer
        self._attachments: dict[str, Attachment] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting_prompts: set[_WaitingPrompt] = set()
        self._unknown_ids = RateLimit()
        self._methods: dict[str, Callable[[Request, messages.InitializeParams], Awaitable[Any]]] = {
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

    async def handle(self, request: Request, client: messages.InitializeParams) -> Any:
        """Answer one request."""
        return await self._methods[request.method](request, client)

    def on_notification(self, notification: Notification) -> None:
        """Handle a notification. Ignore unknown ones, and those about sessions that are not open."""
        if notification.method != "session/cancel":
            return
        try:
            session_id = decode_params(notification, messages.SessionIdParams).session_id
        except HoldfastError as error:
            log.warning("malformed session/cancel ignored", extra={"reason": error.message})
            return
        # Not at once: the task of a prompt that arrived just before has not run yet.
        asyncio.get_running_loop().call_soon(self._cancel, session_id)

    def _cancel(self, session_id: str) -> None:
        for waiting in self._waiting_prompts:
            if waiting.session_id == session_id:
                waiting.cancelled = True
        attachment = self._attachments.get(session_id)
        if attachment is not None:
            attachment.conversation.cancel()

    async def stop(self) -> None:
        """Cancel every turn. The host closes the sessions."""
        await asyncio.gather(*(attachment.stop() for attachment in self._attachments.values()))

    async def _authenticate(self, request: Request, client: messages.InitializeParams) -> Any:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            "No authentication is needed, and there is no method for it.",
            hint="Send session/new without authenticating.",
        )

    # Opening sessions

    async def _new(self, request: Request, client: messages.InitializeParams) -> Any:
        params = decode_params(request, messages.NewSessionParams)
        door = EditorDoor(self._peer, client.client_capabilities)
        options = await access_files(self._open_options, params, door, path=str(params.cwd))
        session = await self._host.open(options)
        session_id = str(session.context.session_id)
        door.session_id = session_id
        attachment = self._attachments[session_id] = self._new_attachment(session, door, has_title=False)
        attachment.start()
        return {"sessionId": session_id, **_describe_state(attachment)}

    async def _load(self, request: Request, client: messages.InitializeParams) -> Any:
        attachment = await self._reopen(request, client)
        async with self._finish_reopen(attachment):
            await self._replay(attachment)
        attachment.start()
        return _describe_state(attachment)

    async def _replay(self, attachment: Attachment) -> None:
        batch: list[Update] = []
        async for stored in self._host.store.events(attachment.session.context.session_id):
            batch += attachment.updates.for_event(stored.event)
            if len(batch) >= _REPLAY_BATCH:
                await attachment.send_all(batch)
                batch = []
        await attachment.send_all(batch)

    async def _resume(self, request: Request, client: messages.InitializeParams) -> Any:
        attachment = await self._reopen(request, client)
        async with self._finish_reopen(attachment):
            attachment.start()
            await attachment.wait_for_servers()
        return _describe_state(attachment)

    @asynccontextmanager
    async def _finish_reopen(self, attachment: Attachment) -> AsyncIterator[None]:
        """Restore the mode, then run the block. If that fails, close the session; if the session was closed, raise."""
        session_id = attachment.session.context.session_id
        try:
            # Read the session again: now that this process holds it, no other can change it.
            stored = await self._host.find_session(session_id)
            attachment.conversation.permissions.mode = stored_mode(stored.settings)
            yield
        except BaseException:
            await run_to_completion(self._close_if_attached(attachment))
            raise
        if self._attachments.get(session_id) is not attachment:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                "The session was closed while it was being reopened.",
                hint="Send session/load or session/resume again.",
            )

    async def _close_if_attached(self, attachment: Attachment) -> None:
        session_id = attachment.session.context.session_id
        async with self._lock(session_id):
            if self._attachments.get(session_id) is attachment:
                await self._detach_and_close(session_id)

    async def _reopen(self, request: Request, client: messages.InitializeParams) -> Attachment:
        """Reopen the session and attach to it. The attachment is not ready yet."""
        params = decode_params(request, messages.LoadSessionParams)
        async with self._lock(params.session_id):
            stored = await self._find_stored(params.session_id)
            door = EditorDoor(self._peer, client.client_capabilities)
            door.session_id = params.session_id
            options = await access_files(self._open_options, params, door, path=str(params.cwd))
            self._check_not_attached(params.session_id)
            session = await self._host.reopen(params.session_id, options)
            attachment = self._new_attachment(session, door, has_title=bool(stored.title))
            self._attachments[params.session_id] = attachment
            return attachment

    def _new_attachment(self, session: Session, door: EditorDoor, *, has_title: bool) -> Attachment:
        wait_seconds = self._host.settings.links.wait_seconds
        return Attachment(
            session, self._agent, door, self._peer, has_title=has_title, wait_seconds=wait_seconds
        )

    def _lock(self, session_id: str) -> asyncio.Lock:
        """The lock for reopening, closing or deleting a session, so that requests about it run in order.

        A method must not await anything before it takes the lock, or a later request could overtake it.
        """
        return self._locks.setdefault(session_id, asyncio.Lock())

    def _check_not_attached(self, session_id: str) -> None:
        if session_id in self._attachments:
            raise HoldfastError(
                codes.SESSION_HELD,
                f"The session {session_id} is already open on this connection: use it, or close it first.",
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
            servers=tuple(params.mcp_servers or ()),
            opened_by="acp",
            door=door,
        )

    # Prompting, listing and closing

    async def _prompt(self, request: Request, client: messages.InitializeParams) -> Any:
        params = decode_params(request, messages.PromptParams)
        waiting = _WaitingPrompt(params.session_id)
        self._waiting_prompts.add(waiting)
        try:
            attachment = await self._get_attachment(params.session_id)
        finally:
            self._waiting_prompts.discard(waiting)
        check_prompt(params.prompt)
        reason = await attachment.conversation.prompt(params.prompt, cancelled=waiting.cancelled)
        return {"stopReason": reason}

    async def _list(self, request: Request, client: messages.InitializeParams) -> Any:
        params = decode_params(request, messages.ListSessionsParams)
        cwd = None
        if params.cwd is not None:
            cwd = await access_files(resolve_path, "cwd", params.cwd, path=params.cwd)
        page = await self._host.store.sessions(
            SessionQuery(visibility=_LOCAL_USER, cwd=cwd, cursor=params.cursor)
        )
        sessions: list[Json] = [_describe_session(stored) for stored in page.items]
        return (
            {"sessions": sessions}
            if page.cursor is None
            else {"sessions": sessions, "nextCursor": page.cursor}
        )

    async def _close(self, request: Request, client: messages.InitializeParams) -> Any:
        session_id = decode_params(request, messages.SessionIdParams).session_id
        async with self._lock(session_id):
            if session_id in self._attachments:
                await run_to_completion(self._detach_and_close(session_id))
            else:
                await self._check_closed(session_id)
        return {}

    async def _check_closed(self, session_id: str) -> None:
        """Raise if the session is unknown, or if another process has it open."""
        stored = await self._find_stored(session_id)
        lease = await self._host.store.read(lambda tx: tx.lease(stored.context.session_id))
        if lease is not None:
            check_free(lease, clock.now())

    async def _delete(self, request: Request, client: messages.InitializeParams) -> Any:
        session_id = decode_params(request, messages.SessionIdParams).session_id
        async with self._lock(session_id):
            await run_to_completion(self._detach_and_close(session_id))
            try:
                await self._host.delete_session(session_id)
            except HoldfastError as error:
                # Deleting an unknown session succeeds, so the response does not reveal which ids exist.
                if error.code is not codes.UNKNOWN_SESSION:
                    raise
        return {}

    async def _detach_and_close(self, session_id: str) -> None:
        attachment = self._attachments.pop(session_id, None)
        if attachment is not None:
            await attachment.stop()
            await self._host.close_session(attachment.session)

    # Session options

    async def _set_mode(self, request: Request, client: messages.InitializeParams) -> Any:
        params = decode_params(request, messages.SetModeParams)
        await self._change_option(
            await self._get_attachment(params.session_id), session_options.MODE, params.mode_id
        )
        return {}

    async def _set_config_option(self, request: Request, client: messages.InitializeParams) -> Any:
        params = decode_params(request, messages.SetConfigOptionParams)
        attachment = await self._get_attachment(params.session_id)
        await self._change_option(attachment, params.config_id, params.value)
        return {"configOptions": _describe_options(attachment)}

    async def _change_option(self, attachment: Attachment, option: str, value: Any) -> None:
        if option == session_options.MODE:
            await attachment.conversation.permissions.change_mode(session_options.parse_mode(value))
        elif option == session_options.TRUST:
            await self._lower_trust(attachment, parse_trust(str(value)))
        else:
            raise HoldfastError(codes.BAD_ARGUMENT, f"There is no option {option[:40]!r}.")
        await attachment.session.record.wait_published()
        await attachment.send(
            {"sessionUpdate": "config_option_update", "configOptions": _describe_options(attachment)}
        )

    async def _lower_trust(self, attachment: Attachment, trust: Trust) -> None:
        if lowest_trust(trust, attachment.session.context.trust_level) is not trust:
            raise HoldfastError(codes.BAD_ARGUMENT, "A session's trust can be lowered, never raised.")
        if trust is Trust.SANDBOXED:
            await attachment.session.lower_trust()

    # Finding sessions

    async def _get_attachment(self, session_id: str) -> Attachment:
        """The attachment of an open session, once it is ready."""
        async with self._lock(session_id):
            attachment = self._attachments.get(session_id)
        if attachment is not None:
            await attachment.ready.wait()
        if attachment is None or self._attachments.get(session_id) is not attachment:
            await self._find_stored(session_id)
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"The session {session_id} is not open on this connection. Load or resume it first.",
                hint="Send session/load or session/resume.",
                session_id=session_id,
            )
        return attachment

    async def _find_stored(self, session_id: str) -> StoredSession:
        """Find a stored session. Raises BUSY after too many unknown ids."""
        self._unknown_ids.acquire()
        try:
            stored = await self._host.find_session(session_id)
        except HoldfastError as error:
            if error.code is not codes.UNKNOWN_SESSION:
                self._unknown_ids.refund()
            raise
        self._unknown_ids.refund()
        return stored


def _describe_state(attachment: Attachment) -> JsonObject:
    return session_options.describe_state(
        attachment.conversation.permissions.mode, attachment.session.context.trust_level
    )


def _describe_options(attachment: Attachment) -> list[Json]:
    return session_options.describe_options(
        attachment.conversation.permissions.mode, attachment.session.context.trust_level
    )


def _describe_session(stored: StoredSession) -> JsonObject:
    context = stored.context
    return {
        "sessionId": str(context.session_id),
        "cwd": context.cwd,
        "additionalDirectories": list(context.roots[1:]),
        "title": stored.title or None,
        "updatedAt": stored.updated.isoformat(),
    }
