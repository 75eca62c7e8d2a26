"""Record refused requests in the audit, without letting a flood of them fill the disk.

Refusals with the same code, sender and reason are counted. Once a second, they are written as one record with their number.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.gateway.credential import Credential, NotAuthenticatedError
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError

log = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0
_MAX_KINDS = 64
_MAX_REASON = 200
_OTHERS = "other senders and reasons"

Key = tuple[Code, str]


class RefusalAudit:
    """Counts refused requests, and writes them with `write`: the code, and a sentence for the audit."""

    def __init__(self, write: Callable[[Code, str], Awaitable[None]]) -> None:
        self._write = write
        self._counts: dict[Key, int] = {}
        self._wake = asyncio.Event()

    def add(self, error: HoldfastError, credential: Credential | None) -> None:
        """Count one refusal. Does not wait."""
        key = error.code, _describe(error, credential)
        if key not in self._counts and len(self._counts) >= _MAX_KINDS:
            key = error.code, _OTHERS
        self._counts[key] = self._counts.get(key, 0) + 1
        self._wake.set()

    async def run(self) -> None:
        """Write what was counted, at most once a second, until cancelled; then write the rest."""
        try:
            while True:
                await self._wake.wait()
                await self.flush()
                await asyncio.sleep(FLUSH_SECONDS)
        finally:
            await self.flush()

    async def flush(self) -> None:
        """Write what was counted."""
        counts, self._counts = self._counts, {}
        self._wake.clear()
        for (code, reason), count in counts.items():
            text = reason if count == 1 else f"{reason} ({count} times)"
            try:
                await self._write(code, text)
            except HoldfastError as error:
                # Log only why the store failed: the refusal itself may contain text from the client.
                log.error("a refusal was not recorded", extra={"code": code.name, "reason": error.message})


def _describe(error: HoldfastError, credential: Credential | None) -> str:
    """Who was refused, and why. The text never contains a token."""
    token_id, peer, reason = "", "", error.message
    if isinstance(error, NotAuthenticatedError):
        token_id, peer, reason = error.credential_id, error.peer, error.reason
    token_id = credential.id if credential is not None else token_id
    sender = [*([f"token {token_id}"] if token_id else []), *([f"address {peer}"] if peer else [])]
    return f"MCP client ({', '.join(sender)}): {reason[:_MAX_REASON]}" if sender else reason[:_MAX_REASON]
