"""All client sessions of a gateway: found by key and credential, limited in number, ended when idle, or when the credential is revoked or expires."""

import asyncio
import secrets
import time
from collections.abc import Iterator

import msgspec

from holdfast.gateway.client_session import ClientSession
from holdfast.gateway.credential import Credential
from holdfast.gateway.event_streams import EventStreams
from holdfast.gateway.options import GatewayOptions
from holdfast.gateway.request_handler import RequestHandler
from holdfast.gateway.session_memory import SessionMemory
from holdfast.gateway.signed_state import StateSigner
from holdfast.host.host import Host
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http.limits import DEFAULT_HTTP_LIMITS, CallerQuota
from holdfast.wire.http.messages_to_client import MessagesToClient
from holdfast.wire.mcp.eras import Era
from holdfast.wire.mcp.server import ClientInfo

_FIRST_PRIMED_VERSION = "2025-11-25"  # earlier clients do not expect an event without data
MAX_HANDLES_PER_CREDENTIAL = 256
# Read once, because every request needs it: in Python 3.11, reading a member of an enum is slow.
_MODERN = Era.MODERN


class ServedClient:
    """A client session, and what answers its requests."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.handler = RequestHandler(session, StateSigner())
        self.streams = EventStreams(
            is_primed=session.client_info.version >= _FIRST_PRIMED_VERSION, memory=session.memory
        )
        self.requests = MessagesToClient()
        """The requests to a handshake-era client that wait for its answer."""


class ClientSessions:
    """The client sessions of one gateway."""

    def __init__(self, host: Host, options: GatewayOptions) -> None:
        self._host = host
        self._options = options
        self._limits = options.http_limits or DEFAULT_HTTP_LIMITS
        self._session_quota = CallerQuota(total=self._limits.sessions, share=self._limits.sessions_per_caller)
        self._memory_quota = CallerQuota(
            total=self._limits.kept_memory, share=self._limits.kept_memory_per_caller
        )
        self._clients: dict[str, ServedClient] = {}  # by key
        self._defaults: dict[str, str] = {}  # the keys of modern default sessions, by credential id
        self._handles: dict[str, str] = {}  # the credential id of each handle
        self._closing: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self.is_draining = False

    def __iter__(self) -> Iterator[ServedClient]:
        return iter(self._clients.values())

    def __len__(self) -> int:
        return len(self._clients)

    def open(self, credential: Credential, client_info: ClientInfo) -> ServedClient:
        """A new session of a handshake-era client."""
        return self._add(credential, client_info, secrets.token_hex(16))

    def find(self, key: str | None, credential: Credential) -> ServedClient:
        """The session of a handshake-era client. A session of another credential counts as unknown."""
        if key is None:
            raise HoldfastError(
                codes.BAD_HTTP,
                "Send initialize first. Then send the Mcp-Session-Id from its response in every request.",
            )
        served = self._find_usable(key)
        if served is None or served.session.credential.id != credential.id or served.session.era is _MODERN:
            raise HoldfastError(
                codes.UNKNOWN_MCP_SESSION,
                "There is no such session. Send initialize again to open a new one.",
            )
        served.session.touch()
        return served

    def find_or_open_modern(
        self, handle: str, credential: Credential, client_info: ClientInfo
    ) -> ServedClient:
        """The session of a modern client: that of the handle, or else the default one of its credential. Open it if it is not open."""
        if handle:
            if self._handles.get(handle) != credential.id:
                raise unknown_handle()
            key = handle
        else:
            key = self._defaults.get(credential.id, "")
        served = self._find_usable(key)
        if served is None:
            served = self._add(credential, client_info, handle or secrets.token_hex(16))
            if not handle:
                self._defaults[credential.id] = served.session.key
        served.session.touch()
        return served

    def issue_handle(self, credential: Credential) -> str:
        """A new handle of this credential. Its session is opened when the handle is used.

        If the credential has too many handles, the oldest one without an open session becomes invalid.
        """
        own = [handle for handle, owner in self._handles.items() if owner == credential.id]
        if len(own) >= MAX_HANDLES_PER_CREDENTIAL:
            unused = next((handle for handle in own if handle not in self._clients), None)
            if unused is None:
                raise HoldfastError(
                    codes.TOO_MANY_SESSIONS,
                    f"{MAX_HANDLES_PER_CREDENTIAL} handles of this credential have open sessions. Use one of them, or wait until a session has ended.",
                )
            del self._handles[unused]
        handle = secrets.token_urlsafe(24)
        self._handles[handle] = credential.id
        return handle

    def check_handle(self, handle: str, credential: Credential) -> None:
        """Raise unless the handle was issued to this credential. The error does not reveal whether the handle exists."""
        if self._handles.get(handle) != credential.id:
            raise unknown_handle()

    def end(self, served: ServedClient, reason: str) -> asyncio.Task[None]:
        """End a session. The returned task ends when everything that the session held is closed."""
        session = served.session
        if self._clients.pop(session.key, None) is not None:
            self._session_quota.release(session.credential.id)
            if self._defaults.get(session.credential.id) == session.key:
                del self._defaults[session.credential.id]
        served.requests.end()
        task = asyncio.create_task(session.close(reason))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def end_credential(self, credential_id: str, reason: str) -> None:
        """End all sessions of a credential, and forget its handles."""
        for handle in [handle for handle, owner in self._handles.items() if owner == credential_id]:
            del self._handles[handle]
        own = [served for served in self._clients.values() if served.session.credential.id == credential_id]
        await _wait([self.end(served, reason) for served in own])

    async def close(self, reason: str) -> None:
        """End every session."""
        if self._sweep is not None:
            self._sweep.cancel()
        for served in [*self._clients.values()]:
            self.end(served, reason)
        await _wait([*self._closing])

    def _find_usable(self, key: str) -> ServedClient | None:
        """The session with this key; None if something other than the gateway closed its Holdfast session."""
        served = self._clients.get(key)
        if served is not None and served.session.is_lost:
            self.end(served, "the session was closed")
            return None
        return served

    def _add(self, credential: Credential, client_info: ClientInfo, key: str) -> ServedClient:
        """Open a client session, if the limits allow it."""
        if self.is_draining:
            raise HoldfastError(codes.SHUTTING_DOWN, "The gateway is shutting down.")
        limit = self._limits.client_info_bytes
        if len(msgspec.json.encode(client_info)) > limit:
            raise HoldfastError(
                codes.TOO_LARGE,
                f"The client's name, capabilities and _meta have more than {limit} bytes. Send shorter values.",
            )
        self._options.before_open(credential)
        self._make_room(credential.id)
        memory = SessionMemory(self._memory_quota, credential.id)
        session = ClientSession(self._host, credential, self._options, client_info, key, memory)
        served = self._clients[key] = ServedClient(session)
        if self._sweep is None:
            self._schedule_sweep()
        return served

    def _make_room(self, owner: str) -> None:
        """Count a new session of this credential. If there are too many, first end the oldest one that was never used."""
        while not self._session_quota.try_acquire(owner):
            is_own_limit = self._session_quota.would_exceed_share(owner)
            unused = (
                served
                for served in self._clients.values()
                if not served.session.is_used
                and not served.session.is_busy
                and (not is_own_limit or served.session.credential.id == owner)
            )
            oldest = next(unused, None)
            if oldest is None:
                limit = self._session_quota.share if is_own_limit else self._session_quota.total
                whose = "sessions of this credential" if is_own_limit else "sessions"
                raise HoldfastError(
                    codes.TOO_MANY_SESSIONS, f"{limit} {whose} are already open. End one, or wait."
                )
            self.end(oldest, "another session was opened")

    def _schedule_sweep(self) -> None:
        seconds = max(0.05, min(30.0, self._limits.idle_seconds / 4, self._limits.unused_seconds / 4))
        self._sweep = asyncio.get_running_loop().call_later(seconds, self._end_idle)

    def _end_idle(self) -> None:
        """End the sessions that were idle for `idle_seconds`, or for `unused_seconds` if they were never used."""
        now, limits = time.monotonic(), self._limits
        for served in [*self._clients.values()]:
            session = served.session
            seconds = limits.idle_seconds if session.is_used else limits.unused_seconds
            if not session.is_busy and now - session.last_used > seconds:
                self.end(served, "idle")
        if self._clients:
            self._schedule_sweep()
        else:
            self._sweep = None


def unknown_handle() -> HoldfastError:
    """The error for a handle that does not exist, or is another credential's."""
    return HoldfastError(
        codes.UNKNOWN_MCP_SESSION,
        "There is no such handle. Get a new one (from `holdfast up`: with POST /s).",
    )


async def _wait(tasks: "list[asyncio.Task[None]]") -> None:
    if tasks:
        await asyncio.wait(tasks)
