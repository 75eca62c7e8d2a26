"""Count the bytes that a client session takes in memory, so that they can be limited.

What counts: requests that wait for the client's answers, questions to the client, notifications that the client has not read,
events for resumption, and resources that the client watches. A request that is being read has a limit of its own.
"""

from holdfast.wire.http.limits import CallerQuota


class SessionMemory:
    """The bytes that one session takes. All sessions of a credential share one quota."""

    def __init__(self, quota: CallerQuota, credential_id: str) -> None:
        self.used = 0
        """How many bytes are counted."""
        self._quota = quota
        self._credential_id = credential_id
        self._is_closed = False

    def try_add(self, amount: int) -> bool:
        """Count these bytes, too. Return False, and count nothing, if the quota has no room for them."""
        if self._is_closed or not self._quota.try_acquire(self._credential_id, amount):
            return False
        self.used += amount
        return True

    def remove(self, amount: int) -> None:
        """Stop counting these bytes."""
        amount = min(amount, self.used)  # nothing is left after `close`
        self.used -= amount
        self._quota.release(self._credential_id, amount)

    def close(self) -> None:
        """Stop counting: the session has ended."""
        self.remove(self.used)
        self._is_closed = True
