"""Opens connections to remote servers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.connect.connection import Connection, ConnectOptions
from holdfast.connect.http.login_store import login_file, uses_login
from holdfast.connect.scope import Scope
from holdfast.connect.server_requests import ServerRequests
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.model.blocked_addresses import is_loopback_host
from holdfast.model.context import SessionContext
from holdfast.model.json import JsonObject
from holdfast.model.server import Http, ServerSpec, Source, Sse
from holdfast.model.trust import Trust
from holdfast.model.worker_threads import WorkerThreads
from holdfast.token.claims import audience_of
from holdfast.token.signer import Signer

if TYPE_CHECKING:
    from holdfast.connect.http.endpoint import Credentials
    from holdfast.connect.http.oauth import ChoosePool, LoginProvider
    from holdfast.connect.http.pools import Pools


class RemoteConnector:
    """Opens connections to remote servers, which share connection pools. The first connection imports aiohttp."""

    def __init__(
        self,
        *,
        signer: Signer,
        logins: Path,
        obtained: ObtainedSecrets,
        reachable: tuple[str, ...] = (),
        own_ports: Callable[[], Collection[int]] = frozenset[int],
    ) -> None:
        """`logins` is the folder of the saved logins. `own_ports` returns the ports on which this host listens."""
        self._signer = signer
        self._obtained = obtained
        self._logins = logins
        self._reachable = reachable
        self._own_ports = own_ports
        self._loading = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._pools: Pools | None = None
        self._providers: dict[Path, LoginProvider] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def open(
        self,
        spec: ServerSpec,
        scope: Scope | None,
        *,
        server_requests: ServerRequests,
        meta: JsonObject,
        options: ConnectOptions,
    ) -> AsyncIterator[Connection]:
        """Connect to a remote server."""
        pools = await self._load_pools()
        from holdfast.connect.http.endpoint import Endpoint
        from holdfast.connect.http.open_http_connection import open_http_connection
        from holdfast.connect.http.url import parse_url

        assert isinstance(spec.transport, Http | Sse)
        audience = audience_of(spec.transport.url)
        self._obtained.add_context_tokens()

        def sign(context: SessionContext | None, request: bytes | None) -> str:
            sender = context or (scope.context if scope is not None else None)
            if sender is None:
                return ""
            return self._signer.sign(spec.context_for_server(sender), audience, request)

        public_only = is_public_only(spec, scope)
        # A server that sessions share has a quota of its own.
        quota_owner = scope.quota_owner if scope is not None else f"server {spec.name}"
        choose_pool = pools.pool_chooser(
            parse_url(spec.transport.url), public_only=public_only, quota_owner=quota_owner
        )
        pool = pools.pool(public_only=public_only, quota_owner=quota_owner)
        if public_only and (local := local_address(spec, scope, self._own_ports)):
            pool = pool.allowing(*local)
        endpoint = Endpoint(
            pool,
            spec=spec,
            options=options,
            sign=sign,
            mask=partial(
                self._obtained.add_from_server, scope.context.session_id if scope is not None else ""
            ),
            credentials=self._credentials(spec, choose_pool, options),
        )
        async with open_http_connection(
            spec, endpoint, server_requests=server_requests, meta=meta, options=options
        ) as connection:
            yield connection

    def _credentials(
        self, spec: ServerSpec, choose_pool: "ChoosePool", options: ConnectOptions
    ) -> "Credentials | None":
        """The saved login to a server; None if there is none, or if the server may not use one."""
        assert isinstance(spec.transport, Http | Sse)
        if not uses_login(spec):
            return None
        file = login_file(self._logins, spec.transport.url)
        if not file.exists():
            return None
        from holdfast.connect.http.oauth import LoginProvider, OAuthCredentials

        # All links with one login share a provider, because a refresh token can be used only once.
        provider = self._providers.get(file)
        if provider is None:
            provider = self._providers[file] = LoginProvider(
                spec.transport.url, file, obtained=self._obtained
            )
        return OAuthCredentials(spec, provider, choose_pool, options)

    async def _load_pools(self) -> "Pools":
        if self._pools is None:
            async with self._loading:
                if self._pools is None:
                    # Importing aiohttp and loading the system's certificates would block the event loop.
                    pools = await WorkerThreads("import", threads=1).run(_make_pools, self._reachable)
                    self._pools = await self._stack.enter_async_context(pools)
        return self._pools


def is_public_only(spec: ServerSpec, scope: Scope | None) -> bool:
    """Whether the server must be at a public address: a client defined it, it is confined, or its session is sandboxed.

    A server that sessions share (`scope` is None) must be at a public address if sandboxed sessions may use it.
    """
    trust = scope.context.trust_level if scope is not None else spec.min_trust
    return spec.source is Source.CLIENT or spec.trust_in(trust) is Trust.SANDBOXED


def local_address(
    spec: ServerSpec, scope: Scope | None, own_ports: Callable[[], Collection[int]]
) -> tuple[str, int] | None:
    """The host and port of a server on this machine that an editor brings to a direct session; None for all others.

    The URL itself must have a loopback address; other names, redirects and addresses in answers do not count. Holdfast's own
    ports are never allowed.
    """
    from holdfast.connect.http.url import parse_url

    is_direct = scope is not None and spec.trust_in(scope.context.trust_level) is Trust.DIRECT
    if spec.source is not Source.CLIENT or not is_direct or not isinstance(spec.transport, Http | Sse):
        return None
    url = parse_url(spec.transport.url)
    host, port = url.raw_host or "", url.port or 0
    return (host, port) if is_loopback_host(host) and port not in own_ports() else None


def _make_pools(reachable: tuple[str, ...]) -> "Pools":
    from holdfast.connect.http import endpoint, open_http_connection, pools

    assert all((endpoint, open_http_connection))  # imported here, because this function runs in a thread
    return pools.Pools(reachable)
