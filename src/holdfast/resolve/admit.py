"""Stage three: refuse servers that this trust does not allow, and project servers that are not approved."""

from collections.abc import Collection

from holdfast.model.resolution import Resolution, Stage
from holdfast.model.server import ServerSpec, Source
from holdfast.model.trust import Trust


def admit(resolution: Resolution, trust: Trust, approved: Collection[str] = ()) -> Resolution:
    """Refuse every server that a session of this trust may not use, and every unapproved project server.

    `approved` holds the digests of the entries that a person approved.
    """

    def why_refused(server: ServerSpec) -> str | None:
        if not server.admits(trust):
            return (
                "It is for direct sessions only and this one is sandboxed. "
                f'To let sandboxed sessions use it, set "trust_level": "sandboxed" in {server.origin or "its entry"}.'
            )
        if server.source is Source.PROJECT and server.digest not in approved:
            return "It is not approved in its present form. To review it, run: holdfast servers approve"
        return None

    return resolution.refuse_if(why_refused, stage=Stage.ADMIT)
