"""The options of a gateway, and what it reports about its sessions."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.gateway.credential import Credential
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import Limits
from holdfast.wire.http.allowed_hosts import OWN_LOOPBACK_ORIGIN, AllowedHosts
from holdfast.wire.http.limits import HttpLimits
from holdfast.wire.mcp.eras import Era


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A client's session, as an operator sees it."""

    session_id: str
    """The id of the Holdfast session; empty if it is not open yet, or could not be opened."""
    credential: Credential
    era: Era
    client: str
    """The name and version that the client reported."""
    servers: tuple[str, ...] = ()
    ended: str = ""
    """Why the session has ended; empty while it is open."""


def why_not_opened(error: BaseException) -> str:
    """Why a session that could not be opened has ended, for the operator."""
    reason = error.message if isinstance(error, HoldfastError) else type(error).__name__
    return f"it could not be opened: {reason}"


def _ignore_change(session: SessionSummary) -> None:
    pass


def _accept(credential: Credential) -> None:
    pass


def _ignore_refusal(error: HoldfastError, credential: Credential | None) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """How a gateway serves its clients."""

    cwd: str | Path = ""
    """The folder of the sessions of credentials that name neither a folder nor a workspace. By default, the current folder."""
    allowed_hosts: AllowedHosts = OWN_LOOPBACK_ORIGIN
    http_limits: HttpLimits | None = None
    """The limits of requests and sessions; those per caller apply to each credential. None: `open_gateway` uses the settings."""
    limits: Limits | None = None
    """The limits of messages. None: `open_gateway` uses the settings."""
    builtins: frozenset[str] = frozenset()
    """The built-in servers to offer. Empty: `open_gateway` uses the settings."""
    bare_names: bool | None = None
    """Whether tools and prompts keep the names that their servers gave them, without a prefix.

    None: `open_gateway` uses the settings, and `gateway.app` keeps the names if exactly one server is configured.
    """
    keep: bool = True
    """Whether sessions and their events are stored. The audit records every call in either case."""
    call_seconds: float | None = None
    """How long a call may take, including the answers of the client's user. None: the setting `links.call_seconds`."""
    challenge: str = 'Bearer realm="holdfast"'
    """The `WWW-Authenticate` header of a response to a request without a valid credential."""
    recheck: Callable[[Credential], None] = _accept
    """Called after the body of a request was read, which may have taken a while. Raise if the credential is no longer valid."""
    before_open: Callable[[Credential], None] = _accept
    """Called before a session is opened. Raise an error to refuse it."""
    on_change: Callable[[SessionSummary], None] = _ignore_change
    """Called when a session was opened, and when it has ended."""
    on_refusal: Callable[[HoldfastError, Credential | None], None] = _ignore_refusal
    """Called when the gateway itself refuses a request, for example without a valid credential, for another host, over a limit,
    with headers that contradict the message, or for a session or handle that is not the credential's."""
