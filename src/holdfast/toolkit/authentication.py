"""Who calls: how a server authenticates its requests.

One authenticator for each kind of server:

| server | authenticator | identity and trust come from | a workspace that the client announces |
|---|---|---|---|
| stdio, one session's own | `EnvironmentAuthenticator` | the environment: the spawner is the host | is ignored |
| stdio, shared by sessions | `MetaAuthenticator` | the `_meta` of each request: the host writes them all | is ignored |
| HTTP, with the host's key set | `TokenAuthenticator` | the verified token of each request | counts only for anonymous callers, if they are allowed |
| in process | `ContextVarAuthenticator` | the ContextVar | is ignored |
| any other | `AnonymousAuthenticator` | nothing | counts: it is an address and grants nothing |

The arguments of a tool never count, whatever their names are.
"""

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.model import codes
from holdfast.model.context import (
    CONTEXT_HEADER,
    CONTEXT_VARIABLES,
    META_KEY,
    SHARED_VARIABLE,
    SessionContext,
    context_from_env,
    current_context,
    parse_context,
)
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.mcp.server import McpRequest

if TYPE_CHECKING:
    from holdfast.token import ReplayCache, Verifier

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerIdentity:
    """The session that calls; for an anonymous caller, the workspace that it announces."""

    session: SessionContext | None = None
    announced_workspace: str = ""


ANONYMOUS = CallerIdentity()


class Authenticator(Protocol):
    """Finds out who sent a request."""

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        """Who sent this request; raises when the request's proof of identity is bad."""
        ...

    def log_caller(self) -> None:
        """Log, once at the start, where this server takes its callers' identity from."""
        ...


@dataclass(frozen=True, slots=True)
class EnvironmentAuthenticator:
    """For the server of one session: the environment says which, and nothing in a request changes it."""

    session: SessionContext

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        return CallerIdentity(session=self.session)

    def log_caller(self) -> None:
        session = self.session
        # Shortened: the whole id would let a reader of the log use the session.
        _log_caller(f"{session.session_id[:13]}…", session.workspace_id or "(none)", session.trust_level)


class MetaAuthenticator:
    """For a server that sessions share: each request names its session in `_meta`, which the host writes."""

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        context = request.meta.get(META_KEY)
        if context is None:
            return ANONYMOUS
        session = parse_context(context) if isinstance(context, Mapping) else None
        if session is None:
            raise HoldfastError(codes.NO_CONTEXT, f"The context in _meta[{META_KEY!r}] is incomplete.")
        return CallerIdentity(session=session)

    def log_caller(self) -> None:
        _log_caller(*["(of each request)"] * 3)


class TokenAuthenticator:
    """For a server over HTTP: the host signs a token for each request. A call that mutates uses its token up."""

    def __init__(
        self,
        verifier: "Verifier",
        audience: str | Collection[str],
        *,
        anonymous: "AnonymousAuthenticator | None" = None,
        replays: "ReplayCache | None" = None,
    ) -> None:
        from holdfast.token import ReplayCache  # costs 20 ms; servers on stdio do not need it

        self._verifier = verifier
        self._audience = audience
        self._anonymous = anonymous
        self._replays = replays or ReplayCache()

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        """The session of the token. If the call mutates, the token must be signed for this body."""
        http = request.http
        token = http.headers.get(CONTEXT_HEADER.lower()) if http else None
        if http is None or token is None:
            if self._anonymous is not None:
                return self._anonymous.authenticate(request, mutates=mutates)
            raise HoldfastError(
                codes.BAD_TOKEN, f"Send the host's token in the header {CONTEXT_HEADER}.", reason="missing"
            )
        claims = self._verifier.verify(token, self._audience, request=http.body if mutates else None)
        if mutates:
            self._replays.check(claims)
        return CallerIdentity(session=claims.context)

    def log_caller(self) -> None:
        _log_caller(*["(of each token)"] * 3)


class ContextVarAuthenticator:
    """For tools in the host's own process: the caller sets the ContextVar.

    An in-memory wire preserves the ContextVar only if one session uses it: with several, their frames are batched.
    """

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        return CallerIdentity(session=current_context())

    def log_caller(self) -> None:
        """Log nothing: no process is started."""


@dataclass(frozen=True, slots=True)
class AnonymousAuthenticator:
    """For clients without a proof of identity. They may announce a workspace; nothing else they claim counts."""

    aliases: ContextAliases = NO_ALIASES

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        """The workspace announced in the request, else in `initialize`."""
        announced = self._announced(request.meta) or self._announced(request.client.meta)
        return CallerIdentity(announced_workspace=announced) if announced else ANONYMOUS

    def _announced(self, meta: JsonObject) -> str:
        if META_KEY in meta or self.aliases.workspace_keys:
            return self.aliases.workspace_in(meta)
        return ""

    def log_caller(self) -> None:
        log.warning("no session context (legacy mode): callers are anonymous, pid=%d", os.getpid())


def authenticator_from_env(environ: Mapping[str, str], aliases: ContextAliases = NO_ALIASES) -> Authenticator:
    """The authenticator of a server on stdio, chosen by the environment that its spawner set."""
    if environ.get(SHARED_VARIABLE):
        return MetaAuthenticator()
    session = context_from_env(environ)
    if session is not None:
        return EnvironmentAuthenticator(session)
    present = sorted(name for name in CONTEXT_VARIABLES if environ.get(name))
    if present:
        raise HoldfastError(
            codes.NO_CONTEXT,
            f"The environment has only {', '.join(present)}, which is not a whole context. Start the server again.",
        )
    return AnonymousAuthenticator(aliases)


def _log_caller(session: str, workspace: str, trust: str) -> None:
    # The values are part of this message, not fields: operators search a server's standard error for this form.
    log.info("session=%s, workspace=%s, trust=%s, pid=%d", session, workspace, trust, os.getpid())
