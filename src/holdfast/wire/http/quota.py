"""A limit on the resources that callers hold at the same time, with a share for each caller."""

from collections import Counter


class CallerQuota:
    """Callers hold at most `total` together, and one caller holds at most `share`.

    The owner `""` stands for all callers of a server that cannot tell them apart. For it, only the total is a limit.
    """

    def __init__(self, *, total: int, share: int) -> None:
        self.total = total
        self.share = min(share, total)
        self.used = 0
        self._by_owner: Counter[str] = Counter()

    def would_exceed_share(self, owner: str, amount: int = 1) -> bool:
        """Whether this amount would exceed the share of this owner."""
        return bool(owner) and self._by_owner[owner] + amount > self.share

    def would_exceed_total(self, amount: int = 1) -> bool:
        """Whether this amount would exceed the total."""
        return self.used + amount > self.total

    def try_acquire(self, owner: str, amount: int = 1) -> bool:
        """Count an amount as held by this owner; False if that would exceed the share or the total."""
        if self.would_exceed_total(amount) or self.would_exceed_share(owner, amount):
            return False
        self.used += amount
        self._by_owner[owner] += amount
        return True

    def release(self, owner: str, amount: int = 1) -> None:
        """Count an amount as no longer held by this owner."""
        self.used -= amount
        self._by_owner[owner] -= amount
        if not self._by_owner[owner]:
            del self._by_owner[owner]
