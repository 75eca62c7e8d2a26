"""How a server finds out who sent a request.

There is one authenticator for each kind of server:

| server | authenticator | identity and trust come from | a workspace that the client announces |
|---|---|---|---|
| stdio, started for one session | `EnvironmentAuthenticator` | the environment: the host started the server | is ignored |
| stdio, shared by sessions | `MetaAuthenticator` | the `_meta` of each request: the host writes it | is ignored |
| HTTP, with the host's key set | `TokenAuthenticator` | the verified token of each request | is used only for anonymous callers, if they are allowed |
| in process | `ContextVarAuthenticator` | the ContextVar of `model.context` | is ignored |
| any other | `AnonymousAuthenticator` | nothing | is used: it is an address and grants nothing |

The arguments of a tool never identify the caller, whatever their names are.
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
    """The caller's session, or None for an anonymous caller, and the workspace that such a caller announces."""

    session: SessionContext | None = None
    announced_workspace: str = ""


ANONYMOUS = CallerIdentity()


class Authenticator(Protocol):
    """Finds out who sent a request."""

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        """The caller who sent this request; raises when the request's proof of identity is not valid."""
        ...

    def log_identity_source(self) -> None:
        """Log at start how this server identifies its callers."""
        ...


@dataclass(frozen=True, slots=True)
class EnvironmentAuthenticator:
    """For the server of one session. The host sets the session in its environment; no request can change it."""

    session: SessionContext

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        return CallerIdentity(session=self.session)

    def log_identity_source(self) -> None:
        session = self.session
        # Shortened, because the whole id would let readers of the log use the session.
        _log_identity(f"{session.session_id[:13]}…", session.workspace_id or "(none)", session.trust_level)


class MetaAuthenticator:
    """For a server that sessions share: the host writes the session into the `_meta` of each request."""

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        context = request.meta.get(META_KEY)
        if context is None:
            return ANONYMOUS
        session = parse_context(context) if isinstance(context, Mapping) else None
        if session is None:
            raise HoldfastError(codes.NO_CONTEXT, f"The context in _meta[{META_KEY!r}] is incomplete.")
        return CallerIdentity(session=session)

    def log_identity_source(self) -> None:
        _log_identity(*["(per request)"] * 3)


class TokenAuthenticator:
    """For a server over HTTP: the host signs a token for each request.

    A call that may change something needs a token for its body that no such call has used before.
    """

    def __init__(
        self,
        verifier: "Verifier",
        audience: str | Collection[str],
        *,
        anonymous: "AnonymousAuthenticator | None" = None,
        replays: "ReplayCache | None" = None,
    ) -> None:
        from holdfast.token import ReplayCache  # costs 10 ms, and servers on stdio do not need it

        self._verifier = verifier
        self._audience = audience
        self._anonymous = anonymous
        self._replays = replays or ReplayCache()

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
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

    def log_identity_source(self) -> None:
        _log_identity(*["(per token)"] * 3)


class ContextVarAuthenticator:
    """For tools in the host's own process: the caller sets the ContextVar.

    Use one in-memory connection per session: it sends frames in batches, so that the frames of several sessions would
    run with the ContextVar of one.
    """

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        return CallerIdentity(session=current_context())

    def log_identity_source(self) -> None:
        """Log nothing: this server is not a process of its own."""


@dataclass(frozen=True, slots=True)
class AnonymousAuthenticator:
    """For clients that prove no identity. They may announce a workspace; anything else that they claim is ignored."""

    aliases: ContextAliases = NO_ALIASES

    def authenticate(self, request: McpRequest, *, mutates: bool) -> CallerIdentity:
        """An anonymous caller, with the workspace announced in the request or else in `initialize`."""
        announced = self._announced_workspace(request.meta) or self._announced_workspace(request.client.meta)
        return CallerIdentity(announced_workspace=announced) if announced else ANONYMOUS

    def _announced_workspace(self, meta: JsonObject) -> str:
        if META_KEY in meta or self.aliases.workspace_keys:
            return self.aliases.workspace_in(meta)
        return ""

    def log_identity_source(self) -> None:
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
            f"The environment has only {', '.join(present)}, which is not a complete session context. Unset these variables, or let the host set all of them.",
        )
    return AnonymousAuthenticator(aliases)


def _log_identity(session: str, workspace: str, trust: str) -> None:
    # The values are in the message and not in fields, because operators search a server's log for exactly this form.
    log.info("session=%s, workspace=%s, trust=%s, pid=%d", session, workspace, trust, os.getpid())
