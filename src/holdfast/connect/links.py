"""One link per server per scope, started once however many ask."""

import asyncio
from collections.abc import Iterable, Iterator

from holdfast.connect.connection import Connect, Connection, reads_context
from holdfast.connect.link import Link
from holdfast.connect.scope import Scope
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Lifetime, ServerSpec


class Links:
    """Every link of a host. Whoever opens a scope closes it here; `close` ends all."""

    def __init__(self, connect: Connect, *, most: int = 1000, idle_seconds: float | None = None) -> None:
        self._connect = connect
        self._most = most
        self._idle_seconds = idle_seconds
        self._by_scope: dict[Scope, dict[str, Link]] = {}
        self._shared: dict[str, Link] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def obtain(self, scope: Scope, spec: ServerSpec) -> Link:
        """The scope's link to a server, starting it where there is none that works."""
        scope.check_open()
        owner = _owner(scope, spec)
        place = self._shared if owner is None else self._by_scope.setdefault(owner, {})
        link = place.get(spec.name)
        if link is not None and link.usable and (link.spec is spec or link.spec == spec):
            link.touch()
            return link
        if link is not None:
            self._let_go(link)
        if self._count() >= self._most:
            raise HoldfastError(
                codes.TOO_MANY_LINKS,
                f"{self._most} servers are connected already; {spec.name!r} has to wait.",
            )
        lost_state = link is not None and link.was_live
        place[spec.name] = Link(
            spec, self._connect(spec, owner), lost_state=lost_state, idle_seconds=self._idle_seconds
        )
        return place[spec.name]

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
        await _close_all(self._by_scope.pop(scope, {}).values())

    async def close_links(self, scope: Scope) -> None:
        """End the scope's links and keep the scope: the next call connects anew, its state lost."""
        links = self._by_scope.get(scope, {})
        await _close_all(links.values())

    async def close(self) -> None:
        """End everything."""
        for scope in self._by_scope:
            scope.closed = True
        links = [*self._all()]
        self._by_scope.clear()
        self._shared.clear()
        await _close_all(links)
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _let_go(self, link: Link) -> None:
        task = asyncio.create_task(link.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _all(self) -> Iterator[Link]:
        yield from self._shared.values()
        for links in self._by_scope.values():
            yield from links.values()

    def _count(self) -> int:
        return sum(link.usable for link in self._all())


def _owner(scope: Scope, spec: ServerSpec) -> Scope | None:
    match spec.lifetime:
        case Lifetime.HOST:
            return None
        case Lifetime.SESSION:
            return scope.home
        case Lifetime.RUN:
            return scope


async def _close_all(links: Iterable[Link]) -> None:
    await asyncio.gather(*(link.close() for link in links))
