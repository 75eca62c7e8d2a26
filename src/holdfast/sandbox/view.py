"""What a confined process sees of the machine, and which hosts it was refused. `connect` explains a server's failure with it."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.mounts import is_within

_MAX_REFUSED = 50
_OWN_FOLDERS = ("/run", "/proc", "/dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedHost:
    """A host that a confined process tried to reach, and was refused."""

    endpoint: str
    """The host and port."""
    reason: str = ""
    """Why a granted host is refused, and what to do; empty if it was not granted."""


class SandboxView:
    """The view of one confined process."""

    def __init__(self, visible: Sequence[str]) -> None:
        self._visible = (*_OWN_FOLDERS, *visible)
        self._mounts_in_tmp = tuple(path for path in visible if is_within(path, "/tmp"))
        self.refused_hosts: list[RefusedHost] = []
        """The hosts that the process was refused, each once, in the order of the attempts. At most 50 are kept."""

    def can_see(self, path: str) -> bool:
        """Whether this path is mounted in the sandbox, or lies in a folder that the sandbox fills itself: `/run`, `/proc`, `/dev`.

        The sandbox's own `/tmp` does not count: a file that the machine has in `/tmp` is visible only if it is mounted.
        """
        if is_within(path, "/tmp"):
            return any(is_within(path, mount) for mount in self._mounts_in_tmp)
        return any(is_within(path, folder) for folder in self._visible)

    def add_refused(self, host: RefusedHost) -> None:
        """Remember a host that the process was refused."""
        if host not in self.refused_hosts and len(self.refused_hosts) < _MAX_REFUSED:
            self.refused_hosts.append(host)


def without_default_port(endpoint: str) -> str:
    """The host and port as a grant names it: ports 80 and 443 are left out."""
    return endpoint.removesuffix(":443").removesuffix(":80")
