"""What a server believes, and of whom.

One table, a class for each of its rows:

| server | believes | about identity and trust | a workspace that a client announces |
|---|---|---|---|
| stdio, one session's own | `Spawner` | the environment: the spawner is the host | not heard |
| stdio, shared by sessions | `Requests` | the `_meta` of each request: the host writes them all | not heard |
| HTTP, with the host's key set | `Tokens` | the verified token of each request | only where strangers are let in, and they are |
| in process | `Process` | the ContextVar | not heard |
| any other | `Strangers` | nothing | heard: an address, not an authority |

Arguments of a tool are never looked at here, whatever they are called.
"""

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.model import codes
from holdfast.model.aliases import NO_ALIASES, Aliases
from holdfast.model.carriers import CONTEXT_VARIABLES, HEADER, META_KEY, SHARED, read_context, read_env
from holdfast.model.context import SessionContext, current_context
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.mcp.server import Ask

if TYPE_CHECKING:
    from holdfast.token import Seen, Verifier

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """Who is calling, as far as it is believed; or else which workspace a stranger says it works in."""

    session: SessionContext | None = None
    announced: str = ""


NOBODY = Believed()


class Belief(Protocol):
    """A way to tell who is calling."""

    def of(self, ask: Ask, *, mutates: bool) -> Believed:
        """Who sent this request; raises when somebody claims to be who they are not."""
        ...

    def introduce(self) -> None:
        """Log, once at the start, who this server takes its callers to be."""
        ...


@dataclass(frozen=True, slots=True)
class Spawner:
    """The server of one session: its environment says whose, and nothing else can."""

    session: SessionContext

    def of(self, ask: Ask, *, mutates: bool) -> Believed:
        """The same session, for as long as the process lives."""
        return Believed(session=self.session)

    def introduce(self) -> None:
        """The session, shortened: the whole id would let whoever reads the log ask for it."""
        session = self.session
        _introduce(f"{session.session_id[:13]}…", session.workspace_id or "(none)", session.trust_level)


class Requests:
    """A server that sessions share: each request says whose it is, and the host writes them all."""

    def of(self, ask: Ask, *, mutates: bool) -> Believed:
        """The session that the request names; half a context is refused, not guessed at."""
        said = ask.meta.get(META_KEY)
        if said is None:
            return NOBODY
        session = read_context(said) if isinstance(said, Mapping) else None
        if session is None:
            raise HoldfastError(codes.NO_CONTEXT, f"The context in _meta[{META_KEY!r}] is not whole.")
        return Believed(session=session)

    def introduce(self) -> None:
        """That there is no one session."""
        _introduce(*["(of each request)"] * 3)


class Tokens:
    """A server over HTTP: only what the host signed is believed, and for a change only once."""

    def __init__(
        self,
        verifier: "Verifier",
        audience: str | Collection[str],
        *,
        strangers: "Strangers | None" = None,
        seen: "Seen | None" = None,
    ) -> None:
        from holdfast.token import Seen  # costs 20 ms, which servers on stdio need not pay

        self._verifier = verifier
        self._audience = audience
        self._strangers = strangers
        self._seen = seen or Seen()

    def of(self, ask: Ask, *, mutates: bool) -> Believed:
        """The session of the token. One that changes something must have been signed for this very body."""
        exchange = ask.exchange
        token = exchange.headers.get(HEADER.lower()) if exchange else None
        if exchange is None or token is None:
            if self._strangers is not None:
                return self._strangers.of(ask, mutates=mutates)
            raise HoldfastError(
                codes.BAD_TOKEN, f"Send the host's token in the header {HEADER}.", reason="missing"
            )
        claims = self._verifier.verify(token, self._audience, request=exchange.body if mutates else None)
        if mutates:
            self._seen.once(claims)
        return Believed(session=claims.context)

    def introduce(self) -> None:
        """That each request brings its own proof."""
        _introduce(*["(of each token)"] * 3)


class Process:
    """Tools in the host's own process: whoever runs the call set the ContextVar.

    A wire in memory carries it only while it is one session's own: lines of several callers travel together.
    """

    def of(self, ask: Ask, *, mutates: bool) -> Believed:
        """The current context."""
        return Believed(session=current_context())

    def introduce(self) -> None:
        """Nothing is started."""


@dataclass(frozen=True, slots=True)
class Strangers:
    """Clients that nobody vouches for. They may say where they work; the rest of what they say means nothing."""

    aliases: Aliases = NO_ALIASES

    def of(self, ask: Ask, *, mutates: bool) -> Believed:
        """The workspace announced in the request, else when the client first spoke."""
        announced = self._announced(ask.meta) or self._announced(ask.caller.meta)
        return Believed(announced=announced) if announced else NOBODY

    def _announced(self, meta: JsonObject) -> str:
        if META_KEY in meta or self.aliases.workspace_keys:
            return self.aliases.announced(meta)
        return ""

    def introduce(self) -> None:
        """That tools cannot know who calls."""
        log.warning("no session context (legacy mode): nobody says who calls, pid=%d", os.getpid())


def of_environment(environ: Mapping[str, str], aliases: Aliases = NO_ALIASES) -> Belief:
    """What a server on stdio believes, by what its spawner put into the environment."""
    if environ.get(SHARED):
        return Requests()
    session = read_env(environ)
    if session is not None:
        return Spawner(session)
    half = sorted(name for name in CONTEXT_VARIABLES if environ.get(name))
    if half:
        raise HoldfastError(
            codes.NO_CONTEXT,
            f"The environment has {', '.join(half)}, which makes no whole context. Start it anew.",
        )
    return Strangers(aliases)


def _introduce(session: str, workspace: str, trust: str) -> None:
    # The one line with its values inside: people look for it in a server's standard error by this very form.
    log.info("session=%s, workspace=%s, trust=%s, pid=%d", session, workspace, trust, os.getpid())
