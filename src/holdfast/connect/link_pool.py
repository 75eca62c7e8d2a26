"""All links of a host: one per server and scope, shared by all tasks of the scope."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import TypeVar

from holdfast.connect.back_off import BackOff
from holdfast.connect.connection import Connect, Connection, reads_context
from holdfast.connect.link import Link, Uses
from holdfast.connect.scope import Scope
from holdfast.connect.script_files import read_script_files
from holdfast.model import codes
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.errors import HoldfastError
from holdfast.model.server import InProcess, Lifetime, ServerSpec, Source

Key = TypeVar("Key")
# Read once, because reading an enum member is slow in Python 3.11.
_HOST = Lifetime.HOST
_SESSION = Lifetime.SESSION


class LinkPool:
    """Opens links on first use."""

    def __init__(
        self,
        connect: Connect,
        *,
        max_links: int = 1000,
        idle_seconds: float = 0,
        shared_idle_seconds: float = 0,
        back_off: BackOff | None = None,
        aliases: ContextAliases = NO_ALIASES,
    ) -> None:
        """`max_links` limits how many links to servers outside of the host's process are open at the same time.

        A link closes after `idle_seconds`, or after `shared_idle_seconds` if sessions share the server; 0 means never.
        """
        self.aliases = aliases
        """Additional names under which servers get the session context."""
        self._connect = connect
        self._max_links = max_links
        self._idle_seconds = idle_seconds
        self._shared_idle_seconds = shared_idle_seconds
        self._back_off = back_off or BackOff()
        self._by_scope: dict[Scope, dict[str, Link]] = {}
        self._shared: dict[ServerSpec, Link] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.uses = Uses()
        """How many requests are waiting for the answers of servers."""

    def get_or_open(self, scope: Scope, spec: ServerSpec, *, ignore_back_off: bool = False) -> Link:
        """The scope's link to a server. Opens a new one if there is no usable link.

        Unless `ignore_back_off`, raise RESTART_DELAYED if the server keeps failing and it is too early to start it again.
        """
        scope.check_open()
        _check_trust(scope, spec)
        if spec.lifetime is _HOST:
            # Confinement and variables may differ between sessions, so only sessions with the same spec share a process.
            return self._get_or_replace(self._shared, spec, spec, None, ignore_back_off=ignore_back_off)
        owning_scope = _owning_scope(scope, spec)
        links = self._by_scope.get(owning_scope)
        if links is None:
            links = self._by_scope[owning_scope] = {}
        return self._get_or_replace(links, spec.name, spec, owning_scope, ignore_back_off=ignore_back_off)

    def restart_error(self, scope: Scope, spec: ServerSpec) -> HoldfastError | None:
        """The error that a call would get now because the server keeps failing; None if the server may be started."""
        link = self._find(scope, spec)
        if link is None or link.find_live_connection() is not None:  # the usual case
            return None
        if link.is_usable or link.spec != spec or link.is_outdated:
            return None
        return link.restart_error()

    def is_outdated(self, scope: Scope, spec: ServerSpec) -> bool:
        """Whether a script in a server's command was changed since the server was started, and no call is running."""
        link = self._find(scope, spec)
        return link is not None and bool(link.scripts.stamps) and link.is_outdated

    def find_usable(self, scope: Scope, spec: ServerSpec) -> Link | None:
        """The live or connecting link to the server; None if there is none."""
        link = self._find(scope, spec)
        return link if link is not None and link.is_usable else None

    def has_ended(self, scope: Scope, spec: ServerSpec) -> bool:
        """Whether there was a link to the server, and it is neither live nor connecting now."""
        link = self._find(scope, spec)
        return link is not None and not link.is_usable

    def connect_nowait(self, scope: Scope, spec: ServerSpec) -> tuple[Link, Connection] | None:
        """Return the link and its connection if the link is live. Otherwise begin to open the link and return None.

        Also None for a server that sessions share: only `connect` checks that the server reads the session context.
        """
        link = self._find(scope, spec)
        connection = None if link is None else link.find_live_connection()
        if (
            link is None
            or connection is None
            or link.spec is not spec
            or link.scripts.stamps
            or scope.is_closed
            or scope.session_scope.is_closed
            or not spec.may_be_connected_by(scope.context.trust_level)
        ):
            link = self.get_or_open(scope, spec)  # raises an error if the scope may not use the server
            connection = link.find_live_connection()
        else:  # the usual case
            link.touch()
        return (link, connection) if connection is not None and spec.lifetime is not _HOST else None

    async def connect(
        self, scope: Scope, spec: ServerSpec, *, ignore_back_off: bool = False
    ) -> tuple[Link, Connection]:
        """Open the link if there is none, and wait until it is live. Return the link and its connection.

        Close the link and raise if sessions share the server but it does not read the session context. With `ignore_back_off`, a
        server that keeps failing is started without delay.
        """
        link = self.get_or_open(scope, spec, ignore_back_off=ignore_back_off)
        connection = await link.wait_for_connection()
        if spec.lifetime is _HOST and not reads_context(connection.server_info):
            await link.close()
            raise HoldfastError(
                codes.NOT_SHAREABLE,
                f"{spec.name!r} cannot be shared by sessions: it does not read the session context. "
                'Set "lifetime" to "session" in its entry.',
            )
        return link, connection

    async def close_scope(self, scope: Scope) -> None:
        """Close the scope, the scopes of its runs, and their links."""
        scope.is_closed = True
        links = [link for inner in self._scopes_within(scope) for link in self._by_scope.pop(inner).values()]
        await self._close_all(links)

    async def close_links(self, scope: Scope, servers: AbstractSet[str] | None = None) -> None:
        """Close the scope's links, but not the scope. With `servers`, close only the links to these servers."""
        await self._close_all(
            [
                link
                for inner in self._scopes_within(scope)
                for name, link in self._by_scope[inner].items()
                if servers is None or name in servers
            ]
        )

    def specs(self) -> list[ServerSpec]:
        """The specs of the servers with a usable link."""
        return [link.spec for link in self._iter_links() if link.is_usable]

    async def close_matching(self, matches: Callable[[ServerSpec], bool]) -> None:
        """Close the links to the servers that match. A later call connects again."""
        await self._close_all([link for link in self._iter_links() if link.is_usable and matches(link.spec)])

    async def close(self) -> None:
        """Close every scope and every link."""
        for scope in self._by_scope:
            scope.is_closed = True
        links = [*self._iter_links()]
        self._by_scope.clear()
        self._shared.clear()
        await self._close_all(links)
        if self._closing:
            await asyncio.wait(self._closing)

    def _find(self, scope: Scope, spec: ServerSpec) -> Link | None:
        if spec.lifetime is _HOST:
            return self._shared.get(spec)
        owning_scope = scope.session_scope if spec.lifetime is _SESSION else scope
        links = self._by_scope.get(owning_scope)
        return None if links is None else links.get(spec.name)

    def _get_or_replace(
        self,
        links: dict[Key, Link],
        key: Key,
        spec: ServerSpec,
        owning_scope: Scope | None,
        *,
        ignore_back_off: bool,
    ) -> Link:
        """The current link if it is usable, and its spec and scripts are unchanged. Otherwise a new one."""
        link = links.get(key)
        changed = "" if link is None or not link.is_outdated else link.scripts.first_changed()
        if link is not None and not changed and link.is_usable and (link.spec is spec or link.spec == spec):
            link.touch()
            return link
        if link is not None and link.spec == spec and not ignore_back_off and not changed:
            error = link.restart_error()
            if error is not None:
                raise error
        if not isinstance(spec.transport, InProcess):  # servers in the host's process do not count
            self._check_limit(spec, owning_scope)
        scripts = read_script_files(spec, owning_scope.context.cwd if owning_scope is not None else "")
        replacement = links[key] = Link(
            spec,
            self._connect(spec, owning_scope),
            replaces=link,
            lost_state=link is None and _was_used_before(spec, owning_scope),
            idle_seconds=self._idle_seconds_for(owning_scope),
            back_off=self._back_off,
        )
        replacement.scripts, replacement.changed_file = scripts, changed
        replacement.all_uses = self.uses
        if link is not None:
            self._start_closing(link)
        return replacement

    def _idle_seconds_for(self, owning_scope: Scope | None) -> float | None:
        """After how many idle seconds a link closes; None if never. A shared link has no owning scope."""
        return (self._shared_idle_seconds if owning_scope is None else self._idle_seconds) or None

    def _scopes_within(self, scope: Scope) -> list[Scope]:
        """The scope itself and the scopes of its runs, if they have links."""
        return [inner for inner in self._by_scope if inner is scope or inner.session_scope is scope]

    def _start_closing(self, link: Link) -> asyncio.Task[None]:
        task = asyncio.create_task(link.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _close_all(self, links: Iterable[Link]) -> None:
        """Close links concurrently, even if the caller is cancelled."""
        tasks = [self._start_closing(link) for link in links]
        if tasks:
            await asyncio.wait(tasks)

    def _iter_links(self) -> Iterator[Link]:
        yield from self._shared.values()
        for links in self._by_scope.values():
            yield from links.values()

    def _check_limit(self, spec: ServerSpec, owning_scope: Scope | None) -> None:
        """Raise if too many servers are connected.

        A quota owner may connect another server only while more connections are free than its sessions have together, so that
        no owner can use up all of them. In the same way, a session leaves a part of what its owner may use to the owner's others.
        """
        free = self._max_links - _count_open(self._iter_links())
        if free <= 0:
            raise HoldfastError(
                codes.TOO_MANY_LINKS,
                f"{spec.name!r} was not connected: the limit of {self._max_links} connected servers is reached. "
                "Close a session, or raise links.max_open.",
            )
        if owning_scope is None:
            return
        own, others = self._count_of_owner(owning_scope)
        kept = own if others else 0  # for the owner's other sessions
        if own + others + kept >= free:
            more = f", the other sessions of the same client have {others}" if others else ""
            raise HoldfastError(
                codes.TOO_MANY_LINKS,
                f"{spec.name!r} was not connected: this session has {own} connected servers{more}, and the {free} that may still "
                "be connected are kept for other sessions. Close a session, or raise links.max_open.",
            )

    def _count_of_owner(self, scope: Scope) -> tuple[int, int]:
        """How many links this session has, and how many the other sessions of its quota owner have."""
        session_scope, quota_owner = scope.session_scope, scope.quota_owner
        own = others = 0
        for each, links in self._by_scope.items():
            if each.session_scope is session_scope:
                own += _count_open(links.values())
            elif each.quota_owner == quota_owner:
                others += _count_open(links.values())
        return own, others


def _was_used_before(spec: ServerSpec, owning_scope: Scope | None) -> bool:
    """Whether this is a resumed session that used the server before, so that the server's state is lost."""
    return (
        owning_scope is not None
        and spec.name in owning_scope.used_before
        # Built-in servers keep nothing in memory, or report a loss themselves.
        and spec.source is not Source.BUILTIN
    )


def _owning_scope(scope: Scope, spec: ServerSpec) -> Scope:
    return scope.session_scope if spec.lifetime is _SESSION else scope


def _count_open(links: Iterable[Link]) -> int:
    return sum(link.is_usable and not isinstance(link.spec.transport, InProcess) for link in links)


def _check_trust(scope: Scope, spec: ServerSpec) -> None:
    """Raise if the session's trust was lowered after it got this spec, and is now too low for the server."""
    if not spec.may_be_connected_by(scope.context.trust_level):
        raise HoldfastError(
            codes.NOT_GRANTED,
            f"This session may not use {spec.name!r}: the trust of the session was lowered.",
        )
