"""Calls that ask their client in the modern era: the call waits while its client fetches the answers.

A modern client gets no requests. Instead, the call's result says which input it needs (`input_required`), and the client
sends the same request again with the answers. The handler is not started again: it waits here, in a task of its own.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.toolkit.authentication import CallerIdentity
from holdfast.toolkit.client_requests import ANSWER_SECONDS, ClientRequests
from holdfast.wire.mcp.server import McpRequest
from holdfast.wire.messages import Raw
from holdfast.wire.strict_json import DECODE_ERRORS

MAX_WAITING = 1024  # calls, of all callers together
MAX_WAITING_PER_CALLER = 64  # only if the server can tell its callers apart
MAX_WAITING_BYTES = 64 * 1024 * 1024  # the size of the params of all calls that wait
MAX_WAITING_BYTES_PER_CALLER = 8 * 1024 * 1024
_KEPT_SECONDS = ANSWER_SECONDS + 60.0  # after this time without a request of its client, a call is cancelled
_STATE_BYTES = 24  # random bytes, so that no client can guess the `requestState` of another one

Answers: TypeAlias = Mapping[str, Raw]
"""The client's answers, by the keys of the questions."""


class Target(msgspec.Struct, frozen=True):
    """What a request asks for, and who asks. A request with answers must have the same target as the request that it repeats."""

    caller: CallerIdentity
    method: str
    name: str
    arguments: Raw

    def is_same(self, other: "Target") -> bool:
        """Whether the targets are equal. A client may encode the same arguments differently."""
        return (self.caller, self.method, self.name) == (other.caller, other.method, other.name) and (
            bytes(self.arguments) == bytes(other.arguments)
            or _decode(self.arguments) == _decode(other.arguments)
        )


class _Question(msgspec.Struct, frozen=True):
    method: str
    params: JsonObject
    answer: asyncio.Future[Raw]


class RoundTrips(ClientRequests):
    """The requests of one call, collected until the client fetches them."""

    can_send = True

    def __init__(self, request: McpRequest, answers: Answers) -> None:
        super().__init__(request.client.capabilities)
        self.newest: McpRequest | None = request
        """The newest request of the client; None while the call waits for one."""
        self.size = len(request.params)
        """The size of the request's params, which are kept in memory while the call waits."""
        self._early_answers = dict(answers)
        """Answers that came with the first request, before the handler asked."""
        self.questions: dict[str, _Question] = {}
        """The questions that the handler waits for, by key."""
        self.on_ask: Callable[[], None] = _do_nothing
        """Called when there is a new question."""

    def progress_token(self, meta: JsonObject) -> Any:
        return None if self.newest is None else self.newest.meta.get("progressToken")

    async def notify(self, method: str, params: Any) -> None:
        """Notify the client, unless the call waits for its next request."""
        if self.newest is not None:
            await self.newest.notify(method, params)

    async def _send(self, method: str, params: JsonObject, key: str) -> Raw:
        if key in self._early_answers:
            return self._early_answers.pop(key)
        if key in self.questions:
            raise HoldfastError(
                codes.BAD_TOOL, f"The call already waits for an answer with the key {key[:80]!r}."
            )
        params = {name: params[name] for name in params if name != "elicitationId"}  # not in the modern era
        question = _Question(method, params, asyncio.get_running_loop().create_future())
        self.questions[key] = question
        self.on_ask()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await question.answer
        except TimeoutError:
            raise HoldfastError(
                codes.TIMEOUT, f"The client did not answer {method} within {ANSWER_SECONDS:g} s."
            ) from None
        finally:
            del self.questions[key]

    def deliver(self, request: McpRequest, answers: Answers) -> bool:
        """Pass answers to the questions; False if a question is still without one. Other answers are ignored."""
        self.newest = request
        is_complete = True
        for key, question in self.questions.items():
            if question.answer.done():
                continue
            if key in answers:
                question.answer.set_result(answers[key])
            else:
                is_complete = False
        return is_complete

    def describe_questions(self) -> JsonObject:
        """The questions without an answer, as `inputRequests`."""
        return {
            key: {"method": question.method, "params": question.params}
            for key, question in self.questions.items()
            if not question.answer.done()
        }


class _WaitingCall(msgspec.Struct, eq=False):
    target: Target
    task: asyncio.Task[Any]
    trips: RoundTrips
    expiry: asyncio.TimerHandle | None = None


class WaitingCalls:
    """The calls of one server that wait for their clients, by the `requestState` that the client must send back."""

    def __init__(self) -> None:
        self._calls: dict[str, _WaitingCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    async def run(self, target: Target, trips: RoundTrips, work: Coroutine[Any, Any, Any]) -> Any:
        """Start a call, and return its result or the input that it needs."""
        return await self._wait(_WaitingCall(target, asyncio.ensure_future(work), trips))

    async def resume(self, state: str, target: Target, request: McpRequest, answers: Answers) -> Any:
        """Continue a call with the answers of its client, and return its result or the input that it needs next."""
        call = self._calls.get(state)
        if call is None or not call.target.is_same(target):
            raise HoldfastError(
                codes.CALL_NOT_WAITING, f"No call of {target.name[:80]!r} waits for this requestState."
            )
        self._remove(state)
        if call.trips.deliver(request, answers) or call.task.done():
            return await self._wait(call)
        return self._keep(call)  # the handler still waits for other answers

    async def close(self) -> None:
        """Cancel the calls that wait."""
        calls = list(self._calls.items())
        for state, call in calls:
            self._remove(state)
            _drop(call)
        if calls:
            await asyncio.wait([call.task for _, call in calls], timeout=1.0)

    async def _wait(self, call: _WaitingCall) -> Any:
        """Wait until the call has a result or a question."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_change(_: object = None) -> None:
            if not changed.done():
                changed.set_result(None)

        call.trips.on_ask = on_change
        call.task.add_done_callback(on_change)
        try:
            await changed
            if not call.task.done():
                await asyncio.sleep(0)  # questions that are asked together are sent together
        except asyncio.CancelledError:
            call.task.cancel()
            await asyncio.wait([call.task])
            raise
        finally:
            call.trips.on_ask = _do_nothing
            call.task.remove_done_callback(on_change)
        return call.task.result() if call.task.done() else self._keep(call)

    def _keep(self, call: _WaitingCall) -> JsonObject:
        """Keep a call until its client sends the answers. If there are too many, cancel it."""
        caller = call.target.caller
        own = [other.trips.size for other in self._calls.values() if other.target.caller == caller]
        size = sum(other.trips.size for other in self._calls.values()) + call.trips.size
        is_known = caller.session is not None or caller.connection  # else several callers may look the same
        is_over_share = len(own) >= MAX_WAITING_PER_CALLER or (
            sum(own) + call.trips.size > MAX_WAITING_BYTES_PER_CALLER
        )
        if len(self._calls) >= MAX_WAITING or size > MAX_WAITING_BYTES or (is_known and is_over_share):
            _drop(call)
            raise HoldfastError(codes.BUSY, "Too many calls already wait for their clients to answer.")
        call.trips.newest = None
        state = secrets.token_urlsafe(_STATE_BYTES)
        self._calls[state] = call
        call.expiry = asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._expire, state)
        return {
            "resultType": "input_required",
            "inputRequests": call.trips.describe_questions(),
            "requestState": state,
        }

    def _remove(self, state: str) -> None:
        call = self._calls.pop(state)
        if call.expiry is not None:
            call.expiry.cancel()

    def _expire(self, state: str) -> None:
        call = self._calls.pop(state, None)
        if call is not None:
            _drop(call)


def _drop(call: _WaitingCall) -> None:
    """Cancel a call. If it ends with an error, the error is not logged."""
    call.task.cancel()
    call.task.add_done_callback(lambda task: None if task.cancelled() else task.exception())


class _AnswerParams(msgspec.Struct):
    input_responses: dict[str, Raw] | None = msgspec.field(default=None, name="inputResponses")
    request_state: str | None = msgspec.field(default=None, name="requestState")


def read_answers(request: McpRequest) -> tuple[Answers, str]:
    """The answers in the params of a request, by key, and the state of the call that they are for.

    An answer that is not an object counts as missing, so that the client is asked again.
    """
    raw = bytes(request.params)
    if b"inputResponses" not in raw and b"requestState" not in raw:
        return {}, ""
    params = request.decode_params(_AnswerParams)
    given = params.input_responses or {}
    return {key: given[key] for key in given if bytes(given[key])[:1] == b"{"}, params.request_state or ""


def _decode(arguments: Raw) -> object:
    try:
        return msgspec.json.decode(arguments)
    except DECODE_ERRORS:
        return None


def _do_nothing() -> None:
    pass
