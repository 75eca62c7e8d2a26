"""Stage three: refuse servers that the session's trust does not allow, and project servers that are not approved."""

from collections.abc import Collection

from holdfast.model.resolution import Resolution, Stage
from holdfast.model.server import ServerSpec, Source
from holdfast.model.trust import Trust


def admit(resolution: Resolution, trust: Trust, approved: Collection[str] = ()) -> Resolution:
    """Refuse every server that a session with this trust may not use, and every project server that is not approved.

    `approved` holds the digests of the approved entries.
    """

    def why_refused(server: ServerSpec) -> str | None:
        if not server.may_be_used_by(trust):
            return (
                "It is for direct sessions only and this one is sandboxed. "
                f'To let sandboxed sessions use it, set "trust_level": "sandboxed" in {server.origin or "its entry"}.'
            )
        if server.source is Source.PROJECT and server.digest not in approved:
            return "It is not approved as it is now. To review it, run: holdfast servers approve"
        return None

    return resolution.refuse_if(why_refused, stage=Stage.ADMIT)
