"""End the sessions of credentials that were revoked or have expired, even if their clients send no requests."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from holdfast.gateway.credential import Credential

CHECK_SECONDS = 1.0


class CredentialWatch:
    """Checks the credentials of all open sessions once a second."""

    def __init__(
        self,
        credentials: Callable[[], Iterable[Credential]],
        why_invalid: Callable[[Credential], str],
        end_sessions: Callable[[str, str], Awaitable[None]],
        *,
        seconds: float = CHECK_SECONDS,
    ) -> None:
        self._credentials = credentials
        self._why_invalid = why_invalid
        self._end_sessions = end_sessions
        self._seconds = seconds

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(self._seconds)

    async def check(self) -> None:
        """End the sessions of every credential that is not valid any more."""
        ended = {
            credential.id: reason
            for credential in self._credentials()
            if (reason := self._why_invalid(credential))
        }
        for credential_id, reason in sorted(ended.items()):
            await self._end_sessions(credential_id, reason)
