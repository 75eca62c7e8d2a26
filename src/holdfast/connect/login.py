"""Log in to a remote server: a person says yes in a browser, and the login is kept."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import compare_digest
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult

from holdfast.connect.asks import Asks
from holdfast.connect.endpoint import Endpoint
from holdfast.connect.http import open_http
from holdfast.connect.logins import has_login, login_file, read_login
from holdfast.connect.oauth import Login, Provider
from holdfast.connect.passages import Passages
from holdfast.connect.sse import open_sse
from holdfast.connect.terms import Terms
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Http, ServerSpec, Sse
from holdfast.wire.http.url import read_url

_HEAD_BYTES = 16 * 1024
_HEAD_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it went: which server answered in the end, and whether it had asked who we are at all."""

    server: str
    asked: bool


async def log_in(
    spec: ServerSpec,
    *,
    folder: Path,
    show: Callable[[str], None],
    reachable: tuple[str, ...] = (),
    seconds: float = 300.0,
) -> Outcome:
    """Connect as nobody, and let the server send us to its login page, whose address `show` brings to a person."""
    if not isinstance(spec.transport, Http | Sse) or not has_login(spec):
        why = (
            "its entry has credentials" if isinstance(spec.transport, Http | Sse) else "it is a local program"
        )
        raise HoldfastError(codes.BAD_ARGUMENT, f"{spec.name!r} needs no login: {why}.")
    file = login_file(folder, spec.transport.url)
    before = read_login(file)
    terms = Terms(connect_seconds=seconds)
    opening = open_http if isinstance(spec.transport, Http) else open_sse
    async with _listening() as callback, Passages(reachable) as passages:

        async def ask(url: str) -> None:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https"):
                raise OAuthFlowError("The login page has no http or https address.")
            callback.state = parse_qs(parts.query).get("state", [""])[0]
            show(url)

        provider = Provider(
            spec.transport.url,
            file,
            fresh=True,
            redirect_uri=callback.uri,
            ask=ask,
            answer=callback.result,
        )
        way = passages.way(read_url(spec.transport.url), guarded=False)
        endpoint = Endpoint(
            passages.pool(guarded=False),
            spec=spec,
            terms=terms,
            context=lambda: None,
            sign=lambda context, request: "",
            credentials=Login(spec, provider, way, terms, asks_a_person=True),
        )
        async with opening(spec, endpoint, asks=Asks(spec, None), meta={}, terms=terms) as connection:
            return Outcome(server=connection.greeting.server.name, asked=read_login(file) != before)


class _Callback:
    """Where the browser comes back to."""

    def __init__(self) -> None:
        self.uri = ""
        self.state = ""
        """What the browser must bring along: anybody on this machine can knock."""
        self._came: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def result(self) -> AuthorizationCodeResult:
        """What it brought."""
        return await self._came

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            status, text = self._heard(head.split(b"\r\n", 1)[0].decode("ascii", "replace"))
            body = f"<!doctype html><meta charset=utf-8><title>Holdfast</title><p>{text}</p>".encode()
            writer.write(
                b"HTTP/1.1 %b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n"
                b"Cache-Control: no-store\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)
            )
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not the browser we wait for
        finally:
            writer.close()

    def _heard(self, line: str) -> tuple[bytes, str]:
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        said = {name: values[0] for name, values in parse_qs(target.query).items()}
        expected = bool(self.state) and compare_digest(said.get("state", "").encode(), self.state.encode())
        if method != "GET" or target.path != "/callback" or not expected or self._came.done():
            return b"404 Not Found", "There is nothing here."
        if "code" not in said:
            why = said.get("error_description") or said.get("error") or "no code came back"
            self._came.set_exception(OAuthFlowError(f"it was refused ({why[:200]})"))
            return b"200 OK", "The login was refused. You can close this page."
        self._came.set_result(
            AuthorizationCodeResult(code=said["code"], state=said["state"], iss=said.get("iss"))
        )
        return b"200 OK", "You are logged in. You can close this page."


@asynccontextmanager
async def _listening() -> AsyncIterator[_Callback]:
    callback = _Callback()
    server = await asyncio.start_server(callback.serve, "127.0.0.1", 0, limit=_HEAD_BYTES)
    try:
        callback.uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
        yield callback
    finally:
        server.close()
