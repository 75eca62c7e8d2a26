"""What a confined process sees of the machine, and which hosts it was refused. Used to explain why it fails."""

from collections.abc import Sequence

from holdfast.model.mounts import is_within

_MAX_REFUSED = 50
_PRIVATE_FOLDERS = ("/tmp", "/run", "/proc", "/dev")


class SandboxView:
    """The view of one confined process."""

    def __init__(self, visible: Sequence[str]) -> None:
        self._visible = (*_PRIVATE_FOLDERS, *visible)
        self._outer_of_private = tuple(path for path in visible if is_within(path, "/tmp"))
        self.refused_hosts: list[str] = []
        """The hosts and ports that it was refused, each once, in order. No more than 50 are kept."""

    def can_see(self, path: str) -> bool:
        """Whether this path of the machine is visible. Its own `/tmp` is not the machine's."""
        if is_within(path, "/tmp"):
            return any(is_within(path, outer) for outer in self._outer_of_private)
        return any(is_within(path, folder) for folder in self._visible)

    def add_refused(self, endpoint: str) -> None:
        """Remember a host that it was refused."""
        if endpoint not in self.refused_hosts and len(self.refused_hosts) < _MAX_REFUSED:
            self.refused_hosts.append(endpoint)
