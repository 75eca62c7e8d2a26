"""The grant of a project's server that was approved as confined: what it may use."""

from dataclasses import dataclass, replace

import msgspec

from holdfast.model.server import PackageGrant, ServerSpec, Stdio
from holdfast.model.trust import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfinedGrant:
    """What a confined server may use, besides the session's folders and what its entry lists.

    The user sees the whole grant before approving it, and it is stored with the approval.
    """

    program_paths: tuple[str, ...] = ()
    """The paths outside of the session's folders that the server's program consists of. The server may read them."""
    readable: tuple[str, ...] = ()
    """Further paths that the server may read: `holdfast servers approve --readable`."""
    network: tuple[str, ...] = ()
    """Further hosts that the server may reach: `holdfast servers approve --network`."""
    writable: tuple[str, ...] = ()
    """Guarded names in its folder that the server may change: `holdfast servers approve --writable`."""
    package: PackageGrant | None = None
    """The package that the server's package runner (`npx`, `uvx`) starts, as it was fetched for the approval."""

    def encode(self) -> str:
        """The grant as text, for the store."""
        return msgspec.json.encode(self).decode()

    def apply_to(self, server: ServerSpec) -> ServerSpec:
        """The server as approved: confined in every session, with the paths and hosts of the grant."""
        transport = server.transport
        if isinstance(transport, Stdio):
            transport = replace(
                transport,
                readable=(*transport.readable, *self.readable),
                network=(*transport.network, *self.network),
                writable=(*transport.writable, *self.writable),
            )
        return replace(
            server,
            transport=transport,
            always_confined=True,
            min_trust=Trust.SANDBOXED,
            granted_paths=self.program_paths,
            package=self.package,
            grant=self.encode(),
        )


def decode_grant(text: str) -> ConfinedGrant:
    """The grant that `ConfinedGrant.encode` wrote. If the text cannot be read, a grant of nothing."""
    try:
        return msgspec.json.decode(text, type=ConfinedGrant)
    except msgspec.DecodeError:
        return ConfinedGrant()
