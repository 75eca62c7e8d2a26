"""Stage three: refuse servers that the session's trust does not allow, project servers that are not approved, and names used twice."""

from collections.abc import Collection

from holdfast.model.resolution import Resolution, Stage
from holdfast.model.server import ServerSpec, Source
from holdfast.model.trust import Trust
from holdfast.resolve.server_names import normal_form, skeleton


def admit(resolution: Resolution, trust: Trust, approved: Collection[str] = ()) -> Resolution:
    """Refuse every server that a session with this trust may not use, and every project server that is not approved.

    `approved` holds the digests of the approved entries. If two servers have the same name, the one from the more trusted
    source is kept. A project server that is not approved takes no name from another.
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
        alike = by_skeleton.setdefault(skeleton(server.name), server)
        # One file may contain both `test1` and `testl`: its author knows which is which.
        confused = taken if taken is not server else alike if alike.origin != server.origin else None
        if confused is not None:
            return (
                f"Its name looks like {confused.name!r}, a server in {confused.origin}. Rename one of them."
            )
        return wrong_trust

    return resolution.refuse_if(why_refused, stage=Stage.ADMIT)


def _not_for_sandboxed_sessions(server: ServerSpec) -> str:
    reason = "It is for direct sessions only and this one is sandboxed. To let sandboxed sessions use it, "
    if server.source is Source.PROJECT:  # the key has no effect in a project's file
        return f'{reason}copy it to your own servers file (the setting servers.user_file) and add "trust_level": "sandboxed".'
    return f'{reason}set "trust_level": "sandboxed" in {server.origin or "its entry"}.'
