"""Sends requests to one remote server, with headers, credentials and cookies, and follows its redirects."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, TypeAlias
from urllib.parse import urljoin

from yarl import URL

from holdfast import __version__
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.http.cookies import Cookies
from holdfast.connect.http.entry_headers import entry_headers
from holdfast.connect.http.event_stream import EventTooLongError
from holdfast.connect.http.login_store import how_to_log_in, uses_login
from holdfast.connect.http.pools import Pool
from holdfast.connect.http.response import BrokenResponseError, HttpResponse, UnreachableError
from holdfast.connect.http.url import display_url, join_url, parse_url
from holdfast.connect.server_text import start_of_server_text
from holdfast.model import codes
from holdfast.model.context import CONTEXT_HEADER, SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Http, ServerSpec, Sse

EVENT_STREAM = "text/event-stream"
Sign: TypeAlias = Callable[[SessionContext | None, bytes | None], str]
"""Returns a signed token for one request with this body, from the session with this context.

If the context is None, the token is for the link's session, or empty if the link belongs to no session.
"""


class Credentials(Protocol):
    """Provides the `Authorization` header of requests to one server."""

    async def header(self) -> str:
        """The current value; empty if there is none."""
        ...

    async def renew(self, refused_header: str, response_401: HttpResponse) -> str:
        """Another value after the server has answered 401 to `refused_header`. Raise if there is none."""
        ...


_MAX_REQUESTS = 3  # the first request and two redirects
_UNAUTHORIZED = 401


class Endpoint:
    """Sends requests to one server.

    Each request has the headers of the server's entry, except reserved ones, and a signed token if it belongs to a session.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        spec: ServerSpec,
        options: ConnectOptions,
        sign: Sign,
        mask: Callable[[object, str], None],
        credentials: Credentials | None = None,
    ) -> None:
        """`mask` is called with a key for the link, and each value that the server chose for it, such as a cookie."""
        assert isinstance(spec.transport, Http | Sse)
        self._pool = pool
        self._name = spec.name
        self._url = parse_url(spec.transport.url)
        self._headers = {"user-agent": f"holdfast/{__version__}"} | entry_headers(spec.transport.headers)
        self._cookies = None if "cookie" in self._headers else Cookies()
        self._uses_login = uses_login(spec)
        self._how_to_log_in = how_to_log_in(spec)
        self._options = options
        self._sign = sign
        self._mask = mask
        self._link_key = object()  # identifies the link in the obtained secrets
        self._credentials = credentials

    @property
    def display_url(self) -> str:
        """The address without its query, which may hold secrets."""
        return display_url(self._url)

    def mask(self, value: str) -> None:
        """From now on, mask a value that the server chose for this link, if it looks random."""
        self._mask(self._link_key, value)

    def join(self, reference: str) -> URL | None:
        """Resolve a reference that the server sent. None if its scheme, host or port differs."""
        return join_url(self._url, reference)

    @asynccontextmanager
    async def request(
        self,
        method: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str],
        context: SessionContext | None = None,
        url: URL | None = None,
    ) -> AsyncIterator[HttpResponse]:
        """Send a request. A redirect is followed only within the same scheme, host and port."""
        target = url or self._url
        try:
            for _ in range(_MAX_REQUESTS):
                response = await self._send_authorized(method, target, headers, body, context)
                try:
                    redirect = _redirect_url(method, target, response)
                    if redirect is None:
                        if response.is_encoded:
                            text = f"{self.display_url} compressed its answer without being asked to."
                            raise HoldfastError(codes.BAD_ANSWER, text)
                        yield response
                        return
                finally:
                    response.close()
                target = redirect
                # Send later requests there, too. But a GET may have been redirected to a web page.
                if url is None and method == "POST":
                    self._url = redirect
        except (EventTooLongError, UnreachableError, BrokenResponseError) as error:
            raise self._connection_error(error) from None
        raise HoldfastError(codes.PEER_ERROR, f"{self.display_url} redirects too often.")

    def status_error(self, response: HttpResponse) -> HoldfastError:
        """The error for a response whose status is not a success."""
        status = response.status
        if _is_redirect(response):
            where = _display_redirect(self._url, response)
            text = f"{self.display_url} redirects to {where}, which is not followed. If the server has moved there, change its entry."
            return HoldfastError(codes.PEER_ERROR, text)
        if status == _UNAUTHORIZED and self._uses_login:
            text = f"{self._name!r} requires a login. {self._how_to_log_in}"
            return HoldfastError(codes.LOGIN_NEEDED, text)
        if status == _UNAUTHORIZED:
            return HoldfastError(
                codes.PEER_ERROR,
                f"{self.display_url} answered 401: the Authorization header in the server's entry is missing or not accepted.",
            )
        reason = f" {start_of_server_text(response.reason)}" if response.reason else ""
        return HoldfastError(codes.PEER_ERROR, f"{self.display_url} answered {status}{reason}.")

    async def _send_authorized(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        context: SessionContext | None,
    ) -> HttpResponse:
        """Send a request with credentials. If they are refused, renew them and send it once more."""
        if self._credentials is None:
            return await self._send(method, url, headers, body, context)
        header = await self._credentials.header()
        response = await self._send(method, url, _add_authorization(headers, header), body, context)
        if response.status != _UNAUTHORIZED:
            return response
        response.close()
        renewed = await self._credentials.renew(header, response)
        return await self._send(method, url, _add_authorization(headers, renewed), body, context)

    async def _send(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        context: SessionContext | None,
    ) -> HttpResponse:
        """Send a request once, with the cookies and a signed token. Store the cookies of the response."""
        all_headers = {**self._headers, **headers}
        if self._cookies is not None and (cookie := self._cookies.header):
            all_headers["cookie"] = cookie
        if token := self._sign(context, body):
            all_headers[CONTEXT_HEADER] = token
        response = await self._pool.request(
            method, url, headers=all_headers, body=body, connect_seconds=self._options.connect_seconds
        )
        if self._cookies is not None and (set_cookies := response.set_cookies):
            self._cookies.update(set_cookies)
            for value in self._cookies.values:
                self.mask(value)
        return response

    def _connection_error(
        self, error: EventTooLongError | UnreachableError | BrokenResponseError
    ) -> HoldfastError:
        match error:
            case EventTooLongError():
                text = f"{self.display_url} sent a stream that cannot be read: {error}."
                return HoldfastError(codes.BAD_ANSWER, text)
            case UnreachableError():
                text = f"{self.display_url} cannot be reached: {_error_text(error)}."
            case BrokenResponseError():
                text = f"The connection to {self.display_url} failed: {_error_text(error)}."
        return HoldfastError(codes.CONNECTION_CLOSED, text)


def _is_redirect(response: HttpResponse) -> bool:
    return response.status in (301, 302, 303, 307, 308) and "location" in response.headers


def _redirect_url(method: str, url: URL, response: HttpResponse) -> URL | None:
    """Where to send the same request again. None if the response is no redirect, or one that is not followed."""
    if not _is_redirect(response) or (method != "GET" and response.status not in (307, 308)):
        return None
    return join_url(url, response.headers["location"])


def _display_redirect(url: URL, response: HttpResponse) -> str:
    try:
        return display_url(parse_url(urljoin(str(url), response.headers["location"])))[:200]
    except (HoldfastError, ValueError):
        return "an invalid address"


def _add_authorization(headers: Mapping[str, str], value: str) -> Mapping[str, str]:
    return {**headers, "authorization": value} if value else headers


def _error_text(error: Exception) -> str:
    return start_of_server_text(str(error)).rstrip(".") or type(error).__name__
