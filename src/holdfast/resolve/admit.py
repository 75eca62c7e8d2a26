"""Stage three: who may be used at this trust, and what a person has approved."""

from collections.abc import Collection

from holdfast.model.resolution import Resolution, Stage
from holdfast.model.server import ServerSpec, Source
from holdfast.model.trust import Trust


def admit(resolution: Resolution, trust: Trust, approved: Collection[str] = ()) -> Resolution:
    """Refuse every server a session of this trust may not use, and every project server not approved as it stands.

    `approved` holds the digests of the entries that a person said yes to.
    """

    def objection(server: ServerSpec) -> str | None:
        if not server.admits(trust):
            return (
                "It is for direct sessions only and this one is sandboxed. "
                f'To let sandboxed sessions use it, set "trust_level": "sandboxed" in {server.origin or "its entry"}.'
            )
        if server.source is Source.PROJECT and server.digest not in approved:
            return "Nobody has approved it as it stands. Look at it and decide: holdfast servers approve"
        return None

    return resolution.sift(objection, stage=Stage.ADMIT)
