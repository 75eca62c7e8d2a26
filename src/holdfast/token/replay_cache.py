"""Remembers used tokens, so that a token cannot be used twice."""

import heapq
import threading
import time
from collections import Counter

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.token.claims import Claims

EXPIRY_MARGIN = 60
"""For how many seconds after its expiry a token is remembered, and its key is kept. Longer than the leeway of any verifier."""


class ReplayCache:
    """Remembers each used token until no verifier would accept it. A full cache refuses new tokens.

    One session can fill only its share. The cache knows only the tokens of its own process, so a server with several
    processes must check for replays in one process in front of them.
    """

    def __init__(
        self, capacity: int = 200_000, *, per_session: int = 100_000, since: float | None = None
    ) -> None:
        """`since` is when this server started: older tokens are refused, because an earlier process may have accepted them."""
        self._since = 0 if since is None else int(since)  # the times in tokens are whole seconds
        self._capacity = capacity
        self._per_session = per_session
        self._tokens: set[str] = set()
        self._by_expiry: list[tuple[int, str, str]] = []
        """A heap: until when a token is remembered, the token, and its session."""
        self._by_session: Counter[str] = Counter()
        self._forgotten_up_to = 0.0  # all tokens that had to be remembered until this time are forgotten
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._tokens)

    def check(self, claims: Claims, now: float | None = None) -> None:
        """Record a verified token as used. Raise TOKEN_REPLAYED if it was used before, and BUSY if the cache is full."""
        token, until = f"{claims.issuer}\0{claims.token_id}", claims.expires_at + EXPIRY_MARGIN
        session_id = claims.context.session_id
        with self._lock:
            self._forget_expired(time.time() if now is None else now)
            if token in self._tokens:
                raise HoldfastError(codes.TOKEN_REPLAYED, "This token was used before.")
            if claims.issued_at < self._since:
                raise HoldfastError(
                    codes.TOKEN_REPLAYED,
                    "This token was signed before this server was started, so it may have been used before.",
                )
            # Only if the clock was set back can a valid token be this old. It may have been used and forgotten.
            if until <= self._forgotten_up_to:
                raise HoldfastError(
                    codes.TOKEN_REPLAYED,
                    "This token is so old that the server no longer knows whether it was used.",
                )
            if self._by_session[session_id] >= self._per_session:
                raise HoldfastError(
                    codes.BUSY,
                    f"This session used {self._per_session} tokens in the last minutes. Wait two minutes.",
                )
            if len(self._tokens) >= self._capacity:
                raise HoldfastError(
                    codes.BUSY, f"{self._capacity} tokens were used in the last minutes. Wait two minutes."
                )
            self._tokens.add(token)
            self._by_session[session_id] += 1
            heapq.heappush(self._by_expiry, (until, token, session_id))

    def _forget_expired(self, now: float) -> None:
        self._forgotten_up_to = max(self._forgotten_up_to, now)
        while self._by_expiry and self._by_expiry[0][0] <= self._forgotten_up_to:
            _, token, session_id = heapq.heappop(self._by_expiry)
            self._tokens.discard(token)
            self._by_session[session_id] -= 1
            if not self._by_session[session_id]:
                del self._by_session[session_id]
