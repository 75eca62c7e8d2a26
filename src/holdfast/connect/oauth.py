"""Show a remote server who we are: by a login that is kept, refreshed by the SDK."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel

from holdfast.connect.logins import Kept, read_login, write_login
from holdfast.connect.terms import Terms
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.server import ServerSpec
from holdfast.wire.http.client import Pool, Reply, written
from holdfast.wire.http.url import Url, read_url

Way: TypeAlias = Callable[[Url], Pool]
"""Which connections a request takes, to whatever address."""

_EXPIRED = 1.0  # a time long past


class Provider(OAuthClientProvider):
    """The SDK's provider, whose login outlives the process: it is kept with its expiry and with whom to ask for more.

    The SDK keeps neither; without the first an old token would pass for a good one, without the second it would be
    refreshed at a guessed address.
    """

    def __init__(
        self,
        url: str,
        file: Path,
        *,
        fresh: bool,
        redirect_uri: str = "http://127.0.0.1/callback",
        ask: Callable[[str], Awaitable[None]] | None = None,
        answer: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
    ) -> None:
        self._file = file
        self._fresh = fresh
        self._client: OAuthClientInformationFull | None = None
        metadata = OAuthClientMetadata(
            client_name="Holdfast",
            redirect_uris=[AnyUrl(redirect_uri)],
            token_endpoint_auth_method="none",
        )
        super().__init__(url, metadata, self, ask, answer)

    @property
    def ready(self) -> bool:
        """Whether there is a token that should do."""
        return self._initialized and self.context.is_token_valid()

    # What the SDK asks of its storage

    async def get_tokens(self) -> OAuthToken | None:
        """The kept tokens; what is known beside them is put in place."""
        kept = self._kept()
        if kept is None:
            return None
        self.context.token_expiry_time = kept.expires_at
        if kept.server is not None:
            self.context.oauth_metadata = OAuthMetadata.model_validate(kept.server)
        if kept.resource is not None:
            self.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(kept.resource)
        return OAuthToken.model_validate(kept.tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """As whom we are registered."""
        kept = self._kept()
        if kept is None or kept.client is None:
            return None
        self._client = OAuthClientInformationFull.model_validate(kept.client)
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Remember it until there are tokens to keep it with."""
        self._client = client_info

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep the tokens, and all that it takes to refresh them."""
        kept = Kept(
            url=self.context.server_url,
            tokens=_plain(tokens) or {},
            expires_at=self.context.token_expiry_time,
            client=_plain(self._client),
            server=_plain(self.context.oauth_metadata),
            resource=_plain(self.context.protected_resource_metadata),
        )
        write_login(self._file, kept)

    def _kept(self) -> Kept | None:
        return None if self._fresh else read_login(self._file)


class Login:
    """Logs in with the SDK's provider: with a kept login that is refreshed, or with a person who is asked.

    Without a person to ask, a refused token is refreshed once, and nothing else is tried.
    """

    def __init__(
        self, spec: ServerSpec, provider: Provider, way: Way, terms: Terms, *, asks_a_person: bool = False
    ) -> None:
        self._name = spec.name
        self._provider = provider
        self._way = way
        self._terms = terms
        self._asks_a_person = asks_a_person

    async def shown(self) -> str:
        """What shows who we are; a token that ran out is refreshed first."""
        if not self._provider.ready:
            return await self._flow(None)
        tokens = self._provider.context.current_tokens
        return f"Bearer {tokens.access_token}" if tokens is not None else ""

    async def after(self, refused: str, reply: Reply) -> str:
        """What to show instead: what somebody else got meanwhile, a refreshed token, or that of a person's new login."""
        context = self._provider.context
        if self._provider.ready and (shown := await self.shown()) not in ("", refused):
            return shown
        if context.current_tokens is not None:
            context.token_expiry_time = _EXPIRED
        better = await self._flow(reply if self._asks_a_person else None)
        if better in ("", refused):
            raise login_needed(self._name)
        return better

    async def _flow(self, refusal: Reply | None) -> str:
        """Do what the SDK wants done until it lets the request go, or go again after this refusal; its header then."""
        request = httpx2.Request("POST", self._provider.context.server_url)
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while outgoing is not request or refusal is not None:
                if outgoing is request:
                    assert refusal is not None
                    response = httpx2.Response(refusal.status, headers=refusal.headers, request=request)
                    refusal = None
                else:
                    response = await self._carried(outgoing)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return ""
        except OAuthFlowError as error:
            raise login_needed(self._name, str(error)) from None
        finally:
            await flow.aclose()
        return request.headers.get("Authorization", "")

    async def _carried(self, request: httpx2.Request) -> httpx2.Response:
        """A request of the SDK's, to wherever the server said; past the guard."""
        url = read_url(str(request.url))
        ours = ("host", "accept-encoding", "connection", "content-length")
        headers = {name: value for name, value in request.headers.items() if name not in ours}
        body = await request.aread()
        sent = written(request.method, url, headers, body if body or request.method == "POST" else None)
        reply = await self._way(url).ask(url, sent, seconds=self._terms.connect_seconds)
        try:
            content = await reply.read(self._terms.limits.line_bytes)
        finally:
            reply.close()
        kept = {name: value for name, value in reply.headers.items() if not name.endswith("-encoding")}
        return httpx2.Response(reply.status, headers=kept, content=content, request=request)


def login_needed(name: str, why: str = "") -> HoldfastError:
    """There is no login that does."""
    reason = f": {why[:200].rstrip('.')}" if why else ""
    return HoldfastError(
        codes.LOGIN_NEEDED, f"{name!r} accepts no login of ours{reason}. Run: holdfast servers login {name}"
    )


def _plain(model: BaseModel | None) -> dict[str, Json] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)
