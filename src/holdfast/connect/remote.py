"""A host's way to servers elsewhere: one TLS context and few connections for all of its links."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.connect.asks import Asks
from holdfast.connect.connection import Connection
from holdfast.connect.logins import has_login, login_file
from holdfast.connect.scope import Scope
from holdfast.connect.terms import Terms
from holdfast.model.context import SessionContext
from holdfast.model.json import JsonObject
from holdfast.model.server import Http, ServerSpec, Source, Sse
from holdfast.model.trust import Trust
from holdfast.token.audience import audience_of
from holdfast.token.signer import Signer

if TYPE_CHECKING:
    from holdfast.connect.endpoint import Credentials
    from holdfast.connect.oauth import Provider, Way
    from holdfast.connect.passages import Passages


class Remote:
    """Opens connections to remote servers. Nothing of HTTP is imported before the first one."""

    def __init__(self, *, signer: Signer, logins: Path, reachable: tuple[str, ...] = ()) -> None:
        self._signer = signer
        self._logins = logins
        self._reachable = reachable
        self._loading = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._passages: Passages | None = None
        self._providers: dict[Path, Provider] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def open(
        self, spec: ServerSpec, scope: Scope | None, *, asks: Asks, meta: JsonObject, terms: Terms
    ) -> AsyncIterator[Connection]:
        """A connection to a remote server; at the end nothing of it is left but what the host shares."""
        passages = await self._loaded()
        from holdfast.connect.endpoint import Endpoint
        from holdfast.connect.http import open_http
        from holdfast.connect.sse import open_sse
        from holdfast.wire.http.url import read_url

        assert isinstance(spec.transport, Http | Sse)
        audience = audience_of(spec.transport.url)

        def sign(context: SessionContext, request: bytes | None) -> str:
            return self._signer.sign(context, audience, request)

        guarded = is_guarded(spec, scope)
        endpoint = Endpoint(
            passages.pool(guarded=guarded),
            spec=spec,
            terms=terms,
            context=lambda: scope.context if scope is not None else None,
            sign=sign,
            credentials=self._kept_login(
                spec, passages.way(read_url(spec.transport.url), guarded=guarded), terms
            ),
        )
        opening = open_http if isinstance(spec.transport, Http) else open_sse
        async with opening(spec, endpoint, asks=asks, meta=meta, terms=terms) as connection:
            yield connection

    def _kept_login(self, spec: ServerSpec, way: "Way", terms: Terms) -> "Credentials | None":
        assert isinstance(spec.transport, Http | Sse)
        if not has_login(spec):
            return None
        file = login_file(self._logins, spec.transport.url)
        if not file.exists():
            return None
        from holdfast.connect.oauth import Login, Provider

        # All links share it: a refresh token is good for one refresh, whichever of them needs it first.
        provider = self._providers.get(file)
        if provider is None:
            provider = self._providers[file] = Provider(spec.transport.url, file, fresh=False)
        return Login(spec, provider, way, terms)

    async def _loaded(self) -> "Passages":
        if self._passages is None:
            async with self._loading:
                if self._passages is None:
                    # The system's certificates take their time, for which other sessions need not wait.
                    passages = await asyncio.to_thread(_passages, self._reachable)
                    self._passages = await self._stack.enter_async_context(passages)
        return self._passages


def is_guarded(spec: ServerSpec, scope: Scope | None) -> bool:
    """Whether the server must lie out on the internet: it was brought by a client, or a sandboxed session may use it."""
    trust = scope.context.trust_level if scope is not None else spec.trust
    return spec.source is Source.CLIENT or trust is Trust.SANDBOXED


def _passages(reachable: tuple[str, ...]) -> "Passages":
    from holdfast.connect import endpoint, http, passages, sse

    assert all((endpoint, http, sse))
    return passages.Passages(reachable)
