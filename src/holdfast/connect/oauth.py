"""Show a remote server who we are: by a login that is kept, refreshed by the SDK."""

import asyncio
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

from holdfast import __version__
from holdfast.connect.logins import Kept, read_login, write_login
from holdfast.connect.terms import Terms
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.server import ServerSpec
from holdfast.wire.http.client import Pool, Unreachable, written
from holdfast.wire.http.exchange import BrokenOff, Reply
from holdfast.wire.http.url import Url, read_url

Way: TypeAlias = Callable[[Url], Pool]
"""Which connections a request takes, to whatever address."""

_EXPIRED = 1.0  # a time long past
_SAID = {"accept": "application/json", "user-agent": f"holdfast/{__version__}"}


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
        self._refused = ""
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

    @property
    def header(self) -> str:
        """What shows who we are, as far as is known."""
        tokens = self.context.current_tokens
        return f"Bearer {tokens.access_token}" if tokens is not None else ""

    def look_again(self, refused: str = "") -> None:
        """What is kept may be newer than what we have: by another link, or another process. A refused token is none."""
        self._refused = refused or self._refused  # somebody who waits may have said so
        if not self._fresh:
            self._initialized = False
        elif self.header == refused:
            self.context.token_expiry_time = _EXPIRED

    # What the SDK asks of its storage

    async def get_tokens(self) -> OAuthToken | None:
        """The kept tokens; what is known beside them is put in place."""
        kept = self._kept()
        if kept is None:
            return None
        tokens = OAuthToken.model_validate(kept.tokens)
        is_refused = self._refused == f"Bearer {tokens.access_token}"
        self.context.token_expiry_time = _EXPIRED if is_refused else kept.expires_at
        if kept.server is not None:
            self.context.oauth_metadata = OAuthMetadata.model_validate(kept.server)
        if kept.resource is not None:
            self.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(kept.resource)
        return tokens

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
        try:
            write_login(self._file, kept)
        except OSError as error:
            raise OAuthFlowError(f"the login cannot be kept ({error.strerror})") from None

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
        if self._provider.ready:
            return self._provider.header
        self._provider.look_again()
        return await self._flow()

    async def after(self, refused: str, reply: Reply) -> str:
        """What to show instead: what somebody else got meanwhile, a refreshed token, or that of a person's new login."""
        if self._provider.ready and self._provider.header != refused:
            return self._provider.header
        if not refused and not self._asks_a_person:
            raise login_needed(self._name)  # there was nothing to show, nor to refresh
        self._provider.look_again(refused)
        better = await self._flow(refused, reply if self._asks_a_person else None)
        if better in ("", refused):
            raise login_needed(self._name)
        return better

    async def _flow(self, refused: str = "", refusal: Reply | None = None) -> str:
        """Do what the SDK wants done until it lets the request go, or go again after this refusal; its header then."""
        request = httpx2.Request("POST", self._provider.context.server_url)
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    response = await self._carried(outgoing)
                elif refusal is not None and request.headers.get("Authorization", "") in ("", refused):
                    response = _response(refusal, request)
                    refusal = None
                else:
                    return request.headers.get("Authorization", "")
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return ""
        except (OAuthFlowError, ValueError) as error:  # the second for what a model or a codec cannot read
            raise login_needed(self._name, str(error).partition("\n")[0]) from None
        finally:
            await flow.aclose()

    async def _carried(self, request: httpx2.Request) -> httpx2.Response:
        """A request of the SDK's, to wherever the server said; past the guard."""
        url = read_url(str(request.url))
        ours = ("host", "accept-encoding", "connection", "content-length")
        headers = _SAID | {name: value for name, value in request.headers.items() if name not in ours}
        body = await request.aread()
        sent = written(request.method, url, headers, body if body or request.method == "POST" else None)
        seconds = self._terms.connect_seconds
        try:
            # Others wait for this one, some of them without a deadline of their own.
            async with asyncio.timeout(seconds):
                reply = await self._way(url).ask(url, sent, seconds=seconds)
                try:
                    content = await reply.read(self._terms.limits.line_bytes)
                finally:
                    reply.close()
        except (BrokenOff, Unreachable, TimeoutError) as error:
            why = str(error) or "no answer in time"
            raise HoldfastError(
                codes.PEER_ERROR, f"{url.place}, where {self._name!r} has its logins, failed: {why}."
            ) from None
        response = _response(reply, request, content)
        response.next_request = _redirected(url, request, body, reply)
        return response


def _response(reply: Reply, request: httpx2.Request, content: bytes = b"") -> httpx2.Response:
    kept = [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in reply.headers.items()
        if not name.endswith("-encoding")
    ]
    return httpx2.Response(reply.status, headers=kept, content=content, request=request)


def _redirected(url: Url, request: httpx2.Request, body: bytes, reply: Reply) -> httpx2.Request | None:
    """The request that a redirect asks for; whether it is followed is the SDK's to say, within the origin."""
    same = (301, 302, 303, 307, 308) if request.method == "GET" else (307, 308)
    further = url.beside(reply.headers.get("location", "")) if reply.status in same else None
    if further is None:
        return None
    place = f"{further.scheme}://{further.authority}{further.target}"
    headers = {name: value for name, value in request.headers.items() if name != "host"}
    return httpx2.Request(request.method, place, headers=headers, content=body)


def login_needed(name: str, why: str = "") -> HoldfastError:
    """There is no login that does."""
    reason = f": {why[:200].rstrip('.')}" if why else ""
    return HoldfastError(
        codes.LOGIN_NEEDED, f"{name!r} accepts no login of ours{reason}. Run: holdfast servers login {name}"
    )


def _plain(model: BaseModel | None) -> dict[str, Json] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)
