"""A remote server's address, and how a request gets there."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TypeAlias

import httpx2

from holdfast import __version__
from holdfast.connect.egress import origin_of
from holdfast.connect.logins import has_login
from holdfast.model import codes
from holdfast.model.carriers import HEADER
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Http, ServerSpec, Sse

Sign: TypeAlias = Callable[[SessionContext, bytes | None], str]
"""A token for one request to this server."""

_OURS = {
    *(
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
    ),
    *("last-event-id", "te", "trailer", "transfer-encoding", "upgrade", HEADER.lower()),
}
_REDIRECTS = 3
_SHOWN = 200


class Endpoint:
    """Where one server is. Every request there is signed anew and carries the configured headers, ours over them."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        *,
        spec: ServerSpec,
        context: Callable[[], SessionContext | None],
        sign: Sign,
    ) -> None:
        assert isinstance(spec.transport, Http | Sse)
        self._client = client
        self._name = spec.name
        self._url = httpx2.URL(spec.transport.url)
        self._headers = httpx2.Headers({"user-agent": f"holdfast/{__version__}"})
        self._headers.update(_allowed(spec.transport.headers))
        self._has_login = has_login(spec)
        self._context = context
        self._sign = sign

    @property
    def place(self) -> str:
        """Scheme, host, port and path: what may be shown to people."""
        return str(self._url.copy_with(query=None, fragment=None, userinfo=b""))

    def beside(self, reference: str) -> httpx2.URL | None:
        """An address that the server named, if it has the same origin."""
        try:
            url = self._url.join(reference)
        except (httpx2.InvalidURL, ValueError):
            return None
        return url if origin_of(url) == origin_of(self._url) and not url.userinfo else None

    @asynccontextmanager
    async def ask(
        self,
        method: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str],
        context: SessionContext | None = None,
        url: httpx2.URL | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request; what went wrong on the way is told in words. A redirect is followed within the origin only."""
        target = url or self._url
        with self._told():
            for _ in range(_REDIRECTS):
                request = self._client.build_request(
                    method, target, content=body, headers=self._all_headers(headers, body, context)
                )
                response = await self._client.send(request, stream=True, follow_redirects=False)
                try:
                    further = self._redirected(method, response)
                    if further is None:
                        yield response
                        return
                finally:
                    await response.aclose()
                target = further
                if url is None:
                    self._url = further
            raise HoldfastError(codes.PEER_ERROR, f"{self.place} redirects without end.")

    def refusal(self, response: httpx2.Response) -> HoldfastError:
        """What a status other than success means."""
        status = response.status_code
        if response.next_request is not None:
            where = str(response.next_request.url.copy_with(query=None, fragment=None, userinfo=b""))[:_SHOWN]
            text = f"{self.place} redirects to {where}, where no request is sent. If that is the server, use its address."
            return HoldfastError(codes.PEER_ERROR, text)
        if status == 401 and self._has_login:
            text = f"{self._name!r} wants to know who you are. Run: holdfast servers login {self._name}"
            return HoldfastError(codes.LOGIN_NEEDED, text)
        if status == 401:
            return HoldfastError(
                codes.PEER_ERROR,
                f"{self.place} wants another Authorization header than its entry gives (401).",
            )
        reason = f" {response.reason_phrase}" if response.reason_phrase else ""
        return HoldfastError(codes.PEER_ERROR, f"{self.place} answered {status}{reason}.")

    def _all_headers(
        self, headers: Mapping[str, str], body: bytes | None, context: SessionContext | None
    ) -> httpx2.Headers:
        together = self._headers.copy()
        together.update(headers)
        speaker = context or self._context()
        if speaker is not None:
            together[HEADER] = self._sign(speaker, body)
        return together

    def _redirected(self, method: str, response: httpx2.Response) -> httpx2.URL | None:
        request = response.next_request
        if request is None or request.method != method:
            return None
        return self.beside(str(request.url))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except httpx2.SSEError as error:
            raise HoldfastError(codes.BAD_ANSWER, f"{self.place} broke its stream: {error}") from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout, UnicodeError) as error:
            raise HoldfastError(
                codes.CONNECTION_CLOSED, f"{self.place} cannot be reached: {_words(error)}."
            ) from None
        except httpx2.HTTPError as error:
            raise HoldfastError(
                codes.CONNECTION_CLOSED, f"{self.place} broke off: {_words(error)}."
            ) from None


def _allowed(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if name.lower() not in _OURS and not name.lower().startswith(("mcp-", "proxy-"))
    }


def _words(error: Exception) -> str:
    return str(error)[:_SHOWN].rstrip(".") or type(error).__name__
