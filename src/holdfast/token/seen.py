"""The tokens that were used for a change already."""

import heapq
import threading
import time

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.token.claims import Claims

MARGIN = 60
"""Seconds that a token is remembered after it expired: no verifier's leeway is longer."""


class Seen:
    """Remembers each token until nobody would accept it any more; when it cannot, it refuses.

    It knows what one process was sent. Servers of several processes put one `Seen` before them all.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._tokens: set[str] = set()
        self._by_expiry: list[tuple[int, str]] = []
        self._forgotten_until = 0.0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._tokens)

    def once(self, claims: Claims, now: float | None = None) -> None:
        """Let a verified token pass the first time; raise the next."""
        token, until = f"{claims.issuer}\0{claims.token_id}", claims.expires_at + MARGIN
        with self._lock:
            self._forget(time.time() if now is None else now)
            if token in self._tokens:
                raise HoldfastError(codes.TOKEN_REPLAYED, "This token was used before.")
            if until <= self._forgotten_until:  # the clock went back: it may have been used and forgotten
                raise HoldfastError(
                    codes.TOKEN_REPLAYED, "This token is too old to tell whether it was used before."
                )
            if len(self._tokens) >= self._capacity:
                raise HoldfastError(codes.BUSY, f"{self._capacity} tokens are in use already; wait a minute.")
            self._tokens.add(token)
            heapq.heappush(self._by_expiry, (until, token))

    def _forget(self, now: float) -> None:
        self._forgotten_until = max(self._forgotten_until, now)
        while self._by_expiry and self._by_expiry[0][0] <= self._forgotten_until:
            self._tokens.discard(heapq.heappop(self._by_expiry)[1])
