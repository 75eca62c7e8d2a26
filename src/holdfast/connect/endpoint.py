"""A remote server's address, and how a request gets there."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol, TypeAlias
from urllib.parse import urljoin

from holdfast import __version__
from holdfast.connect.cookies import Cookies
from holdfast.connect.logins import has_login
from holdfast.connect.terms import Terms
from holdfast.model import codes
from holdfast.model.carriers import HEADER
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Http, ServerSpec, Sse
from holdfast.wire.http.client import Pool, Unreachable, written
from holdfast.wire.http.events import EventTooLong
from holdfast.wire.http.exchange import BrokenOff, Reply
from holdfast.wire.http.url import Url, read_url

EVENTS = "text/event-stream"
Sign: TypeAlias = Callable[[SessionContext, bytes | None], str]
"""A token for one request to this server."""


class Credentials(Protocol):
    """Shows a server who we are, by the `Authorization` header."""

    async def shown(self) -> str:
        """The header's value now; empty where there is none."""
        ...

    async def after(self, refused: str, reply: Reply) -> str:
        """The value to try instead of one that was refused; raises where there is none."""
        ...


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
_UNAUTHORIZED = 401


class Endpoint:
    """Where one server is. Every request there is signed anew and carries the configured headers, ours over them."""

    def __init__(
        self,
        pool: Pool,
        *,
        spec: ServerSpec,
        terms: Terms,
        context: Callable[[], SessionContext | None],
        sign: Sign,
        credentials: Credentials | None = None,
    ) -> None:
        assert isinstance(spec.transport, Http | Sse)
        self._pool = pool
        self._name = spec.name
        self._url = read_url(spec.transport.url)
        self._headers = {"user-agent": f"holdfast/{__version__}"} | _allowed(spec.transport.headers)
        self._cookies = None if "cookie" in self._headers else Cookies()
        self._has_login = has_login(spec)
        self._terms = terms
        self._context = context
        self._sign = sign
        self._credentials = credentials

    @property
    def place(self) -> str:
        """Scheme, host, port and path: what may be shown to people."""
        return self._url.place

    def beside(self, reference: str) -> Url | None:
        """An address that the server named, if it has the same origin."""
        return self._url.beside(reference)

    @asynccontextmanager
    async def ask(
        self,
        method: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str],
        context: SessionContext | None = None,
        url: Url | None = None,
    ) -> AsyncIterator[Reply]:
        """Send a request; what went wrong on the way is told in words. A redirect is followed within the origin only."""
        target = url or self._url
        with self._told():
            for _ in range(_REDIRECTS):
                reply = await self._shown(method, target, headers, body, context)
                try:
                    further = _redirected(method, target, reply)
                    if further is None:
                        self._check_plain(reply)
                        yield reply
                        return
                finally:
                    reply.close()
                target = further
                if url is None and method == "POST":
                    self._url = further  # where a GET is sent may be a page for people
            raise HoldfastError(codes.PEER_ERROR, f"{self.place} redirects without end.")

    def refusal(self, reply: Reply) -> HoldfastError:
        """What a status other than success means."""
        status = reply.status
        if _is_redirect(reply):
            where = _elsewhere(self._url, reply)
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
        reason = f" {reply.reason[:_SHOWN]}" if reply.reason else ""
        return HoldfastError(codes.PEER_ERROR, f"{self.place} answered {status}{reason}.")

    async def _shown(
        self,
        method: str,
        url: Url,
        headers: Mapping[str, str],
        body: bytes | None,
        context: SessionContext | None,
    ) -> Reply:
        """Send a request that shows who we are; if that is refused, once more with what else there is to show."""
        if self._credentials is None:
            return await self._send(method, url, headers, body, context)
        shown = await self._credentials.shown()
        reply = await self._send(method, url, _authorized(headers, shown), body, context)
        if reply.status != _UNAUTHORIZED:
            return reply
        reply.close()
        better = await self._credentials.after(shown, reply)
        return await self._send(method, url, _authorized(headers, better), body, context)

    async def _send(
        self,
        method: str,
        url: Url,
        headers: Mapping[str, str],
        body: bytes | None,
        context: SessionContext | None,
    ) -> Reply:
        together = {**self._headers, **headers}
        if self._cookies is not None and (cookie := self._cookies.header):
            together["cookie"] = cookie
        speaker = context or self._context()
        if speaker is not None:
            together[HEADER] = self._sign(speaker, body)
        request = written(method, url, together, body)
        reply = await self._pool.ask(url, request, seconds=self._terms.connect_seconds)
        if reply.cookies and self._cookies is not None:
            self._cookies.learn(reply.cookies)
        return reply

    def _check_plain(self, reply: Reply) -> None:
        if reply.headers.get("content-encoding", "identity").lower() != "identity":
            raise HoldfastError(codes.BAD_ANSWER, f"{self.place} answered in a compressed form unasked.")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except EventTooLong as error:
            raise HoldfastError(codes.BAD_ANSWER, f"{self.place} broke its stream: {error}.") from None
        except Unreachable as error:
            raise HoldfastError(
                codes.CONNECTION_CLOSED, f"{self.place} cannot be reached: {_words(error)}."
            ) from None
        except BrokenOff as error:
            raise HoldfastError(
                codes.CONNECTION_CLOSED, f"{self.place} broke off: {_words(error)}."
            ) from None


def _is_redirect(reply: Reply) -> bool:
    return reply.status in (301, 302, 303, 307, 308) and "location" in reply.headers


def _redirected(method: str, url: Url, reply: Reply) -> Url | None:
    """Where the same request is to be sent instead, if it may be."""
    if not _is_redirect(reply) or (method != "GET" and reply.status not in (307, 308)):
        return None
    return url.beside(reply.headers["location"])


def _elsewhere(url: Url, reply: Reply) -> str:
    try:
        return read_url(urljoin(url.place, reply.headers["location"])).place[:_SHOWN]
    except (HoldfastError, ValueError):
        return "no address at all"


def _authorized(headers: Mapping[str, str], value: str) -> Mapping[str, str]:
    return {**headers, "authorization": value} if value else headers


def _allowed(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name.lower(): value
        for name, value in headers.items()
        if name.lower() not in _OURS and not name.lower().startswith(("mcp-", "proxy-"))
    }


def _words(error: Exception) -> str:
    return str(error)[:_SHOWN].rstrip(".") or type(error).__name__
