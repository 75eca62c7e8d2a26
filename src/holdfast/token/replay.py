"""Refuse tokens that were used before."""

import heapq
import threading
import time

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.token.claims import Claims

REPLAY_MARGIN = 60
"""For how many seconds an expired token is remembered: longer than the leeway of any verifier."""


class ReplayCache:
    """Remembers each used token until no verifier would accept it. A full cache refuses new tokens.

    It knows only the tokens of its own process. A server with several processes checks replays in one process
    in front of them.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._tokens: set[str] = set()
        self._by_expiry: list[tuple[int, str]] = []
        self._forgotten_up_to = 0.0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._tokens)

    def check(self, claims: Claims, now: float | None = None) -> None:
        """Record a verified token as used; raises TOKEN_REPLAYED if it was used before, and BUSY if the cache is full."""
        token, until = f"{claims.issuer}\0{claims.token_id}", claims.expires_at + REPLAY_MARGIN
        with self._lock:
            self._forget(time.time() if now is None else now)
            if token in self._tokens:
                raise HoldfastError(codes.TOKEN_REPLAYED, "This token was used before.")
            # Only after the clock was set back: the token may have been used and forgotten.
            if until <= self._forgotten_up_to:
                raise HoldfastError(
                    codes.TOKEN_REPLAYED, "This token is too old to know whether it was used before."
                )
            if len(self._tokens) >= self._capacity:
                raise HoldfastError(
                    codes.BUSY, f"{self._capacity} tokens were used in the last minutes. Wait a minute."
                )
            self._tokens.add(token)
            heapq.heappush(self._by_expiry, (until, token))

    def _forget(self, now: float) -> None:
        self._forgotten_up_to = max(self._forgotten_up_to, now)
        while self._by_expiry and self._by_expiry[0][0] <= self._forgotten_up_to:
            self._tokens.discard(heapq.heappop(self._by_expiry)[1])
