"""OAuth credentials for a remote server: a saved login, which the MCP SDK refreshes."""

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
from yarl import URL

from holdfast import __version__
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.http.login_checks import check_code_origin, check_encrypted
from holdfast.connect.http.login_store import SavedLogin, how_to_log_in, read_login, write_login
from holdfast.connect.http.pools import Pool
from holdfast.connect.http.response import BrokenResponseError, HttpResponse, UnreachableError
from holdfast.connect.http.url import display_url, join_url, parse_url
from holdfast.connect.server_text import start_of_server_text
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.server import ServerSpec

ChoosePool: TypeAlias = Callable[[URL], Pool]
"""Returns the pool for requests to this address."""

_EXPIRED_TIME = 1.0  # an expiry time in the distant past
_HEADERS = {"accept": "application/json", "user-agent": f"holdfast/{__version__}"}


class LoginProvider(OAuthClientProvider):
    """The SDK's OAuth provider, extended to save the expiry of tokens and the metadata of the authorization server.

    Without the expiry, the SDK would use expired tokens. Without the metadata, it would guess where tokens are refreshed. With
    `on_callback`, a saved login is ignored, and the user logs in again.
    """

    def __init__(
        self,
        url: str,
        file: Path,
        *,
        obtained: ObtainedSecrets,
        redirect_uri: str = "http://127.0.0.1/callback",
        on_redirect: Callable[[str], Awaitable[None]] | None = None,
        on_callback: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
    ) -> None:
        self._file = file
        self._obtained = obtained
        self._on_callback = on_callback
        self._ignore_saved = on_callback is not None
        self._refused_header = ""
        self._client: OAuthClientInformationFull | None = None
        metadata = OAuthClientMetadata(
            client_name="Holdfast",
            redirect_uris=[AnyUrl(redirect_uri)],
            token_endpoint_auth_method="none",
        )
        super().__init__(url, metadata, self, on_redirect, self._wait_for_code if on_callback else None)

    @property
    def is_ready(self) -> bool:
        return self._initialized and self.context.is_token_valid()

    @property
    def header(self) -> str:
        """The value of the `Authorization` header; empty without a token."""
        tokens = self.context.current_tokens
        return f"Bearer {tokens.access_token}" if tokens is not None else ""

    def reload(self, refused_header: str = "") -> None:
        """Read the saved login again, because another process may have renewed it. A refused token counts as expired."""
        self._refused_header = refused_header or self._refused_header  # a concurrent call may have set it
        if not self._ignore_saved:
            self._initialized = False  # so that the SDK calls `get_tokens` again
        elif self.header == refused_header:
            self.context.token_expiry_time = _EXPIRED_TIME

    # The SDK's storage protocol

    async def get_tokens(self) -> OAuthToken | None:
        """The saved tokens. Also sets their expiry and the server's metadata in the SDK's context."""
        saved = self._read_saved()
        if saved is None:
            return None
        tokens = OAuthToken.model_validate(saved.tokens)
        self._mask_tokens(tokens)
        is_refused = self._refused_header == f"Bearer {tokens.access_token}"
        self.context.token_expiry_time = _EXPIRED_TIME if is_refused else saved.expires_at
        if saved.server is not None:
            self.context.oauth_metadata = OAuthMetadata.model_validate(saved.server)
        if saved.resource is not None:
            self.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
                saved.resource
            )
        return tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        saved = self._read_saved()
        if saved is None or saved.client is None:
            return None
        self._client = OAuthClientInformationFull.model_validate(saved.client)
        self._obtained.add_credentials(self._file, [self._client.client_secret])
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the registration in memory; `set_tokens` saves it."""
        self._obtained.add_credentials(self._file, [client_info.client_secret])
        self._client = client_info

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Save the tokens with everything that is needed to refresh them."""
        self._mask_tokens(tokens)
        login = SavedLogin(
            url=self.context.server_url,
            tokens=_as_json(tokens) or {},
            expires_at=self.context.token_expiry_time,
            client=_as_json(self._client),
            server=_as_json(self.context.oauth_metadata),
            resource=_as_json(self.context.protected_resource_metadata),
        )
        try:
            write_login(self._file, login)
        except OSError as error:
            raise OAuthFlowError(f"the login cannot be saved ({error.strerror})") from None

    async def _wait_for_code(self) -> AuthorizationCodeResult:
        assert self._on_callback is not None
        result = await self._on_callback()
        self._obtained.add_credentials(self._file, [result.code])
        check_code_origin(result, self.context.oauth_metadata)
        return result

    def _mask_tokens(self, tokens: OAuthToken) -> None:
        self._obtained.add_credentials(self._file, [tokens.access_token, tokens.refresh_token])

    def _read_saved(self) -> SavedLogin | None:
        return None if self._ignore_saved else read_login(self._file)


class OAuthCredentials:
    """The credentials from a login. A refused token is refreshed once. With `is_interactive`, the user can also log in."""

    def __init__(
        self,
        spec: ServerSpec,
        provider: LoginProvider,
        choose_pool: ChoosePool,
        options: ConnectOptions,
        *,
        is_interactive: bool = False,
    ) -> None:
        self._name = spec.name
        self._how_to_log_in = how_to_log_in(spec)
        self._provider = provider
        self._choose_pool = choose_pool
        self._options = options
        self._is_interactive = is_interactive
        self._login_failure: HoldfastError | None = None

    async def header(self) -> str:
        """The value of the `Authorization` header. An expired token is refreshed first."""
        if self._provider.is_ready:
            return self._provider.header
        self._provider.reload()
        return await self._run_flow()

    async def renew(self, refused_header: str, response_401: HttpResponse) -> str:
        """Another header: with a token that another task has refreshed, with the token refreshed now, or from a new login."""
        if self._provider.is_ready and self._provider.header != refused_header:
            return self._provider.header
        if not refused_header and not self._is_interactive:
            raise login_needed_error(self._name, self._how_to_log_in)  # there is no token to refresh
        if self._login_failure is not None:
            raise self._login_failure  # do not ask the user to log in a second time
        self._provider.reload(refused_header)
        renewed = await self._run_flow(refused_header, response_401 if self._is_interactive else None)
        if renewed in ("", refused_header):
            raise login_refused_error(self._name, self._how_to_log_in)
        return renewed

    async def _run_flow(self, refused_header: str = "", response_401: HttpResponse | None = None) -> str:
        try:
            return await self._run_sdk_flow(refused_header, response_401)
        except HoldfastError as error:
            if self._is_interactive:
                self._login_failure = error
            raise

    async def _run_sdk_flow(self, refused_header: str, response_401: HttpResponse | None) -> str:
        """Send the requests that the SDK yields until it has a token. Return the header with that token.

        When the SDK has a token, it yields `request`, which is not sent: only its header is needed. With `response_401`, the
        SDK gets that response to `request` if it has no other token, so that it begins a login.
        """
        request = httpx2.Request("POST", self._provider.context.server_url)
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    response = await self._send(outgoing)
                elif response_401 is not None and request.headers.get("Authorization", "") in (
                    "",
                    refused_header,
                ):
                    response = _sdk_response(response_401, request)
                    response_401 = None
                else:
                    return request.headers.get("Authorization", "")
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return ""
        except (OAuthFlowError, ValueError) as error:  # ValueError: the SDK could not parse an answer
            reason = str(error).partition("\n")[0]
            if self._is_interactive:
                raise _login_failed_error(self._name, reason) from None
            raise login_refused_error(self._name, self._how_to_log_in, reason) from None
        finally:
            await flow.aclose()

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request for the SDK, and read the whole response."""
        url = parse_url(str(request.url))
        check_encrypted(url, parse_url(self._provider.context.server_url))
        set_by_pool = ("host", "accept-encoding", "connection", "content-length")
        headers = _HEADERS | {
            name: value for name, value in request.headers.items() if name not in set_by_pool
        }
        body = await request.aread()
        seconds = self._options.connect_seconds
        try:
            # Other tasks wait for this request, some of them without a deadline.
            async with asyncio.timeout(seconds):
                response = await self._choose_pool(url).request(
                    request.method, url, headers=headers, body=body or None, connect_seconds=seconds
                )
                try:
                    content = bytes(await response.read(self._options.limits.line_bytes))
                finally:
                    response.close()
        except (BrokenResponseError, UnreachableError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            raise HoldfastError(
                codes.PEER_ERROR,
                f"{display_url(url)}, which handles logins to {self._name!r}, failed: {reason}.",
            ) from None
        sdk_response = _sdk_response(response, request, content)
        sdk_response.next_request = _redirect_request(url, request, body, response)
        return sdk_response


def _sdk_response(response: HttpResponse, request: httpx2.Request, content: bytes = b"") -> httpx2.Response:
    headers = [
        (name, value) for name, value in response.raw_headers if not name.lower().endswith(b"-encoding")
    ]
    return httpx2.Response(response.status, headers=headers, content=content, request=request)


def _redirect_request(
    url: URL, request: httpx2.Request, body: bytes, response: HttpResponse
) -> httpx2.Request | None:
    """The request that follows a redirect within the same origin. The SDK decides whether to send it."""
    statuses = (301, 302, 303, 307, 308) if request.method == "GET" else (307, 308)
    if response.status not in statuses:
        return None
    target = join_url(url, response.headers.get("location", ""))
    if target is None:
        return None
    headers = {name: value for name, value in request.headers.items() if name != "host"}
    return httpx2.Request(request.method, str(target), headers=headers, content=body)


def login_needed_error(name: str, how_to_log_in: str) -> HoldfastError:
    """The error for a server that requires a login, if none is saved."""
    return HoldfastError(codes.LOGIN_NEEDED, f"{name!r} requires a login. {how_to_log_in}")


def login_refused_error(name: str, how_to_log_in: str, why: str = "") -> HoldfastError:
    """The error for a saved login that was refused, or could not be refreshed."""
    reason = f": {start_of_server_text(why).rstrip('.')}" if why else ""
    return HoldfastError(
        codes.LOGIN_NEEDED, f"{name!r} did not accept the saved login{reason}. {how_to_log_in}"
    )


def _login_failed_error(name: str, why: str) -> HoldfastError:
    return HoldfastError(
        codes.LOGIN_NEEDED,
        f"The login to {name!r} failed: {start_of_server_text(why).rstrip('.')}. Try again, or put a token into the "
        "Authorization header of the server's entry.",
    )


def _as_json(model: BaseModel | None) -> dict[str, Json] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)
