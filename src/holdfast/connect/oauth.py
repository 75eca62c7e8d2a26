"""Show a remote server who we are: by a login that is kept, refreshed by the SDK."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

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
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json

_EXPIRED = 1.0  # a time long past
_UNAUTHORIZED = 401


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


class Login(httpx2.Auth):
    """Logs in with the SDK's provider: with a kept login that is refreshed, or with a person who is asked.

    The SDK lets one request at a time through until its answer begins; with a token that should do, ours all go
    at once. Without a person to ask, a refused token is refreshed once, and nothing else is tried.
    """

    def __init__(self, name: str, provider: Provider, *, asks_a_person: bool = False) -> None:
        self._name = name
        self._provider = provider
        self._asks_a_person = asks_a_person

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the request with a token, and whatever requests it takes to get one."""
        context = self._provider.context
        if self._provider.ready and context.current_tokens is not None:
            request.headers["Authorization"] = f"Bearer {context.current_tokens.access_token}"
            response = yield request
            if response.status_code != _UNAUTHORIZED:
                return
            context.token_expiry_time = _EXPIRED
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                refused = outgoing is request and response.status_code == _UNAUTHORIZED
                if refused and not self._asks_a_person:
                    raise login_needed(self._name)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except OAuthFlowError as error:
            raise login_needed(self._name, str(error)) from None
        finally:
            await flow.aclose()


def login_needed(name: str, why: str = "") -> HoldfastError:
    """There is no login that does."""
    reason = f": {why[:200].rstrip('.')}" if why else ""
    return HoldfastError(
        codes.LOGIN_NEEDED, f"{name!r} accepts no login of ours{reason}. Run: holdfast servers login {name}"
    )


def _plain(model: BaseModel | None) -> dict[str, Json] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)
