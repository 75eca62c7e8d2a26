"""A session's turns: each is one prompt and the agent's answer to it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from holdfast.agent.agent import Agent, ServerStatus
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Planned, Prompted, Replied, StopReason, Thought, Titled, TurnEnded
from holdfast.model.ids import new_call_id, new_message_id, new_turn_id
from holdfast.model.json import JsonObject
from holdfast.model.limits import STORED
from holdfast.model.mask import Mask
from holdfast.model.mask_prompt import mask_prompts
from holdfast.session.permission import PermissionPolicy
from holdfast.session.run_to_completion import run_to_completion, wait_done
from holdfast.session.session import Session, encode_arguments
from holdfast.wire.strict_json import has_more_values

log = logging.getLogger(__name__)

BeforeTurn = Callable[[], Awaitable[str]]
"""Runs before each turn; the text it returns is sent before the agent's reply."""
MAX_WAITING_PROMPTS = 16
_TITLE_LENGTH = 80
_TITLE_SOURCE = 4 * 1024  # characters of each text that are masked for the title
_TITLE_BLOCKS = 20
INTERNAL_ERROR_REPLY = "Internal error in Holdfast; see its log. You can continue this session."


class Conversation:
    """Runs a session's turns one at a time, in the order of their prompts."""

    def __init__(
        self,
        session: Session,
        agent: Agent,
        door: Door | None = None,
        *,
        has_title: bool = False,
        before_turn: BeforeTurn | None = None,
    ) -> None:
        self.session = session
        self.agent = agent
        self.permissions = PermissionPolicy(session.record, door)
        self._has_title = has_title
        self._before_turn = before_turn
        self._turn_lock = asyncio.Lock()
        self._turns: dict[asyncio.Task[StopReason], _PendingPrompt] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running or waiting."""
        return bool(self._turns)

    async def prompt(self, blocks: Sequence[JsonObject], *, cancelled: bool = False) -> StopReason:
        """Run one turn; returns when the whole answer is stored and published.

        A prompt that is already `cancelled` is stored, but not answered.
        """
        if len(self._turns) > MAX_WAITING_PROMPTS:
            raise HoldfastError(
                codes.BUSY,
                f"{MAX_WAITING_PROMPTS} prompts already wait in this session. Wait for an answer, or cancel.",
            )
        if has_more_values(msgspec.json.encode(blocks), STORED.values):
            raise HoldfastError(
                codes.TOO_LARGE, f"The prompt has more than {STORED.values} values. Send less at once."
            )
        prompt = _PendingPrompt(blocks, cancelled=cancelled)
        task = asyncio.create_task(self._run_in_order(prompt))
        self._turns[task] = prompt
        task.add_done_callback(lambda _: self._turns.pop(task))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            prompt.cancel()
            await run_to_completion(wait_done(task))
            raise

    def cancel(self) -> None:
        """Cancel the running turn and the waiting ones."""
        for prompt in self._turns.values():
            prompt.cancel()

    async def stop(self) -> None:
        """Cancel, and wait until every turn has ended."""
        turns = set(self._turns)
        self.cancel()
        if turns:
            await asyncio.wait(turns)

    async def _run_in_order(self, prompt: "_PendingPrompt") -> StopReason:
        try:
            async with self._turn_lock:
                return await self._run(prompt)
        except HoldfastError as error:
            if not prompt.cancelled:
                raise
            # The turn counts as cancelled although its end was not stored; the next write ends it as interrupted.
            log.warning("cancelled turn not stored", extra={"reason": error.message})
            return StopReason.CANCELLED

    async def _run(self, prompt: "_PendingPrompt") -> StopReason:
        turn_id = new_turn_id()
        turn = _TurnContext(self.session, self.permissions)
        record = self.session.record
        async with record.turn():
            await record.append(
                Prompted(turn_id=turn_id, message_id=new_message_id(), blocks=tuple(prompt.blocks))
            )
            if not self._has_title and (title := _make_title(prompt.blocks, record.mask)):
                self._has_title = True
                await record.append(Titled(title=title))
            reason = await prompt.run(lambda: self._answer(prompt.blocks, turn))
            await run_to_completion(self._end(TurnEnded(turn_id=turn_id, reason=reason, usage=turn.usage)))
        return reason

    async def _answer(self, blocks: Sequence[JsonObject], turn: "_TurnContext") -> StopReason:
        record = self.session.record
        try:
            if self._before_turn is not None and (text := await self._before_turn()):
                await record.append(Replied(message_id=new_message_id(), text=text))
            return await self.agent.run_turn(blocks, turn)
        except HoldfastError as error:
            await record.append(
                Replied(message_id=new_message_id(), text=record.mask.mask_all(error.message))
            )
        except Exception:
            log.exception("turn crashed")
            await record.append(Replied(message_id=new_message_id(), text=INTERNAL_ERROR_REPLY))
        return StopReason.END_TURN

    async def _end(self, ended: TurnEnded) -> None:
        await self.session.record.append(ended)
        await self.session.record.wait_published()


class _PendingPrompt:
    """A prompt whose turn is running or waiting. If it is cancelled, it is still stored, with the end of its turn."""

    def __init__(self, blocks: Sequence[JsonObject], *, cancelled: bool) -> None:
        self.blocks = blocks
        self.cancelled = cancelled
        self._answering: asyncio.Task[StopReason] | None = None

    def cancel(self) -> None:
        self.cancelled = True
        if self._answering is not None:
            self._answering.cancel()

    async def run(self, answer: Callable[[], Coroutine[Any, Any, StopReason]]) -> StopReason:
        """Answer the prompt. A cancelled prompt ends as cancelled, even if the agent swallows the cancellation."""
        if self.cancelled:
            return StopReason.CANCELLED
        self._answering = asyncio.create_task(answer())
        try:
            reason = await self._answering
        except asyncio.CancelledError:
            return StopReason.CANCELLED
        return StopReason.CANCELLED if self.cancelled else reason


class _TurnContext:
    """The `TurnContext` of one turn of a session."""

    def __init__(self, session: Session, permissions: PermissionPolicy) -> None:
        self._session = session
        self._permissions = permissions
        self._message_id = new_message_id()
        self.usage: JsonObject = {}

    async def reply(self, text: str) -> None:
        if text:
            await self._session.record.append_piece(
                Replied(message_id=self._message_id, text=_valid_text(text))
            )

    async def think(self, text: str) -> None:
        if text:
            await self._session.record.append_piece(
                Thought(message_id=self._message_id, text=_valid_text(text))
            )

    async def plan(self, entries: Sequence[JsonObject]) -> None:
        await self._session.record.append(Planned(entries=tuple(entries)))

    def report_usage(self, usage: JsonObject) -> None:
        self.usage = usage

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        tool_call = ToolCall(
            call_id=new_call_id(), server="", tool=name, arguments=encode_arguments(arguments)
        )
        result = await self._session.perform(tool_call, permit=self._permissions.check)
        self._message_id = new_message_id()  # a reply after a call is another message
        return result

    async def tools(self) -> tuple[CatalogTool, ...]:
        return self._session.available_tools

    def server_status(self) -> ServerStatus:
        session = self._session
        return ServerStatus(
            available=session.available,
            starting=session.starting,
            refusals=tuple(
                replace(refusal, reason=session.record.mask.mask_all(refusal.reason))
                for refusal in session.refusals
            ),
            warnings=session.warnings,
            awaiting_approval={
                server: tuple(tool.name for tool in tools)
                for server, tools in session.awaiting_approval.items()
            },
        )


def _valid_text(text: str) -> str:
    """The text with lone surrogates replaced: a model may cut a character in half."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _make_title(blocks: Sequence[JsonObject], mask: Mask) -> str:
    """The beginning of the prompt. It is masked before it is cut, since half a secret would not be recognised."""
    texts = (
        _cut(str(block.get("text", "")), mask)
        for block in blocks[:_TITLE_BLOCKS]
        if block.get("type") == "text"
    )
    words = " ".join(" ".join(mask_prompts(texts, mask)).split())
    return words if len(words) <= _TITLE_LENGTH else words[: _TITLE_LENGTH - 1] + "…"


def _cut(text: str, mask: Mask) -> str:
    """The beginning of a long text, without the beginning of a secret at its end."""
    if len(text) <= _TITLE_SOURCE:
        return text
    start = text[:_TITLE_SOURCE]
    return start[: mask.find_partial_at_end(start)]
