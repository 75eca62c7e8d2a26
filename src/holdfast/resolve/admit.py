"""Stage three: refuse servers that the session's trust does not allow, that are not approved, or whose name is taken."""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from holdfast.model.reserved_variables import risky_variable_reason
from holdfast.model.resolution import Resolution, Stage
from holdfast.model.server import Lifetime, ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.model.visible_text import display_path
from holdfast.resolve.grant import ConfinedGrant
from holdfast.resolve.server_names import normal_form, skeleton

_REVIEW = "To review it, run: holdfast servers approve"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswers:
    """The user's answers about projects' servers, by the digest of each server's entry."""

    direct: Collection[str] = ()
    """The entries that were approved with the user's rights."""
    confined: Mapping[str, ConfinedGrant] = field(default_factory=dict[str, ConfinedGrant])
    """The entries that were approved as confined, with their grants."""
    declined: Collection[str] = ()
    """The entries that the user declined."""


NO_ANSWERS = ServerAnswers()


def admit(resolution: Resolution, trust: Trust, answers: ServerAnswers = NO_ANSWERS) -> Resolution:
    """Refuse every server that a session with this trust may not use, and every project server that is not approved.

    A project server that was approved as confined is confined in every session. If two servers have the same name, the one
    from the more trusted source is kept. A project server that is not approved does not displace another server with its
    name.
    """
    by_name: dict[str, ServerSpec] = {}
    by_skeleton: dict[str, ServerSpec] = {}

    def why_refused(server: ServerSpec) -> str | None:
        if server.source is Source.PROJECT and (why := _why_not_approved(server, answers)):
            return why
        taken = by_name.setdefault(normal_form(server.name), server)
        if taken.name == server.name and taken is not server:
            if taken.origin == server.origin:
                return f"A second entry in {display_path(server.origin)} has this name, and is not used. Rename one of them."
            return (
                f"The entry in {display_path(server.origin)} is not used: a server in {display_path(taken.origin)} has the same name. "
                "Rename one of them."
            )
        look_alike = by_skeleton.setdefault(skeleton(server.name), server)
        if taken is not server:
            return _looks_like(taken)
        # One file may contain both `test1` and `testl`: its author knows which is which.
        if look_alike.origin != server.origin:
            return _looks_like(look_alike)
        if not server.may_be_used_by(trust):
            return _not_for_sandboxed_sessions(server)
        return _why_variables_refused(server, trust)

    granted = replace(resolution, servers=tuple(_apply_grant(one, answers) for one in resolution.servers))
    admitted = granted.refuse_if(why_refused, stage=Stage.ADMIT)
    return replace(admitted, servers=tuple(_unshare(server, trust) for server in admitted.servers))


def _apply_grant(server: ServerSpec, answers: ServerAnswers) -> ServerSpec:
    grant = answers.confined.get(server.digest) if server.source is Source.PROJECT else None
    return grant.apply_to(server) if grant is not None else server


def _why_not_approved(server: ServerSpec, answers: ServerAnswers) -> str | None:
    if server.digest in answers.direct or server.digest in answers.confined:
        return None
    if server.digest in answers.declined:
        return f"You declined it. To review it again, run: {_approve_command(server)}"
    return f"It is not approved, or has changed since you approved it. {_REVIEW}"


def _unshare(server: ServerSpec, trust: Trust) -> ServerSpec:
    """The server, not shared if it is confined: through a shared server, one session could learn what another does."""
    is_confined = server.always_confined or (isinstance(server.transport, Stdio) and trust is Trust.SANDBOXED)
    if not is_confined or server.lifetime is not Lifetime.HOST:
        return server
    return replace(server, lifetime=Lifetime.SESSION)


def _why_variables_refused(server: ServerSpec, trust: Trust) -> str | None:
    """Why a client's or project's server is refused because one of its variables can change which code runs; None if it is not.

    In a direct session, only a client's server that is confined in every session is refused.
    """
    if not isinstance(server.transport, Stdio):
        return None
    match server.source:
        case Source.CLIENT:
            is_refused = server.trust_in(trust) is Trust.SANDBOXED
        case Source.PROJECT:
            # A person has approved the variables, also those of a confined server, but only for direct sessions.
            is_refused = trust is Trust.SANDBOXED
        case _:
            is_refused = False
    if not is_refused:
        return None
    for name in server.transport.env:
        if why := risky_variable_reason(name):
            if server.source is Source.CLIENT and server.always_confined:
                return f"env: {name} may not come from {display_path(server.origin)} for a server that runs confined: {why}. Remove it."
            return (
                f"env: {name} may not come from {display_path(server.origin)} in a sandboxed session: {why}. "
                "Remove it, or open the session in a direct workspace."
            )
    return None


def _looks_like(other: ServerSpec) -> str:
    return (
        f"Its name looks like {other.name!r}, a server in {display_path(other.origin)}. Rename one of them."
    )


def _not_for_sandboxed_sessions(server: ServerSpec) -> str:
    """Why a sandboxed session does not get a server."""
    if server.source is Source.PROJECT:
        return (
            "You approved it with your rights, and this session is sandboxed. To let all sessions use it, but confined, "
            f"run: {_approve_command(server)} --confined"
        )
    return (
        "Only direct sessions may use it, and this session is sandboxed. To let sandboxed sessions use it, "
        f'set "trust_level": "sandboxed" in {server.origin or "its entry"}.'
    )


def _approve_command(server: ServerSpec) -> str:
    return shlex.join(["holdfast", "servers", "approve", server.name])
