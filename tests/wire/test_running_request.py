import asyncio
from typing import Any

from holdfast.wire.http.limits import DEFAULT_HTTP_LIMITS
from holdfast.wire.http.running_request import DisconnectWatch, RunningRequest, run_request


class Response:
    def __init__(self) -> None:
        self.is_ended = False

    async def send_keepalive(self) -> None: ...

    async def send_result(self, line: bytes, status: int = 200) -> None: ...

    async def end(self) -> None:
        self.is_ended = True


async def disconnected() -> dict[str, Any]:
    return {"type": "http.disconnect"}


async def answer_never(watch: DisconnectWatch) -> tuple[bool, bool]:
    """Run a request that gets no result until its client disconnects. Return whether it was cancelled, and whether its response ended."""
    response = Response()
    running = RunningRequest(response, disconnected, None, watch)
    await run_request(1, asyncio.get_running_loop().create_future(), response, running)
    return running.is_cancelled, response.is_ended


def test_a_disconnect_cancels_a_modern_request_in_every_event_loop_that_uses_the_application():
    watch = DisconnectWatch(DEFAULT_HTTP_LIMITS)

    assert [asyncio.run(answer_never(watch)) for _ in range(2)] == [(True, True)] * 2


def test_an_answered_request_is_not_watched():
    watch = DisconnectWatch(DEFAULT_HTTP_LIMITS)

    async def use() -> tuple[bool, tuple[bool, bool]]:
        answered = RunningRequest(Response(), disconnected, None, watch)
        answered.start(1)
        answered.stop(1)
        other = await asyncio.create_task(answer_never(watch))
        return answered.is_cancelled, other

    assert asyncio.run(use()) == (False, (True, True))
