"""How long to wait before a server that keeps failing is started again."""

import time
from collections.abc import Callable
from dataclasses import dataclass

_RECOVERY_FACTOR = 10  # a server has recovered only if it ran longer than this many times `BackOff.first`


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """The delays before a failed server is started again: none after the first failure, then `first` seconds, doubled up to `longest`."""

    first: float = 0.5
    longest: float = 30.0
    clock: Callable[[], float] = time.monotonic
    """Tests can replace the clock."""

    def delay(self, failures: int) -> float:
        """The delay after this many failures in a row."""
        if failures < 2:
            return 0.0
        return min(self.longest, self.first * 2.0 ** min(failures - 2, 64))

    def has_recovered(self, uptime: float, failures: int) -> bool:
        """Whether a server ran long enough after these failures in a row that its next failure counts as the first."""
        return uptime > max(self.delay(failures), _RECOVERY_FACTOR * self.first)


NO_BACK_OFF = BackOff(first=0.0, longest=0.0)
"""No delays, for tests."""
