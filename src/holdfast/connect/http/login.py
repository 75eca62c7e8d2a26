"""Logs in to a remote server: the user logs in with a browser, and the tokens are saved."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import compare_digest
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult

from holdfast.connect.connection import ConnectOptions
from holdfast.connect.http.endpoint import Endpoint
from holdfast.connect.http.login_checks import check_encrypted
from holdfast.connect.http.login_store import login_file, read_login, uses_login
from holdfast.connect.http.oauth import LoginProvider, OAuthCredentials
from holdfast.connect.http.open_http_connection import open_http_connection
from holdfast.connect.http.pools import Pools
from holdfast.connect.http.url import parse_url
from holdfast.connect.server_requests import ServerRequests
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.model import codes
from holdfast.model.blocked_addresses import LOOPBACK_REASON, why_host_blocked
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Http, ServerSpec, Sse

_HEAD_BYTES = 16 * 1024
_HEAD_SECONDS = 10.0
_MAX_PAGE_LENGTH = 8000
_MAX_CONNECTIONS = 16
"""How many connections to the callback server may be open. The oldest one makes room for a new one: any program can connect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginResult:
    """The name that the server reported, and whether it required a login."""

    server: str
    was_required: bool


def _is_this_machine(host: str) -> bool:
    return host == "localhost" or why_host_blocked(host) == LOOPBACK_REASON


async def log_in(
    spec: ServerSpec,
    *,
    folder: Path,
    on_login_page: Callable[[str], None],
    reachable: tuple[str, ...] = (),
    seconds: float = 300.0,
) -> LoginResult:
    """Connect to a server without a saved login. If the server requires a login, call `on_login_page` with the page's address.

    Wait at most `seconds` until the user has logged in, and save the login in `folder`.
    """
    if not isinstance(spec.transport, Http | Sse) or not uses_login(spec):
        why = (
            "its entry has credentials" if isinstance(spec.transport, Http | Sse) else "it is a local program"
        )
        raise HoldfastError(codes.BAD_ARGUMENT, f"{spec.name!r} needs no login: {why}.")
    server_url = parse_url(spec.transport.url)
    file = login_file(folder, spec.transport.url)
    saved_before = read_login(file)
    options = ConnectOptions(connect_seconds=seconds)
    async with AsyncExitStack() as stack:
        obtained = stack.enter_context(ObtainedSecrets())
        callback = await stack.enter_async_context(_serve_callback())
        pools = await stack.enter_async_context(Pools(reachable))

        async def check_and_show_login_page(url: str) -> None:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https"):
                raise OAuthFlowError("the address of the login page is not http or https")
            if parts.scheme == "http" and not _is_this_machine(parts.hostname or ""):
                raise OAuthFlowError("the address of the login page is not encrypted (https)")
            if len(url) > _MAX_PAGE_LENGTH:
                raise OAuthFlowError("the address of the login page is too long")
            check_encrypted(parse_url(url), server_url)
            callback.state = parse_qs(parts.query).get("state", [""])[0]
            on_login_page(url)

        provider = LoginProvider(
            spec.transport.url,
            file,
            obtained=obtained,
            redirect_uri=callback.uri,
            on_redirect=check_and_show_login_page,
            on_callback=callback.wait,
        )
        choose_pool = pools.pool_chooser(server_url, public_only=False, quota_owner="login")
        endpoint = Endpoint(
            pools.pool(public_only=False, quota_owner="login"),
            spec=spec,
            options=options,
            sign=lambda context, request: "",
            mask=partial(obtained.add_from_server, ""),
            credentials=OAuthCredentials(spec, provider, choose_pool, options, is_interactive=True),
        )
        async with open_http_connection(
            spec, endpoint, server_requests=ServerRequests(spec, None), meta={}, options=options
        ) as connection:
            return LoginResult(
                server=connection.server_info.server.name, was_required=read_login(file) != saved_before
            )


class _CallbackServer:
    """Serves the local address that the login page redirects the browser to."""

    def __init__(self) -> None:
        self.uri = ""
        self.state = ""
        """A secret that the redirect must contain, because any program on this machine can connect to the port."""
        self._result: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._open: dict[asyncio.StreamWriter, None] = {}
        """The connections, the oldest first."""

    async def wait(self) -> AuthorizationCodeResult:
        return await self._result

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= _MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            status, text = self._handle_request_line(head.split(b"\r\n", 1)[0].decode("ascii", "replace"))
            body = f"<!doctype html><meta charset=utf-8><title>Holdfast</title><p>{text}</p>".encode()
            writer.write(
                b"HTTP/1.1 %b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n"
                b"Cache-Control: no-store\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)
            )
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # another program connected, or the browser went away
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _handle_request_line(self, line: str) -> tuple[bytes, str]:
        """Read the result of the login from the request. Return the status of the response, and the text of its page."""
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        is_expected = bool(self.state) and compare_digest(
            query.get("state", "").encode(), self.state.encode()
        )
        if method != "GET" or target.path != "/callback" or not is_expected or self._result.done():
            return b"404 Not Found", "There is nothing here."
        if "code" not in query:
            why = query.get("error_description") or query.get("error") or "no code came back"
            self._result.set_exception(OAuthFlowError(f"the login page refused the login ({why[:200]})"))
            return b"200 OK", "The login was refused. You can close this page."
        self._result.set_result(
            AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query.get("iss"))
        )
        return b"200 OK", "You are logged in. You can close this page."


@asynccontextmanager
async def _serve_callback() -> AsyncIterator[_CallbackServer]:
    callback = _CallbackServer()
    server = await asyncio.start_server(
        callback.serve, "127.0.0.1", 0, limit=_HEAD_BYTES, backlog=_MAX_CONNECTIONS
    )
    try:
        callback.uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
        yield callback
    finally:
        server.close()
