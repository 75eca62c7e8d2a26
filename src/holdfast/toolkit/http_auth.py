"""Who may call a box over HTTP: bearers of a static token or of an issuer's JWT, sessions of a Holdfast host, or callers that the author's function accepts."""

import hmac
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias, cast

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.toolkit.authentication import AnonymousAuthenticator, Authenticator, CallerIdentity
from holdfast.toolkit.check_options import check_parameter_count
from holdfast.wire.mcp.server import HttpCaller, McpRequest

_MIN_TOKEN_LENGTH = 16
_MAX_USER_ID = 256  # characters
_MAKE_TOKEN = 'Make one: python -c "import secrets; print(secrets.token_urlsafe(32))"'

AuthFunction: TypeAlias = Callable[
    [Mapping[str, str]], "Awaitable[str | SessionContext | None] | str | SessionContext | None"
]
"""Gets the headers of a request, by lower-case name. Returns the id of the user, a whole session, or None to refuse the request."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Static tokens: `Bearer("long-random-token")`, or several with the user of each: `Bearer({"token": "ann"})`."""

    tokens: str | Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        tokens = cast("object", self.tokens)
        if not isinstance(tokens, str | Mapping):
            raise _bad_auth(
                f'Bearer takes a token, or a dict such as {{"token": "ann"}}, not a value of the type {type(tokens).__name__}.'
            )
        users = {tokens: "bearer"} if isinstance(tokens, str) else cast("Mapping[object, object]", tokens)
        if not users:
            raise _bad_auth(f"Bearer has no token, so it would refuse every request. {_MAKE_TOKEN}")
        for token, user in users.items():
            if not isinstance(token, str) or len(token) < _MIN_TOKEN_LENGTH or not token.isascii():
                raise _bad_auth(
                    f"A bearer token has at least {_MIN_TOKEN_LENGTH} ASCII characters. {_MAKE_TOKEN}"
                )
            if not isinstance(user, str) or not user:
                raise _bad_auth('Each token of Bearer needs the id of its user: Bearer({"token": "ann"}).')

    def find_user(self, headers: Mapping[str, str]) -> str | None:
        """The user of the token in the request; None if the token is missing or unknown."""
        given = bearer_token(headers).encode()
        users = {self.tokens: "bearer"} if isinstance(self.tokens, str) else self.tokens
        found = None
        # Compare with all tokens, so that the time does not show which one matched.
        for token, user in users.items():
            if hmac.compare_digest(token.encode(), given):
                found = user
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtIssuer:
    """Access tokens of an OAuth authorization server, the issuer. The keys to verify them are fetched from the issuer."""

    issuer: str
    audience: str
    """What the tokens are for: the URL of this server, or another name that the issuer gives it."""
    jwks_url: str = ""
    """The address of the keys; by default, the issuer's metadata names it."""
    scopes: tuple[str, ...] = ()
    """The scopes that a token must have."""
    url: str = ""
    """The URL at which clients reach this server; by default, the audience."""

    def __post_init__(self) -> None:
        from holdfast.token.fetch_issuer_keys import check_url

        for name, value in (
            ("issuer", self.issuer),
            ("audience", self.audience),
            ("jwks_url", self.jwks_url),
            ("url", self.url),
        ):
            if not isinstance(cast("object", value), str) or (not value and name not in ("jwks_url", "url")):
                kind = "a URL or a name" if name == "audience" else "a URL"
                raise _bad_auth(f"`{name}` of JwtIssuer must be {kind}.")
        for name, url in (("issuer", self.issuer), ("jwks_url", self.jwks_url)):
            if url:
                try:
                    check_url(url)
                except HoldfastError as error:
                    raise _bad_auth(f"`{name}` of JwtIssuer: {error.message}") from None
        if isinstance(cast("object", self.scopes), str):
            raise _bad_auth(f"`scopes` of JwtIssuer must be a tuple of strings: ({self.scopes!r},).")


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldfastTokens:
    """The tokens that a Holdfast host signs for each request, with the session of the caller."""

    keys: Path
    """The host's public key set."""
    url: str
    """The URL of this server in the host's list of servers."""


def _bad_auth(reason: str) -> HoldfastError:
    return HoldfastError(codes.BAD_ARGUMENT, reason)


Auth: TypeAlias = Bearer | JwtIssuer | HoldfastTokens | AuthFunction

current_http_session: ContextVar[SessionContext | None] = ContextVar("holdfast_http_caller", default=None)
"""The session of the caller of the current HTTP request, which `BoxApp` has found."""


class AppCaller(HttpCaller, frozen=True, kw_only=True):
    """A caller that `auth` has accepted."""

    session: SessionContext


class AppAuthenticator(Authenticator):
    """For a box in an ASGI application: `BoxApp` has already found out who calls."""

    def identify(self, headers: Mapping[str, str], query: str) -> HttpCaller:
        session = current_http_session.get()
        if session is None:
            raise HoldfastError(codes.UNAUTHENTICATED, "The request has no valid credentials.")
        return AppCaller(caller_id=session.session_id, session=session)

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        caller = request.http.caller if request.http else None
        if not isinstance(caller, AppCaller):
            raise HoldfastError(codes.UNAUTHENTICATED, "The request has no valid credentials.")
        return CallerIdentity(session=caller.session)

    def log_identity_source(self) -> None:
        """Log nothing: an ASGI application has its own log."""


FindSession: TypeAlias = Callable[[Mapping[str, str]], Awaitable[SessionContext | None]]
"""Gets the headers of a request. Returns the caller's session; None if there are no valid credentials."""


def make_session_finder(auth: Auth, trust: Trust) -> FindSession | None:
    """Make the function that finds the session of a caller. None for `HoldfastTokens`, which `TokenAuthenticator` checks."""
    match auth:
        case HoldfastTokens():
            return None
        case Bearer():

            async def find_by_bearer(headers: Mapping[str, str]) -> SessionContext | None:
                return _session_of(auth.find_user(headers), trust)

            return find_by_bearer
        case JwtIssuer():
            return _make_issuer_finder(auth, trust)
        case _:
            return _make_function_finder(auth, trust)


def make_authenticator(auth: Auth | None, box_aliases: Any) -> Authenticator:
    """Make the authenticator that tells the tools who calls."""
    if auth is None:
        return AnonymousAuthenticator(box_aliases)
    if isinstance(auth, HoldfastTokens):
        from holdfast.token import Verifier, audience_of
        from holdfast.toolkit.authentication import TokenAuthenticator

        return TokenAuthenticator(Verifier(auth.keys), {audience_of(auth.url)})
    return AppAuthenticator()


def bearer_token(headers: Mapping[str, str]) -> str:
    """The token in the `Authorization` header; empty if there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _make_issuer_finder(auth: JwtIssuer, trust: Trust) -> FindSession:
    from holdfast.token.fetch_issuer_keys import KeySetSource
    from holdfast.token.issuer_verifier import IssuerVerifier

    verifier = IssuerVerifier(auth.issuer, auth.audience, KeySetSource(auth.issuer, auth.jwks_url).fetch)

    async def find_session(headers: Mapping[str, str]) -> SessionContext | None:
        token = bearer_token(headers)
        if not token:
            return None
        await verifier.prepare(token)
        claims = verifier.verify(token)
        if missing := [scope for scope in auth.scopes if scope not in claims.scopes]:
            raise HoldfastError(codes.BAD_TOKEN, f"The token lacks the scope {missing[0]!r}.", reason="scope")
        return _session_of(claims.subject, trust)

    return find_session


def _make_function_finder(function: AuthFunction, trust: Trust) -> FindSession:
    if not callable(function):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"`auth` must be Bearer(…), JwtIssuer(…), HoldfastTokens(…) or a function of the headers, not a value of the type "
            f"{type(function).__name__}.",
        )
    check_parameter_count(function, 1, "`auth` must take one parameter, the headers", codes.BAD_ARGUMENT)

    async def find_session(headers: Mapping[str, str]) -> SessionContext | None:
        found = cast("object", function(headers))
        if inspect.isawaitable(found):
            found = cast("object", await found)
        if found is None or isinstance(found, SessionContext):
            return found
        if not isinstance(found, str):
            raise TypeError(
                f"auth returned a {type(found).__name__}; it must return a user id, a session or None"
            )
        return _session_of(found, trust)

    return find_session


def _session_of(user: str | None, trust: Trust) -> SessionContext | None:
    """The session of a user: its id is made from the user's id, so that all requests of a user have the same session."""
    if not user:
        return None
    if len(user) > _MAX_USER_ID:
        raise HoldfastError(codes.UNAUTHENTICATED, f"The user's id has more than {_MAX_USER_ID} characters.")
    return SessionContext(
        session_id=SessionId(f"http_{sha256(user.encode()).hexdigest()[:32]}"),
        trust_level=trust,
        user_id=user,
    )
