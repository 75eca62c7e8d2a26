"""How a server finds out who sent a request.

There is one authenticator for each kind of server:

| server | authenticator | identity and trust come from | a workspace that the client announces |
|---|---|---|---|
| stdio, started for one session | `EnvironmentAuthenticator` | the environment: the Holdfast host started the server | is ignored |
| in the process of the application, opened for one session | `EnvironmentAuthenticator` | the session that it was opened for | is ignored |
| stdio, shared by sessions or started in advance | `MetaAuthenticator` | the `_meta` of each request: the Holdfast host writes it | is ignored |
| HTTP, with the Holdfast host's key set | `TokenAuthenticator` | the verified token of each request | is used only for anonymous callers, if they are allowed |
| HTTP, with other credentials (`box.http_app(auth=…)`) | `AppAuthenticator`, in `http_auth` | the credentials of each request: `auth` finds the user or the session | is ignored |
| in process, used by code that sets the session itself | `ContextVarAuthenticator` | the ContextVar of `model.context` | is ignored |
| any other | `AnonymousAuthenticator` | nothing: callers are anonymous | is used: it says which workspace the client means, and grants no rights |

The arguments of a tool never identify the caller, even if they have the names of context fields.
"""

import logging
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from holdfast.model import codes
from holdfast.model.context import (
    CONTEXT_HEADER,
    CONTEXT_VARIABLES,
    META_KEY,
    SHARED_VARIABLE,
    SessionContext,
    context_fields,
    context_from_env,
    current_context,
    parse_context,
)
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.mcp.server import UNKNOWN_CALLER, HttpCaller, McpRequest

if TYPE_CHECKING:
    from holdfast.token import Claims, ReplayCache, Verifier

log = logging.getLogger(__name__)

_MAX_QUERY = 2048  # characters; the query is parsed before the token is verified
_LOGGED_ID_LENGTH = 13  # the prefix `sess_` and eight hexadecimal digits


class CallerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's session, or None for an anonymous caller, and the workspace that an anonymous caller announces."""

    session: SessionContext | None = None
    announced_workspace: str = ""
    connection: str = ""
    """The id of the connection, if only this caller uses it. It distinguishes anonymous callers."""


class Authenticator(Protocol):
    """Finds out who sent a request."""

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        """The caller who sent this request; raises when the request's proof of identity is not valid.

        `mutates` says whether the request may change something, which may need a stronger proof.
        """
        ...

    def identify(self, headers: Mapping[str, str], query: str) -> HttpCaller:
        """Over HTTP: find out from the head of a request who sends it; raises if that caller is refused."""
        return UNKNOWN_CALLER

    def authorize(self, caller: HttpCaller, body: bytes) -> None:
        """Over HTTP: raise unless the caller's token is for this body and was not used before."""

    def log_identity_source(self) -> None:
        """Log at start how this server identifies its callers."""
        ...


@dataclass(frozen=True)
class EnvironmentAuthenticator(Authenticator):
    """For a server that was started for one session: the host sets the session in the server's environment, or passes it in process.

    No request can change the session. The host also writes it into the `_meta` of each request. If `_meta` has the complete
    context of another session, the request is refused: someone else has set the environment, for example the command in the
    server's entry in mcp.json. A missing or incomplete context in `_meta` is ignored.
    """

    session: SessionContext

    @cached_property
    def _fields(self) -> dict[str, str]:
        return context_fields(self.session)

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        claimed = request.meta.get(META_KEY)
        if claimed is not None and claimed != self._fields:
            self._check_claim(claimed)
        return CallerIdentity(session=self.session)

    def _check_claim(self, claimed: object) -> None:
        """Raise if this is the complete context of another session. Ignore anything else."""
        is_object = isinstance(claimed, Mapping)
        other = parse_context(cast("Mapping[str, object]", claimed)) if is_object else None
        if other is not None and context_fields(other) != self._fields:
            raise HoldfastError(
                codes.NO_CONTEXT,
                "The session in this server's environment is not the one that sent the request. Remove the HOLDFAST_ variables from the command in this server's entry in mcp.json, and start the server again.",
            )

    def log_identity_source(self) -> None:
        session = self.session
        # Shortened, because someone who reads the log must not be able to use the session.
        _log_identity(
            f"{session.session_id[:_LOGGED_ID_LENGTH]}…",
            session.workspace_id or "(none)",
            session.trust_level,
        )


class MetaAuthenticator(Authenticator):
    """For a server that sessions share or that was started in advance: the Holdfast host writes the session into the `_meta` of each request."""

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        context = request.meta.get(META_KEY)
        if context is None:
            return CallerIdentity()
        session = parse_context(context) if isinstance(context, Mapping) else None
        if session is None:
            raise HoldfastError(codes.NO_CONTEXT, f"The context in _meta[{META_KEY!r}] is incomplete.")
        return CallerIdentity(session=session)

    def log_identity_source(self) -> None:
        _log_identity(*["(per request)"] * 3)


class TokenCaller(HttpCaller, frozen=True, kw_only=True):
    """A caller with a valid token."""

    claims: "Claims"


_ANONYMOUS_CALLER = HttpCaller(caller_id="anonymous")
"""All callers without a token, at a server that accepts them. They share the quotas of one caller."""


class TokenAuthenticator(Authenticator):
    """For a server over HTTP: the Holdfast host signs a token for each request.

    The token is verified before the body is read. A call that may change something, and a request that opens, changes or ends an MCP
    session, needs a token that was signed for its body and was not used before.

    `anonymous` authenticates callers without a token; if it is None, they are refused.
    """

    def __init__(
        self,
        verifier: "Verifier",
        audience: str | Collection[str],
        *,
        anonymous: "AnonymousAuthenticator | None" = None,
        replays: "ReplayCache | None" = None,
    ) -> None:
        from holdfast.token import ReplayCache  # slow to import, and servers on stdio do not need it

        self._verifier = verifier
        self._audiences = frozenset({audience} if isinstance(audience, str) else audience)
        self._anonymous = anonymous
        self._replays = ReplayCache(since=time.time()) if replays is None else replays

    def identify(self, headers: Mapping[str, str], query: str) -> HttpCaller:
        token = headers.get(CONTEXT_HEADER.lower())
        if token is None:
            if self._anonymous is None:
                raise _missing_token()
            return _ANONYMOUS_CALLER
        claims = self._verifier.verify(token, self._audiences_with(query) if query else self._audiences)
        return TokenCaller(caller_id=claims.context.session_id, claims=claims)

    def authorize(self, caller: HttpCaller, body: bytes) -> None:
        if isinstance(caller, TokenCaller):
            from holdfast.token.verifier import check_request

            check_request(caller.claims, body or None)
            self._replays.check(caller.claims)

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        caller = request.http.caller if request.http else None
        if request.http is None or not isinstance(caller, TokenCaller):
            if self._anonymous is None:
                raise _missing_token()
            return self._anonymous.authenticate(request, mutates=mutates)
        if mutates:
            self.authorize(caller, request.http.body)
        return CallerIdentity(session=caller.claims.context)

    def _audiences_with(self, query: str) -> frozenset[str]:
        """The audiences that a token may have if the request has this query. An audience with its own query is not changed."""
        from holdfast.token.claims import add_query

        if len(query) > _MAX_QUERY:
            raise HoldfastError(
                codes.BAD_TOKEN, f"The query has more than {_MAX_QUERY} characters.", reason="audience"
            )
        return frozenset(
            audience if "?" in audience else add_query(audience, query) for audience in self._audiences
        )

    def log_identity_source(self) -> None:
        _log_identity(*["(per token)"] * 3)


def _missing_token() -> HoldfastError:
    return HoldfastError(
        codes.BAD_TOKEN, f"Send the Holdfast host's token in the header {CONTEXT_HEADER}.", reason="missing"
    )


class ContextVarAuthenticator(Authenticator):
    """For tools in the process of their caller, which sets the ContextVar.

    Use one in-memory connection per session. A connection delivers messages in batches, and all messages of a batch are handled with
    the same value of the ContextVar.
    """

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        return CallerIdentity(session=current_context(), connection=request.connection)

    def log_identity_source(self) -> None:
        """Log nothing: this server is not a process of its own."""


@dataclass(frozen=True)
class AnonymousAuthenticator(Authenticator):
    """For clients that prove no identity. They may announce a workspace; anything else that they claim is ignored."""

    aliases: ContextAliases = NO_ALIASES

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        """An anonymous caller, with the workspace announced in the request or else in `initialize`."""
        announced = self._announced_workspace(request.meta) or self._announced_workspace(request.client.meta)
        return CallerIdentity(announced_workspace=announced, connection=request.connection)

    def _announced_workspace(self, meta: JsonObject) -> str:
        if META_KEY in meta or self.aliases.workspace_keys:
            return self.aliases.workspace_in(meta)
        return ""

    def log_identity_source(self) -> None:
        log.warning(
            "no session context (legacy mode): this server was not started by Holdfast and has no --keys, so its callers are anonymous, pid=%d",
            os.getpid(),
        )


def authenticator_from_env(environ: Mapping[str, str], aliases: ContextAliases = NO_ALIASES) -> Authenticator:
    """The authenticator of a server on stdio, chosen by the environment that the process was started with."""
    if environ.get(SHARED_VARIABLE):
        return MetaAuthenticator()
    session = context_from_env(environ)
    if session is not None:
        return EnvironmentAuthenticator(session)
    present = sorted(name for name in CONTEXT_VARIABLES if environ.get(name))
    if present:
        raise HoldfastError(
            codes.NO_CONTEXT,
            f"The environment has only {', '.join(present)}, which is not a complete session context. Unset these variables, or let the Holdfast host set all of them.",
        )
    return AnonymousAuthenticator(aliases)


def _log_identity(session: str, workspace: str, trust: str) -> None:
    # The values are in the message and not in fields, because operators search a server's log for exactly this form.
    log.info("session=%s, workspace=%s, trust=%s, pid=%d", session, workspace, trust, os.getpid())
