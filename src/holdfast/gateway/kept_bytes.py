"""Count the bytes that a client session keeps in memory after a request was read.

Everything that is kept for a client counts: requests that wait for its answers, questions to it, notifications that it has not
read, events for resumption, and resources that it watches.
"""

from holdfast.wire.http.limits import CallerQuota


class KeptBytes:
    """The bytes that one session keeps. All sessions of a credential share one quota."""

    def __init__(self, quota: CallerQuota, credential_id: str) -> None:
        self.used = 0
        self._quota = quota
        self._credential_id = credential_id
        self._is_closed = False

    def try_add(self, amount: int) -> bool:
        """Count bytes as kept. Return False if there is no room for them."""
        if self._is_closed or not self._quota.try_acquire(self._credential_id, amount):
            return False
        self.used += amount
        return True

    def remove(self, amount: int) -> None:
        """Count bytes as no longer kept."""
        amount = min(amount, self.used)  # nothing is left after `close`
        self.used -= amount
        self._quota.release(self._credential_id, amount)

    def close(self) -> None:
        """Count nothing as kept: the session has ended."""
        self.remove(self.used)
        self._is_closed = True
