"""The masks of one session, and how much may be masked on the event loop."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import ON_LOOP_LIMIT, STORED_LIMIT, SizeLimit
from holdfast.model.worker_threads import WorkerThreads
from holdfast.wire.strict_json import decode_json, exceeds_limit

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = WorkerThreads("mask", threads=4, per_owner=1)


class SessionMasks:
    """The masks that a session uses now."""

    def __init__(self, session_id: str, stored: Mask, questions: Mask) -> None:
        self._session_id = session_id
        self.stored = stored
        """Masks secrets in everything that is stored."""
        self.questions = questions
        """Masks secrets in the arguments that a question shows. It has no secrets from a server, a project or a client, whose
        author could hide ordinary words from the user in this way."""

    @property
    def loop_limit(self) -> SizeLimit:
        """How much may be masked on the event loop: the more secrets the mask has, the less."""
        divisor = 1 + self.stored.size // 100
        if divisor == 1:
            return ON_LOOP_LIMIT
        return SizeLimit(bytes=ON_LOOP_LIMIT.bytes // divisor, values=max(1, ON_LOOP_LIMIT.values // divisor))

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Mask something large in a thread. Each session uses one thread at a time."""
        return await _THREADS.run(lambda: work(*args, **kwargs), owner=self._session_id)

    async def mask_for_question(self, arguments: bytes) -> bytes:
        """The arguments of a call as a question shows them. Raise TOO_LARGE if they are too large to be shown."""
        if exceeds_limit(arguments, STORED_LIMIT):
            raise HoldfastError(codes.TOO_LARGE, f"The arguments have {len(arguments)} bytes.")
        if exceeds_limit(arguments, self.loop_limit):
            return await self.run_in_thread(_mask_arguments, arguments, self.questions)
        return _mask_arguments(arguments, self.questions)


def _mask_arguments(arguments: bytes, mask: Mask) -> bytes:
    value = decode_json(arguments)
    return msgspec.json.encode(mask.mask_known_in_json(value))
