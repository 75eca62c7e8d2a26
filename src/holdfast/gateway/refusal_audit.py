"""Record refused requests in the audit, so that a flood of them neither fills the disk nor hides the refusals of other senders.

Refusals of one sender with the same code are counted. Once a second, they are written as one record with their number and the reason
of the first one. Different reasons make no records of their own, because a reason may contain text that the sender chose, such as a
host name. Only requests without a valid credential get a record for each reason.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.gateway.credential import Credential, NotAuthenticatedError
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError

log = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0
# How many keys are counted in a second. Senders with a token have a limit of their own, so that a flood of requests without a token
# does not hide their refusals.
_MAX_KEYS = 64
_MAX_KEYS_WITH_TOKEN = 1024
_MAX_REASON = 200  # characters
_OTHERS = "other senders"
_TOKEN = "token "

Key = tuple[Code, str, str]
"""The code, the sender and, for a request without a valid credential, the reason."""


@dataclass(slots=True)
class _Count:
    reason: str
    """The reason of the first refusal."""
    number: int = 0
    has_other_reasons: bool = False


class RefusalAudit:
    """Counts refused requests, and writes them with `write`: the code, and a sentence for the audit."""

    def __init__(self, write: Callable[[Code, str], Awaitable[None]]) -> None:
        self._write = write
        self._counts: dict[Key, _Count] = {}
        self._with_token = 0
        """How many of the counts are of senders with a token."""
        self._wake = asyncio.Event()

    def add(self, error: HoldfastError, credential: Credential | None) -> None:
        """Count one refusal. Does not wait."""
        sender, reason = _describe(error, credential)
        has_token = sender.startswith(_TOKEN)
        key = error.code, sender, reason if isinstance(error, NotAuthenticatedError) else ""
        if key not in self._counts and self._is_full(has_token=has_token):
            key, reason = (error.code, _OTHERS, ""), _OTHERS
        elif key not in self._counts and has_token:
            self._with_token += 1
        count = self._counts.setdefault(key, _Count(reason))
        count.number += 1
        count.has_other_reasons |= reason != count.reason
        self._wake.set()

    def _is_full(self, *, has_token: bool) -> bool:
        if has_token:
            return self._with_token >= _MAX_KEYS_WITH_TOKEN
        return len(self._counts) - self._with_token >= _MAX_KEYS

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
        counts, self._counts, self._with_token = self._counts, {}, 0
        self._wake.clear()
        for (code, sender, _), count in counts.items():
            text = f"MCP client ({sender}): {count.reason}" if sender not in ("", _OTHERS) else count.reason
            if count.number > 1:
                others = ", also for other reasons" if count.has_other_reasons else ""
                text += f" ({count.number} times{others})"
            try:
                await self._write(code, text)
            except HoldfastError as error:
                # Log only why the store failed: the refusal itself may contain text from the client.
                log.error("a refusal was not recorded", extra={"code": code.name, "reason": error.message})


def _describe(error: HoldfastError, credential: Credential | None) -> tuple[str, str]:
    """Who was refused, and why. The texts never contain a token."""
    token_id, address, reason = "", "", error.message
    if isinstance(error, NotAuthenticatedError):
        token_id, address, reason = error.credential_id, error.client_address, error.reason
    token_id = credential.id if credential is not None else token_id
    sender = [*([f"{_TOKEN}{token_id}"] if token_id else []), *([f"address {address}"] if address else [])]
    return ", ".join(sender), reason[:_MAX_REASON]
