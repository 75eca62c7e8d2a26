"""Places within a session's folders that its file tools stay out of, however a path leads there."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.resolve.own import is_own


@dataclass(frozen=True, slots=True, kw_only=True)
class OffLimits:
    """Real paths and, of folders, what they are: a mount can show one under another name."""

    places: tuple[str, ...] = ()
    folders: frozenset[tuple[int, int]] = frozenset()

    def has(self, real: str, status: os.stat_result | None = None) -> bool:
        """Whether a real path is one of the places or in one, or what is there is one of the folders."""
        if status is not None and stat.S_ISDIR(status.st_mode) and _identity(status) in self.folders:
            return True
        return is_own(real, self.places)


NOTHING = OffLimits()


def off_limits(places: Sequence[str]) -> OffLimits:
    """These places, as they are now."""
    found = (_folder(place) for place in places)
    return OffLimits(
        places=tuple(places), folders=frozenset(identity for identity in found if identity is not None)
    )


def _folder(place: str) -> tuple[int, int] | None:
    try:
        status = Path(place).stat()
    except OSError:  # not there yet: its path is enough
        return None
    return _identity(status) if stat.S_ISDIR(status.st_mode) else None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
