"""A box as an ASGI application, to be mounted in Starlette or FastAPI, or served by any ASGI server."""

import json
import logging
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.parse_text import parse_texts
from holdfast.model.trust import Trust, parse_trust
from holdfast.toolkit.health import HEALTH_PATH, send_health
from holdfast.toolkit.http_auth import (
    Auth,
    JwtIssuer,
    current_http_session,
    make_authenticator,
    make_session_finder,
)
from holdfast.wire.http import LOOPBACK, AllowedHosts, HttpApp
from holdfast.wire.http.allowed_hosts import parse_host, parse_origin
from holdfast.wire.http.request import Receive, Send, read_headers
from holdfast.wire.http.response import send_error, send_response

if TYPE_CHECKING:
    from holdfast.toolkit.toolbox import Toolbox

log = logging.getLogger(__name__)

_LOOPBACK_PEERS = frozenset({"127.0.0.1", "::1", "testclient"})  # Starlette's TestClient uses "testclient"
_FORWARDED = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip")
_PRIVATE_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "holdfast-context"})
_METADATA_PATH = "/.well-known/oauth-protected-resource"
_JSON = (b"content-type", b"application/json")


class HttpAppOptions(TypedDict, total=False):
    """The options of `box.http_app`."""

    path: str
    """Where the box answers, below the mount point. `/mcp` is the default."""
    auth: Auth | None
    """Who may call. Without it, only programs on this machine can."""
    trust: Trust | Literal["direct", "sandboxed"]
    """The trust of callers whom `auth` accepts. A session that `auth` returns, or that `HoldfastTokens` finds, has its own trust.

    `sandboxed` is the default."""
    hosts: Sequence[str]
    """Host names of the server, in addition to the loopback names. Only with `auth`."""
    origins: Sequence[str]
    """Origins whose web pages may send requests."""
    headers: Sequence[str]
    """Names of request headers that tools get in `call.headers`."""
    proxies: Sequence[str]
    """The addresses of reverse proxies whose `X-Forwarded-Host` is used. Only with `auth`."""
    allow_eval: bool
    """Whether the tools that evaluate code are offered."""


class BoxApp:
    """The ASGI application.

    The box's lifespan starts with the ASGI lifespan or with `running`; otherwise at the first call that needs it.
    """

    def __init__(self, box: "Toolbox", options: HttpAppOptions) -> None:
        self._auth = options.get("auth")
        self._path = options.get("path", "/mcp")
        self._proxies = frozenset(map(_parse_address, parse_texts("proxies", options.get("proxies", ()))))
        hosts = frozenset(
            parse_host(host, "hosts") for host in parse_texts("hosts", options.get("hosts", ()))
        )
        origins = frozenset(
            parse_origin(origin, "origins") for origin in parse_texts("origins", options.get("origins", ()))
        )
        headers = frozenset(name.lower() for name in parse_texts("headers", options.get("headers", ())))
        if self._auth is None and (hosts or self._proxies):
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                "Without `auth`, a box serves only programs on this machine. Add `auth`, or leave out `hosts` and `proxies`.",
            )
        if private := sorted(headers & _PRIVATE_HEADERS):
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"`headers` may not name {private[0]!r}: it contains a credential."
            )
        if not self._path.startswith("/"):
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"`path` must begin with a slash, such as '/{self._path}'."
            )
        trust = parse_trust(options.get("trust", Trust.SANDBOXED))
        self._find_session = None if self._auth is None else make_session_finder(self._auth, trust)
        self._server = box.server(
            make_authenticator(self._auth, box.aliases), allow_eval=options.get("allow_eval", False)
        )
        self._box = box
        self._app = HttpApp(
            self._server,
            allowed_hosts=AllowedHosts(hosts=LOOPBACK | hosts, origins=origins),
            path=self._path,
            shown_headers=headers,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the box's lifespan, and end it with the block. Use it in the lifespan of the application that mounts the box."""
        await self._server.start()
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """End all sessions and streams, dispose of the driven sessions, and end the lifespan."""
        self._server.end_streams()
        self._app.close()
        await self._box.dispose()
        await self._server.close()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, or take part in the lifespan of an ASGI server."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"A box serves http, not {scope['type']}.")
        scope = {**scope, "path": _path_below_mount(scope)}
        if scope["path"] == HEALTH_PATH:
            await send_health(send)
            return
        if isinstance(self._auth, JwtIssuer) and scope["path"].startswith(_METADATA_PATH):
            await send_response(send, 200, json.dumps(self._metadata(self._auth)).encode(), (_JSON,))
            return
        try:
            headers = read_headers(scope["headers"])
            self._check_peer(scope, headers)
            scope["headers"] = self._replace_forwarding_headers(scope, headers)
            session = None if self._find_session is None else await self._find_session(headers)
        except HoldfastError as error:
            await self._send_refusal(send, error)
            return
        except Exception:
            log.exception("authentication failed")
            failed = HoldfastError(codes.INTERNAL_ERROR, "The server could not check the credentials.")
            await send_error(send, failed)
            return
        if self._find_session is not None and session is None:
            missing = HoldfastError(codes.UNAUTHENTICATED, "The request has no valid credentials.")
            await send_error(send, missing, challenge=self._challenge)
            return
        token = current_http_session.set(session)
        try:
            await self._app(scope, receive, send)
        finally:
            current_http_session.reset(token)

    async def _send_refusal(self, send: Send, error: HoldfastError) -> None:
        """Send the error. If a token lacks scopes, the answer is a 403 that names them, so that the client can ask the issuer for them."""
        if isinstance(self._auth, JwtIssuer) and error.details.get("reason") == "scope":
            lacking = f'error="insufficient_scope", scope="{" ".join(self._auth.scopes)}"'
            await send_error(send, error, status=403, challenge=f"{self._challenge}, {lacking}")
        else:
            await send_error(send, error, challenge=self._challenge)

    def _check_peer(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """Without authentication, refuse everything that does not come directly from this machine."""
        if self._auth is not None:
            return
        peer = scope.get("client")
        forwarded = any(name in headers for name in _FORWARDED)
        if forwarded or peer is None or peer[0] not in _LOOPBACK_PEERS:
            raise HoldfastError(
                codes.HOST_NOT_ALLOWED,
                "This server has no authentication, so it serves only programs on its own machine.",
            )

    def _replace_forwarding_headers(
        self, scope: Mapping[str, Any], headers: Mapping[str, str]
    ) -> list[tuple[bytes, bytes]]:
        """The headers without the names in `_FORWARDED`. If the request came from one of `proxies`, `Host` is the host that the client used."""
        peer = scope.get("client")
        original = headers.get("x-forwarded-host", "").split(",")[0].strip()
        kept = [(name, value) for name, value in scope["headers"] if name.decode("latin-1") not in _FORWARDED]
        if original and peer is not None and peer[0] in self._proxies:
            kept = [(name, value) for name, value in kept if name != b"host"]
            kept.append((b"host", original.encode("latin-1")))
        return kept

    @property
    def _challenge(self) -> str:
        url = (self._auth.url or self._auth.audience) if isinstance(self._auth, JwtIssuer) else ""
        # The audience of a JwtIssuer may be a name instead of a URL. Other kinds of `auth` have no metadata.
        if not url.startswith(("https://", "http://")):
            return 'Bearer realm="mcp"'
        return f'Bearer realm="mcp", resource_metadata="{url.removesuffix(self._path)}{_METADATA_PATH}"'

    def _metadata(self, auth: JwtIssuer) -> dict[str, object]:
        """The metadata of RFC 9728: where a client gets tokens for this server."""
        return {
            "resource": auth.url or auth.audience,
            "authorization_servers": [auth.issuer],
            "bearer_methods_supported": ["header"],
            **({"scopes_supported": [*auth.scopes]} if auth.scopes else {}),
        }

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._server.start()
        except Exception as error:
            log.exception("the lifespan failed")
            await send({"type": "lifespan.startup.failed", "message": type(error).__name__})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})


def _parse_address(proxy: str) -> str:
    """The address of a proxy, as an ASGI server reports it."""
    try:
        return str(ip_address(proxy))
    except ValueError:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"`proxies` contains {proxy!r}. Write IP addresses such as '10.0.0.9'."
        ) from None


def _path_below_mount(scope: Mapping[str, Any]) -> str:
    """The path of a request, without the path of the mount."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path[len(root) :] or "/" if root and path.startswith(root) else path
