"""Credentials: who sends a request to the gateway, and what this sender may use."""

from dataclasses import dataclass
from typing import Protocol

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import Mode
from holdfast.model.tool_pattern import ToolPattern
from holdfast.model.trust import Trust
from holdfast.wire.http.request import Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What a verified token, the command line, or an application's `authenticate` says about a client. It contains no secret.

    The sessions, handles and limits of a client belong to the `id` of its credential.
    """

    id: str
    name: str = ""
    """A label for people, such as `cursor on my laptop`."""
    cwd: str = ""
    """The folder of its sessions. Empty: the workspace's folder, or the gateway's if there is no workspace."""
    workspace: str = ""
    """The slug of the only workspace that the credential can use."""
    trust: Trust | None = None
    """The highest trust of its sessions. None: no limit besides the settings and the workspace."""
    mode: Mode | None = None
    """The permission mode of its sessions. None: `ask`."""
    servers: frozenset[str] | None = None
    """Only servers with these names are offered; None offers all."""
    tools: tuple[ToolPattern, ...] | None = None
    """Only tools that match one of these patterns are offered; None offers all."""
    user_id: str | None = None
    """The user that its sessions belong to."""
    expires_at: float | None = None
    """When the credential expires, in seconds since 1970; None: never."""
    how_to_stop_asking: str = ""
    """How a person lets the client's sessions run in the mode `auto`, as a clause that follows `To stop these questions,`.

    Empty if it is not possible.
    """
    from_issuer: bool = False
    """Whether the credential comes from a token of the configured issuer."""


LOCAL = Credential(
    id="local",
    name="without a token",
    how_to_stop_asking="the application that mounts the gateway can give `gateway.app` the parameter `authenticate`, a function"
    ' that returns a Credential with mode="auto"',
)
"""The credential of every request to a gateway that asks for no tokens. `holdfast up --no-tokens` may change its mode."""


class NotAuthenticatedError(HoldfastError):
    """A request presents no valid credential.

    The message is for the client, and is the same for unknown and revoked tokens. `reason` is for the audit. Neither contains any part
    of a token.
    """

    def __init__(self, message: str, *, reason: str, credential_id: str = "") -> None:
        super().__init__(codes.UNAUTHENTICATED, f"{message} {codes.UNAUTHENTICATED.hint}")
        self.reason = reason
        self.credential_id = credential_id
        """The credential that the token names, if it exists; for the audit."""
        self.client_address = ""
        """Set by the gateway, for the audit."""


class Authenticate(Protocol):
    """Finds the credential of a request. Called for every request, before its body is read."""

    def __call__(self, headers: Headers, client_address: str, /) -> Credential:
        """The credential that these headers (by lower-case name) present. Raise `NotAuthenticatedError` if there is none."""
        ...
