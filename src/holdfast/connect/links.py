"""One link per server per scope, started once however many ask."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import TypeVar

from holdfast.connect.connection import Connect, Connection, reads_context
from holdfast.connect.link import Link
from holdfast.connect.scope import Scope
from holdfast.model import codes
from holdfast.model.aliases import NO_ALIASES, Aliases
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Lifetime, ServerSpec

K = TypeVar("K")


class Links:
    """Every link of a host. Whoever opens a scope closes it here; `close` ends all."""

    def __init__(
        self,
        connect: Connect,
        *,
        most: int = 1000,
        idle_seconds: float = 0,
        shared_idle_seconds: float = 0,
        aliases: Aliases = NO_ALIASES,
    ) -> None:
        self.aliases = aliases
        """By which other names servers are told who is calling."""
        self._connect = connect
        self._most = most
        self._idle_seconds = idle_seconds
        self._shared_idle_seconds = shared_idle_seconds
        self._by_scope: dict[Scope, dict[str, Link]] = {}
        self._shared: dict[ServerSpec, Link] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def obtain(self, scope: Scope, spec: ServerSpec) -> Link:
        """The scope's link to a server, starting it where there is none that works."""
        scope.check_open()
        _check_fits(scope, spec)
        if spec.lifetime is Lifetime.HOST:
            # Walls and variables may differ from session to session: only who needs the same shares a process.
            return self._kept(self._shared, spec, spec, None)
        owner = scope.home if spec.lifetime is Lifetime.SESSION else scope
        links = self._by_scope.get(owner)
        if links is None:
            links = self._by_scope[owner] = {}
        return self._kept(links, spec.name, spec, owner)

    def standing(self, scope: Scope, spec: ServerSpec) -> tuple[Link, Connection] | None:
        """A link and its connection, where nothing is to be waited for."""
        link = self.obtain(scope, spec)
        connection = link.standing
        return (link, connection) if connection is not None and spec.lifetime is not Lifetime.HOST else None

    async def connected(self, scope: Scope, spec: ServerSpec) -> tuple[Link, Connection]:
        """A link and its connection, once it stands."""
        link = self.obtain(scope, spec)
        connection = await link.connection()
        if spec.lifetime is Lifetime.HOST and not reads_context(connection.greeting):
            await link.close()
            raise HoldfastError(
                codes.NOT_SHAREABLE,
                f"{spec.name!r} cannot be shared by sessions: it does not read who is calling. "
                'Set "lifetime" to "session".',
            )
        return link, connection

    async def close_scope(self, scope: Scope) -> None:
        """End a scope and every link that was opened in it, all at once; one that fails stops no other."""
        scope.closed = True
        links = [link for inner in self._within(scope) for link in self._by_scope.pop(inner).values()]
        await self._close_all(links)

    async def close_links(self, scope: Scope) -> None:
        """End the scope's links and keep the scope: the next call connects anew, its state lost."""
        await self._close_all(
            [link for inner in self._within(scope) for link in self._by_scope[inner].values()]
        )

    async def close(self) -> None:
        """End everything."""
        for scope in self._by_scope:
            scope.closed = True
        links = [*self._all()]
        self._by_scope.clear()
        self._shared.clear()
        await self._close_all(links)
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _kept(self, links: dict[K, Link], key: K, spec: ServerSpec, owner: Scope | None) -> Link:
        """The link there is, if it works and is as the server is configured now; else a new one in its place."""
        link = links.get(key)
        if link is not None and link.usable and (link.spec is spec or link.spec == spec):
            link.touch()
            return link
        if self._count() >= self._most:
            raise HoldfastError(
                codes.TOO_MANY_LINKS,
                f"{self._most} servers are connected already; {spec.name!r} has to wait. "
                "Close a session, or let there be more: links.most.",
            )
        if link is not None:
            self._let_go(link)
        lost_state = link is not None and link.forgets
        idle_seconds = self._shared_idle_seconds if owner is None else self._idle_seconds
        links[key] = Link(
            spec, self._connect(spec, owner), lost_state=lost_state, idle_seconds=idle_seconds or None
        )
        return links[key]

    def _within(self, scope: Scope) -> list[Scope]:
        """The scope, and the runs in it, as far as they have links."""
        return [inner for inner in self._by_scope if inner is scope or inner.home is scope]

    def _let_go(self, link: Link) -> asyncio.Task[None]:
        task = asyncio.create_task(link.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def _close_all(self, links: Iterable[Link]) -> None:
        """Close links, all at once. Whoever waits for it may go away: they are closed all the same."""
        tasks = [self._let_go(link) for link in links]
        if tasks:
            await asyncio.wait(tasks)

    def _all(self) -> Iterator[Link]:
        yield from self._shared.values()
        for links in self._by_scope.values():
            yield from links.values()

    def _count(self) -> int:
        return sum(link.usable for link in self._all())


def _check_fits(scope: Scope, spec: ServerSpec) -> None:
    """Whoever looked a server up before the session's trust was lowered does not get it as it was then."""
    if not spec.fits(scope.context.trust_level):
        raise HoldfastError(
            codes.NOT_GRANTED, f"{spec.name!r} is not open to this session any more: its trust was lowered."
        )
