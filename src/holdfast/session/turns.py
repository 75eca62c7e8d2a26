"""A session's turns: each is one prompt, or messages of other sessions, and the agent's answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

import msgspec

from holdfast.agent.agent import Agent
from holdfast.connect.scope import Scope, enter_scope
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Origin, Prompted, Replied, StopReason, Titled, TurnEnded
from holdfast.model.ids import new_message_id, new_turn_id
from holdfast.model.json import JsonObject
from holdfast.model.limits import STORED_LIMIT
from holdfast.session.doors import AttachedDoor
from holdfast.session.mailbox import Mailbox, message_blocks
from holdfast.session.record import Record
from holdfast.session.run_to_completion import run_to_completion, wait_done
from holdfast.session.session_spans import SessionSpans, add_turn_attributes
from holdfast.session.session_title import make_title
from holdfast.session.turn_context import SessionTurnContext
from holdfast.wire.strict_json import has_more_values

log = logging.getLogger(__name__)

BeforeTurn = Callable[[], Awaitable[None]]
"""Runs at the beginning of a turn, before the agent."""
MAX_WAITING_PROMPTS = 16
"""How many prompts of one sender may wait."""
MAX_WAITING_IN_ALL = 64  # prompts of all senders together
_current: ContextVar["Turns | None"] = ContextVar("holdfast_turns", default=None)
INTERNAL_ERROR_REPLY = (
    "An unexpected error ended this turn; Holdfast's log has the traceback. You can continue this session."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How a turn ended, and the number of its last event."""

    reason: StopReason
    last_seq: int
    """0 if the end of the turn could not be stored."""
    code: str = ""
    """Why the turn failed, such as `NO_MODEL`; empty if it did not fail."""
    message: str = ""
    """What happened and what to do, if the turn failed."""
    text: str = field(default="", repr=False)
    """The agent's last message. A very long one is cut off; the events have all of it."""

    @property
    def ok(self) -> bool:
        """Whether the turn ended without an error."""
        return not self.code

    def raise_for_error(self) -> Self:
        """The result itself if the turn did not fail. Otherwise raise an error with its code and message."""
        if self.ok:
            return self
        raise HoldfastError(self.code, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt for a session."""

    blocks: Sequence[JsonObject]
    message_id: str
    before: BeforeTurn | None = None
    is_cancelled: bool = False
    """Whether the user has cancelled the prompt already. If so, it is stored but not answered."""
    is_from_inbox: bool = False
    """Whether the prompt stands for waiting messages of other sessions, and has no blocks of its own."""


class Turns:
    """Runs a session's turns one at a time, in the order of their prompts."""

    def __init__(
        self,
        scope: Scope,
        record: Record,
        agent: Agent,
        new_context: Callable[[str], SessionTurnContext],
        *,
        has_title: bool,
        mailbox: Mailbox | None = None,
    ) -> None:
        self.agent = agent
        self._mailbox = mailbox or Mailbox(record)
        self._scope = scope
        self._record = record
        self._new_context = new_context
        self._has_title = has_title
        self._lock = asyncio.Lock()
        self._open_prompts: dict[asyncio.Task[TurnResult], _OpenPrompt] = {}
        self._is_closed = False
        self.on_cancel: Callable[[], object] | None = None
        """Called by `cancel`, unless the session is being closed."""
        self.before_messages: BeforeTurn | None = None
        """Runs at the beginning of a turn that a message of another session starts."""
        self.spans: SessionSpans | None = None
        """Traces the turns; None if tracing is off."""

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running or waiting."""
        return bool(self._open_prompts)

    async def run(self, prompt: Prompt, sender: AttachedDoor | None = None) -> TurnResult:
        """Run one turn. Return when the whole answer is stored. `sender` can cancel the prompt while it waits."""
        if self._is_closed:
            raise HoldfastError(codes.SCOPE_CLOSED, "The session was closed.")
        self._check_queue(sender)
        if has_more_values(msgspec.json.encode(prompt.blocks), STORED_LIMIT.values):
            raise HoldfastError(
                codes.TOO_LARGE,
                f"The prompt has more than {STORED_LIMIT.values} JSON values. Split it into several prompts.",
            )
        open_prompt, task = self._start(prompt, sender)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            open_prompt.cancel()
            is_waiting = self._lock.locked() and not open_prompt.is_running
            if not is_waiting:  # a waiting prompt is stored as cancelled when the turns before it have ended
                await run_to_completion(wait_done(task))
            raise

    def _check_queue(self, sender: AttachedDoor | None) -> None:
        own = sum(open_prompt.sender is sender for open_prompt in self._open_prompts.values())
        if own > MAX_WAITING_PROMPTS:  # one of them may be running
            waiting = f"{MAX_WAITING_PROMPTS} of your prompts"
        elif len(self._open_prompts) > MAX_WAITING_IN_ALL:
            waiting = f"{MAX_WAITING_IN_ALL} prompts"
        else:
            return
        raise HoldfastError(
            codes.BUSY, f"{waiting} are already waiting in this session. Wait for an answer, or cancel."
        )

    def _start(
        self, prompt: Prompt, sender: AttachedDoor | None
    ) -> "tuple[_OpenPrompt, asyncio.Task[TurnResult]]":
        open_prompt = _OpenPrompt(prompt, sender)
        task = asyncio.create_task(self._run_in_order(open_prompt))
        self._open_prompts[task] = open_prompt
        task.add_done_callback(self._forget)
        return open_prompt, task

    def _forget(self, task: "asyncio.Task[TurnResult]") -> None:
        open_prompt = self._open_prompts.pop(task)
        if (
            open_prompt.prompt.is_from_inbox
            and not task.cancelled()
            and (error := task.exception()) is not None
        ):
            log.warning("messages of other sessions not delivered yet", extra={"reason": str(error)})

    def start_inbox_turn(self) -> None:
        """Start a turn for the messages of other sessions, after the prompts that are waiting. Does nothing if one is waiting."""
        is_waiting = any(p.prompt.is_from_inbox and not p.is_running for p in self._open_prompts.values())
        if not self._is_closed and not is_waiting:
            prompt = Prompt(blocks=(), message_id="", before=self.before_messages, is_from_inbox=True)
            self._start(prompt, None)

    def cancel(self, sender: AttachedDoor | None = None) -> None:
        """Cancel the running turn, even if its prompt is from another sender, and the waiting prompts of `sender`.

        Waiting prompts of senders that have left are also cancelled. Without a sender, all waiting prompts are cancelled.
        """
        for open_prompt in self._open_prompts.values():
            if (
                sender is None
                or open_prompt.is_running
                or open_prompt.sender is sender
                or open_prompt.is_abandoned
            ):
                open_prompt.cancel()
        if self.on_cancel is not None and not self._is_closed:
            self.on_cancel()

    @property
    def is_called_from_turn(self) -> bool:
        """Whether the calling code is part of a turn of this session."""
        return _current.get() is self

    async def close(self, *, wait: bool = True) -> None:
        """Cancel every turn, and accept no more prompts. With `wait`, wait until each turn has ended.

        A turn that closes its own session cannot wait for itself.
        """
        self._is_closed = True
        self.cancel()
        if wait and (tasks := set(self._open_prompts)):
            await asyncio.wait(tasks)

    async def _run_in_order(self, open_prompt: "_OpenPrompt") -> TurnResult:
        try:
            async with self._lock:
                open_prompt.is_running = True
                return await self._run(open_prompt)
        except HoldfastError as error:
            if not open_prompt.is_cancelled:
                raise
            # `recover` stores the end of the turn later, as interrupted.
            log.warning("cancelled turn not stored", extra={"reason": error.message})
            return TurnResult(reason=StopReason.CANCELLED, last_seq=0)

    async def _run(self, open_prompt: "_OpenPrompt") -> TurnResult:
        """Run the turn of a prompt: store the prompt, let the agent answer, and store the end."""
        turn_id = new_turn_id()
        prompt, context, record = open_prompt.prompt, self._new_context(turn_id), self._record
        async with record.turn():
            if prompt.is_from_inbox:
                received = await self._mailbox.deliver(turn_id)
                if not received:  # an earlier turn has delivered the messages
                    return TurnResult(reason=StopReason.END_TURN, last_seq=record.events.last)
                context.sender = received[0].sender
                context.origin = Origin(cause=received[0].message_id)
                prompt = replace(prompt, blocks=message_blocks(received))
            else:
                await record.append(
                    Prompted(turn_id=turn_id, message_id=prompt.message_id, blocks=tuple(prompt.blocks))
                )
            if (
                not prompt.is_from_inbox
                and not self._has_title
                and (title := make_title(prompt.blocks, record.mask))
            ):
                self._has_title = True
                await record.append(Titled(title=title))
            reason = await open_prompt.run(lambda: self._answer(prompt, context))
            failure = None if reason is StopReason.CANCELLED else context.failure
            code = "" if failure is None else failure.code.name
            ended = TurnEnded(turn_id=turn_id, reason=reason, usage=context.usage, code=code)
            last_seq = await run_to_completion(self._end(ended, context.origin))
        text = record.mask.mask_known(context.last_message)
        if failure is None:
            return TurnResult(reason=reason, last_seq=last_seq, text=text)
        return TurnResult(
            reason=reason,
            last_seq=last_seq,
            code=code,
            message=record.mask.mask_all(failure.message),
            text=text,
        )

    async def _answer(self, prompt: Prompt, context: SessionTurnContext) -> StopReason:
        if self.spans is None:
            return await self._run_agent(prompt, context)
        reason = StopReason.CANCELLED
        with self.spans.turn(
            context.definition.name if context.definition is not None else "holdfast"
        ) as span:
            try:
                reason = await self._run_agent(prompt, context)
            finally:
                failure = "" if context.failure is None else context.failure.code.name
                add_turn_attributes(span, reason, context.usage, failure)
        return reason

    async def _run_agent(self, prompt: Prompt, context: SessionTurnContext) -> StopReason:
        record = self._record
        _current.set(self)  # for this task and the tasks that it starts
        try:
            if prompt.before is not None:
                await prompt.before()
            # The agent's calls, and the tasks that it starts, belong to this session.
            with enter_scope(self._scope.find_caller_scope()):
                return _check_reason(await _require_awaitable(self.agent.run_turn(prompt.blocks, context)))
        except HoldfastError as error:
            context.report_failure(error)
            if error.code is codes.RESULT_NOT_STORED:
                raise  # a reply cannot be stored either, and its error would hide that the call was made
            failed = Replied(message_id=new_message_id(), text=record.mask.mask_all(error.message))
            await record.append(failed, origin=context.origin)
        except Exception as error:
            log.exception("turn crashed")
            crashed = f"The agent raised {type(error).__name__}. The log has the traceback."
            context.report_failure(HoldfastError(codes.INTERNAL_ERROR, crashed))
            crashed_reply = Replied(message_id=new_message_id(), text=INTERNAL_ERROR_REPLY)
            await record.append(crashed_reply, origin=context.origin)
        return StopReason.END_TURN

    async def _end(self, ended: TurnEnded, origin: Origin) -> int:
        return await (await self._record.append(ended, origin=origin)).wait_durable()


class _OpenPrompt:
    """A prompt whose turn is running or waiting. A cancelled prompt is stored, too, with the end of its turn."""

    def __init__(self, prompt: Prompt, sender: AttachedDoor | None) -> None:
        self.prompt = prompt
        self.sender = sender
        self.is_cancelled = prompt.is_cancelled
        self.is_running = False
        self._answer_task: asyncio.Task[StopReason] | None = None

    @property
    def is_abandoned(self) -> bool:
        return self.sender is not None and self.sender.has_left

    def cancel(self) -> None:
        self.is_cancelled = True
        if self._answer_task is not None:
            self._answer_task.cancel()

    async def run(self, answer: Callable[[], Coroutine[Any, Any, StopReason]]) -> StopReason:
        """Answer the prompt. A cancelled prompt ends as cancelled, even if the agent swallows the cancellation."""
        if self.is_cancelled:
            return StopReason.CANCELLED
        self._answer_task = asyncio.create_task(answer())
        try:
            reason = await self._answer_task
        except asyncio.CancelledError:
            return StopReason.CANCELLED
        return StopReason.CANCELLED if self.is_cancelled else reason


def _require_awaitable(answer: Awaitable[StopReason]) -> Awaitable[StopReason]:
    if isinstance(cast("object", answer), Awaitable):
        return answer
    raise HoldfastError(codes.BAD_ARGUMENT, "The agent's `run_turn` must be async: `async def run_turn(…)`.")


def _check_reason(reason: object) -> StopReason:
    try:
        return StopReason(str(reason))
    except ValueError:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"The agent's `run_turn` must return a StopReason, not a value of the type {type(reason).__name__}: "
            "`return events.StopReason.END_TURN`.",
        ) from None
