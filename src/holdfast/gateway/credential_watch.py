"""End the sessions of credentials that were revoked or have expired, even if their clients send no requests."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from holdfast.gateway.credential import Credential

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0


class CredentialWatch:
    """Checks the credentials of all open sessions once a second, and ends the sessions of those that are no longer valid."""

    def __init__(
        self,
        credentials: Callable[[], Iterable[Credential]],
        why_invalid: Callable[[Credential], str],
        end_sessions: Callable[[str, str], Awaitable[None]],
        *,
        seconds: float = CHECK_SECONDS,
    ) -> None:
        """`credentials` returns those of the open sessions, and `why_invalid` why one is no longer valid (empty if it is valid).

        `end_sessions` gets the id of a credential, and the reason.
        """
        self._credentials = credentials
        self._why_invalid = why_invalid
        self._end_sessions = end_sessions
        self._seconds = seconds
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            self.end_invalid()
            await asyncio.sleep(self._seconds)

    def end_invalid(self) -> None:
        """Start to end the sessions of each credential that is no longer valid.

        Each credential has a task of its own, so that a server that ends slowly does not delay the others.
        """
        ended = {
            credential.id: reason
            for credential in self._credentials()
            if (reason := self._why_invalid(credential))
        }
        for credential_id, reason in sorted(ended.items()):
            task = asyncio.create_task(self._end(credential_id, reason))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end(self, credential_id: str, reason: str) -> None:
        try:
            await self._end_sessions(credential_id, reason)
        except Exception:
            log.exception("the sessions of a credential did not end", extra={"credential": credential_id})
