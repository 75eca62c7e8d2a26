"""The masks of one session, and how much may be masked on the event loop."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import ON_LOOP_LIMIT, STORED_LIMIT, SizeLimit
from holdfast.model.worker_threads import WorkerThreads
from holdfast.wire.charged_threads import run_charged
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.strict_json import decode_json, exceeds_limit

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = WorkerThreads("mask", threads=4, per_owner=1)
_ESTIMATED_SECONDS = 0.001  # the least that masking in a thread takes


class SessionMasks:
    """The masks that a session uses now."""

    def __init__(self, throttle: LoopThrottle, stored: Mask, questions: Mask) -> None:
        """`throttle` is that of the session's quota owner."""
        self.throttle = throttle
        """Its owner is charged for what is masked in a thread."""
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
        """Mask something large in a thread. Each quota owner uses one thread at a time."""
        return await run_charged(
            _THREADS, lambda: work(*args, **kwargs), throttle=self.throttle, estimate=_ESTIMATED_SECONDS
        )

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
