"""Requests of modern clients that wait for input from their client, until the client sends the request again.

A server cannot send requests to a modern client. Instead, the result of the client's request says what is asked
(`input_required`), and the client sends the same request again with the answers. Then the work of the first request continues.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.connect.server_requests import OWN_KEY_PREFIX
from holdfast.gateway.client_call import ClientCall
from holdfast.gateway.session_memory import SessionMemory
from holdfast.gateway.signed_state import STATE_SECONDS
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.light_event import LightEvent
from holdfast.wire.mcp.server import BackChannel, ClientInfo
from holdfast.wire.messages import Raw
from holdfast.wire.task_turns import run_in_current_turns

MAX_PARKED_PER_SESSION = 64
_CAPABILITY_OF = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_ASKING_CAPABILITIES = frozenset(_CAPABILITY_OF.values())


@dataclass(frozen=True, slots=True)
class _Question:
    method: str
    params: Raw
    answer: asyncio.Future[Raw] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class ModernCall(ClientCall):
    """A request of a modern client. Questions to the client are collected, and sent in the result of the request."""

    def __init__(self, meta: JsonObject, client_info: ClientInfo, back_channel: BackChannel) -> None:
        super().__init__(meta, client_info, back_channel)
        self._questions: dict[str, _Question] = {}
        self._asked = 0
        self.changed = LightEvent()
        """Set when there is a new question, or when the work has ended."""

    @property
    def can_be_asked(self) -> bool:
        """Whether the client answers any questions. If not, its request never waits for an answer."""
        return not _ASKING_CAPABILITIES.isdisjoint(self.client_info.capabilities)

    async def ask(self, method: str, params: Raw, *, is_own: bool = True) -> Raw:
        """Ask the client, in the result of its request."""
        capability = _CAPABILITY_OF.get(method)
        if capability is None or capability not in self.client_info.capabilities:
            raise HoldfastError(codes.UNSUPPORTED_BY_CLIENT, f"The client does not support {method}.")
        self._asked += 1
        prefix = OWN_KEY_PREFIX if is_own else "server-"
        key, question = f"{prefix}{self._asked}", _Question(method, params)
        self._questions[key] = question
        self.changed.set()
        try:
            async with asyncio.timeout(STATE_SECONDS):
                return await question.answer
        except TimeoutError:
            raise HoldfastError(
                codes.TIMEOUT, f"The client did not answer {method} within {STATE_SECONDS:g} s."
            ) from None
        finally:
            del self._questions[key]

    @property
    def open_questions(self) -> dict[str, dict[str, Any]]:
        """The questions without an answer, as `inputRequests`."""
        return {
            key: {"method": question.method, "params": question.params}
            for key, question in self._questions.items()
            if not question.answer.done()
        }

    def continue_with(self, newest: ClientCall, answers: Mapping[str, Raw]) -> None:
        """Pass the client's answers to the questions. From now on, messages are sent on its newest request."""
        self.redirect_to(newest)
        for key, question in self._questions.items():
            if key in answers and not question.answer.done():
                question.answer.set_result(answers[key])


@dataclass(slots=True)
class _ParkedCall:
    call: ModernCall
    work: asyncio.Task[Any]
    expiry: asyncio.TimerHandle


class ParkedCalls:
    """The requests of one session that wait for their client."""

    def __init__(self, refuse: Callable[[HoldfastError], HoldfastError], memory: SessionMemory) -> None:
        """`memory` counts the bytes of the requests that wait."""
        self._refuse = refuse
        self._memory = memory
        self._parked: dict[str, _ParkedCall] = {}

    def __len__(self) -> int:
        return len(self._parked)

    async def run(self, call: ModernCall, work: Coroutine[Any, Any, Any]) -> Any:
        """Do the work. Return its result, or `Parked` if the client must answer a question first."""
        return await self._wait(call, asyncio.create_task(run_in_current_turns(work)))

    async def resume(self, parked_id: str, newest: ClientCall, answers: Mapping[str, Raw]) -> Any:
        """Continue with the answers of the client. Return as `run` does."""
        parked = self._parked.pop(parked_id, None)
        if parked is None:
            raise HoldfastError(
                codes.CALL_NOT_WAITING,
                "No request waits for this requestState. Send the request again without it.",
            )
        parked.expiry.cancel()
        self._memory.remove(parked.call.size)
        parked.call.continue_with(newest, answers)
        return await self._wait(parked.call, parked.work)

    def questions_of(self, parked_id: str) -> dict[str, dict[str, Any]]:
        """What a parked request asks."""
        return self._parked[parked_id].call.open_questions

    def close(self) -> None:
        """Cancel the requests that wait."""
        for parked in self._parked.values():
            parked.expiry.cancel()
            self._memory.remove(parked.call.size)
            _drop(parked.work)
        self._parked.clear()

    async def _wait(self, call: ModernCall, work: asyncio.Task[Any]) -> Any:
        """Wait until the work has ended, or asks the client. Return the result, or `Parked`."""
        changed = call.changed
        changed.clear()
        work.add_done_callback(lambda _: changed.set())
        try:
            while not work.done() and not call.open_questions:
                await changed.wait()
                changed.clear()
                if not work.done():
                    await asyncio.sleep(0)  # questions that are asked together are sent together
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait([work])
            raise
        return work.result() if work.done() else Parked(self._park(call, work))

    def _park(self, call: ModernCall, work: asyncio.Task[Any]) -> str:
        """Keep a request until its client answers, or `STATE_SECONDS` have passed. Return its id."""
        if len(self._parked) >= MAX_PARKED_PER_SESSION:
            _drop(work)
            text = f"{MAX_PARKED_PER_SESSION} requests of this session already wait for answers. Answer one of them first."
            raise self._refuse(HoldfastError(codes.BUSY, text))
        if not self._memory.try_add(call.size):
            _drop(work)
            text = "The memory for requests that wait for answers is used up. Answer one of them, or send fewer at once."
            raise self._refuse(HoldfastError(codes.BUSY, text))
        parked_id = secrets.token_hex(8)
        expiry = asyncio.get_running_loop().call_later(STATE_SECONDS, self._expire, parked_id)
        self._parked[parked_id] = _ParkedCall(call, work, expiry)
        return parked_id

    def _expire(self, parked_id: str) -> None:
        parked = self._parked.pop(parked_id, None)
        if parked is not None:
            self._memory.remove(parked.call.size)
            _drop(parked.work)


@dataclass(frozen=True, slots=True)
class Parked:
    """A request that waits until its client has answered. `id` is random."""

    id: str


def _drop(work: asyncio.Task[Any]) -> None:
    """Cancel work that no client waits for. Its result or error is lost."""
    work.cancel()
    work.add_done_callback(lambda task: None if task.cancelled() else task.exception())
