"""Stage three: refuse servers that the session's trust does not allow, that are not approved, or whose name is taken."""

from collections.abc import Collection

from holdfast.model.resolution import Resolution, Stage
from holdfast.model.server import ServerSpec, Source
from holdfast.model.trust import Trust
from holdfast.resolve.server_names import normal_form, skeleton


def admit(resolution: Resolution, trust: Trust, approved: Collection[str] = ()) -> Resolution:
    """Refuse every server that a session with this trust may not use, and every project server that is not approved.

    `approved` holds the digests of the approved entries. If two servers have the same name, the one from the more trusted
    source is kept. A project server that is not approved does not displace another server with its name.
    """
    by_name: dict[str, ServerSpec] = {}
    by_skeleton: dict[str, ServerSpec] = {}

    def why_refused(server: ServerSpec) -> str | None:
        wrong_trust = None if server.may_be_used_by(trust) else _not_for_sandboxed_sessions(server)
        if server.source is Source.PROJECT and server.digest not in approved:
            return (
                wrong_trust or "It is not approved as it is now. To review it, run: holdfast servers approve"
            )
        taken = by_name.setdefault(normal_form(server.name), server)
        if taken.name == server.name and taken is not server:
            return f"A server in {taken.origin} has the same name. Rename one of them."
        look_alike = by_skeleton.setdefault(skeleton(server.name), server)
        if taken is not server:
            return _looks_like(taken)
        # One file may contain both `test1` and `testl`: its author knows which is which.
        if look_alike.origin != server.origin:
            return _looks_like(look_alike)
        return wrong_trust

    return resolution.refuse_if(why_refused, stage=Stage.ADMIT)


def _looks_like(other: ServerSpec) -> str:
    return f"Its name looks like {other.name!r}, a server in {other.origin}. Rename one of them."


def _not_for_sandboxed_sessions(server: ServerSpec) -> str:
    """Why a sandboxed session does not get a server. `trust_level` never decides how it runs: the session's trust does."""
    reason = (
        "Only direct sessions may use it, and this session is sandboxed. To let sandboxed sessions use it, "
    )
    if server.source is Source.PROJECT:  # the key has no effect in a project's file
        return f'{reason}copy it to your own servers file (the setting servers.user_file) and add "trust_level": "sandboxed".'
    return f'{reason}set "trust_level": "sandboxed" in {server.origin or "its entry"}.'
