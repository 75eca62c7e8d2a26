"""The gateway with its tokens: authenticates clients, limits each credential, records refusals, and ends the sessions of revoked tokens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from holdfast.gateway.authentication import Authentication
from holdfast.gateway.client_tokens import TOKENS_FOLDER, Tokens
from holdfast.gateway.credential import Authenticate, Credential
from holdfast.gateway.credential_watch import CredentialWatch
from holdfast.gateway.gateway_app import GatewayApp
from holdfast.gateway.handles import HandleApp
from holdfast.gateway.issuer import AsgiApp, IssuerApp, IssuerTokens, issuer_verifier
from holdfast.gateway.options import GatewayOptions
from holdfast.gateway.rate_limit import RateLimit
from holdfast.gateway.refusal_audit import RefusalAudit
from holdfast.gateway.signed_state import BadStateError
from holdfast.host.host import Host
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.wire.http.limits import DEFAULT_HTTP_LIMITS, HttpLimits
from holdfast.wire.http.request import Headers

_AUDITED = frozenset(
    {
        codes.UNAUTHENTICATED,
        codes.HOST_NOT_ALLOWED,
        codes.UNKNOWN_MCP_SESSION,
        codes.HEADER_MISMATCH,
        codes.RATE_LIMITED,
        codes.TOO_MANY_SESSIONS,
        codes.BUSY,
        codes.TOO_LARGE,
        codes.SHUTTING_DOWN,
    }
)
_MINUTE = 60.0
_PROXY_HEADERS = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)
# The option `bare_names` for each value of the setting `gateway.tool_names`.
_BARE_NAMES = {"auto": None, "bare": True, "qualified": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A running gateway."""

    asgi: AsgiApp
    """The ASGI application to serve or to mount."""
    app: GatewayApp
    """The application behind `asgi`. Use it to list the open sessions, to drain and to close the gateway."""


@asynccontextmanager
async def open_gateway(
    host: Host, options: GatewayOptions | None = None, *, local: Credential | None = None
) -> AsyncIterator[Gateway]:
    """Open a gateway for MCP clients, and close it at the end of the block.

    It accepts the tokens of `holdfast tokens` and of the configured issuer. With `local`, it asks for no tokens: every request has
    this credential, and requests through a proxy are refused. Everyone who can connect can then use the servers, so use `local` only on loopback.
    What `options` leaves out comes from the settings (see `gateway_options`).
    """
    settings = host.settings
    refusals = RefusalAudit(host.audit_denied)
    options = _limit_and_audit(gateway_options(settings, options), settings, refusals)
    requests = RateLimit("requests", settings.gateway.max_requests_per_second, 1.0)
    tokens = Tokens(settings.data_dir / TOKENS_FOLDER)
    issuer: IssuerTokens | None = None
    if settings.gateway.issuer and local is None:
        issuer = IssuerTokens(issuer_verifier(settings.gateway))
    authentication = Authentication(tokens, requests, issuer=issuer, mask=host.mask_credential)
    authenticate = authentication if local is None else _accept_all(local, requests)
    if local is None:
        options = replace(options, recheck=authentication.recheck)
    app = GatewayApp(host, authenticate, options)
    asgi = HandleApp(app, authenticate, options)
    if issuer is not None:
        asgi = IssuerApp(asgi, issuer.verifier, options)
    watch = CredentialWatch(
        lambda: [session.credential for session in app.open_sessions()],
        authentication.why_invalid if local is None else lambda _: "",
        app.close_credential,
    )
    tasks = [asyncio.create_task(refusals.run()), asyncio.create_task(watch.run())]
    try:
        yield Gateway(asgi=asgi, app=app)
    finally:
        await app.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def gateway_limits(settings: Settings) -> HttpLimits:
    """The limits in the settings. Those per caller apply to each credential."""
    gateway = settings.gateway
    in_flight = max(DEFAULT_HTTP_LIMITS.in_flight, gateway.max_requests_in_flight)
    body_memory = max(DEFAULT_HTTP_LIMITS.body_memory, 4 * gateway.max_body_bytes)
    return HttpLimits(
        body_bytes=gateway.max_body_bytes,
        body_memory=body_memory,
        body_memory_per_caller=max(body_memory // 4, gateway.max_body_bytes),
        in_flight=in_flight,
        in_flight_per_caller=gateway.max_requests_in_flight,
        sessions=gateway.max_sessions,
        sessions_per_caller=gateway.max_sessions_per_token,
        idle_seconds=gateway.session_idle_seconds,
    )


def gateway_options(settings: Settings, given: GatewayOptions | None = None) -> GatewayOptions:
    """The given options, completed from the settings."""
    options = given or GatewayOptions()
    gateway = settings.gateway
    return replace(
        options,
        http_limits=options.http_limits or gateway_limits(settings),
        limits=options.limits or settings.wire,
        builtins=options.builtins or frozenset(gateway.builtin),
        bare_names=_BARE_NAMES[gateway.tool_names] if options.bare_names is None else options.bare_names,
    )


def _limit_and_audit(options: GatewayOptions, settings: Settings, refusals: RefusalAudit) -> GatewayOptions:
    """Add the limit on new sessions, and the audit of refused requests."""
    new_sessions = RateLimit("new sessions", settings.gateway.max_new_sessions_per_minute, _MINUTE)
    on_refusal = options.on_refusal

    def refuse(error: HoldfastError, credential: Credential | None) -> None:
        if error.code in _AUDITED or isinstance(error, BadStateError):
            refusals.add(error, credential)
        on_refusal(error, credential)

    def before_open(credential: Credential) -> None:
        new_sessions.take(credential.id)

    return replace(options, before_open=before_open, on_refusal=refuse)


def _accept_all(credential: Credential, requests: RateLimit) -> Authenticate:
    """Accept every request without a token, unless it came through a proxy.

    The caller makes sure that only this machine can connect.
    """

    def authenticate(headers: Headers, client_address: str) -> Credential:
        if any(name in headers for name in _PROXY_HEADERS):
            raise HoldfastError(
                codes.HOST_NOT_ALLOWED,
                "A gateway without tokens accepts no requests through a proxy. Connect directly, or start it with tokens.",
            )
        requests.take(credential.id)
        return credential

    return authenticate
