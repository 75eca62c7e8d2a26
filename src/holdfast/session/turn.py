"""One prompt, from the user's words to the agent's."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from holdfast.agent.agent import Agent, Standing
from holdfast.connect.call import Answer, failed
from holdfast.connect.catalog import Offer
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.errors import HoldfastError
from holdfast.model.event import (
    Decision,
    Outcome,
    Planned,
    Prompted,
    Replied,
    StopReason,
    Thought,
    Titled,
    TurnEnded,
)
from holdfast.model.ids import new_call_id, new_message_id, new_turn_id
from holdfast.model.json import Json, JsonObject
from holdfast.model.mask import Mask
from holdfast.model.ports import Door
from holdfast.model.typed import all_typed
from holdfast.session.outlast import outlast
from holdfast.session.permission import Due, Mode, due
from holdfast.session.session import Session, encoded

log = logging.getLogger(__name__)

Before = Callable[[], Awaitable[str]]
"""Runs before the agent does; what it gives is said first."""
_TITLE_LENGTH = 80
APOLOGY = "Something went wrong inside Holdfast; its log has the details. The session goes on."


class Conversation:
    """A session's turns, one at a time and in order; a prompt that comes during another waits for it."""

    def __init__(
        self,
        session: Session,
        agent: Agent,
        door: Door | None = None,
        *,
        titled: bool = False,
        before: Before | None = None,
    ) -> None:
        self.session = session
        self.agent = agent
        self.mode = Mode.ASK
        self._door = door
        self._titled = titled
        self._before = before
        self._allowed: set[tuple[str, str]] = set()
        self._questions: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._turn = asyncio.Lock()
        self._turns: dict[asyncio.Task[StopReason], _Asked] = {}

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits."""
        return bool(self._turns)

    async def prompt(self, blocks: Sequence[JsonObject], *, cancelled: bool = False) -> StopReason:
        """Take the user's words; returns when the last word of the answer is stored and told.

        Of a prompt that was `cancelled` before it came here, only the words are kept.
        """
        asked = _Asked(blocks, cancelled=cancelled)
        task = asyncio.create_task(self._take(asked))
        self._turns[task] = asked
        task.add_done_callback(lambda _: self._turns.pop(task))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            asked.cancel()
            await outlast(_end_of(task))
            raise

    def cancel(self) -> None:
        """End the turn that runs, and those that wait: each ends as cancelled."""
        for asked in self._turns.values():
            asked.cancel()

    async def stop(self) -> None:
        """Cancel, and wait until every turn has ended."""
        turns = set(self._turns)
        self.cancel()
        if turns:
            await asyncio.wait(turns)

    async def change_mode(self, mode: Mode) -> None:
        """Ask for permission differently from here on, and when the session is taken up again."""
        await self.session.record.mode_changed(mode)
        self.mode = mode

    async def _take(self, asked: "_Asked") -> StopReason:
        try:
            async with self._turn:
                return await self._run(asked)
        except HoldfastError as error:
            if not asked.cancelled:
                raise
            # Whoever cancelled it waits for nothing any more; the next that is stored ends it as interrupted.
            log.warning("cancelled turn not stored", extra={"reason": error.message})
            return StopReason.CANCELLED

    async def _run(self, asked: "_Asked") -> StopReason:
        turn_id = new_turn_id()
        desk = _Desk(self)
        record = self.session.record
        async with record.turn():
            await record.stream(
                Prompted(turn_id=turn_id, message_id=new_message_id(), blocks=tuple(asked.blocks))
            )
            if not self._titled and (title := _title(asked.blocks, record.mask)):
                self._titled = True
                await record.stream(Titled(title=title))
            reason = await asked.outcome(lambda: self._answer(asked.blocks, desk))
            await outlast(self._end(TurnEnded(turn_id=turn_id, reason=reason, usage=desk.usage)))
        return reason

    async def _answer(self, blocks: Sequence[JsonObject], desk: "_Desk") -> StopReason:
        record = self.session.record
        try:
            if self._before is not None and (news := await self._before()):
                await record.stream(Replied(message_id=new_message_id(), text=news))
            return await self.agent.turn(blocks, desk)
        except HoldfastError as error:
            await record.stream(Replied(message_id=new_message_id(), text=error.message))
        except Exception:
            log.exception("turn crashed")
            await record.stream(Replied(message_id=new_message_id(), text=APOLOGY))
        return StopReason.END_TURN

    async def _end(self, ended: TurnEnded) -> None:
        await self.session.record.stream(ended)
        await self.session.record.told()

    async def permit(self, asked: ToolCall, offer: Offer) -> Answer | None:
        """None when the call may run; else the answer that says why not."""
        if self._due(offer) is not Due.ASKING:
            return self._refused(offer)
        if self._door is None or not self._door.powers.permits:
            return _denied(
                f"{offer.name} needs somebody's permission, and there is nobody to ask. "
                f"Allow all tools with --mode {Mode.AUTO}, or answer at a terminal or in an editor."
            )
        async with self._questions[_tool(offer)]:  # the first answer may be for all calls of this tool
            try:
                if (
                    self._due(offer) is Due.ASKING
                    and await self._ask(self._door, asked, offer) is Decision.REJECT
                ):
                    return _denied(f"{offer.name} was not permitted.")
            except HoldfastError as error:
                if error.code is not codes.TOO_LARGE:
                    raise
                return _denied(
                    f"{offer.name} needs somebody's permission, and its arguments are too long to be shown. Make them shorter."
                )
        return self._refused(offer)

    def _due(self, offer: Offer) -> Due:
        """What is due as of now: what was always allowed is not asked for again, but the mode may refuse it."""
        found = due(offer, self.mode)
        return Due.NOTHING if found is Due.ASKING and _tool(offer) in self._allowed else found

    def _refused(self, offer: Offer) -> Answer | None:
        if self._due(offer) is not Due.REFUSAL:
            return None
        return _denied(
            f"{offer.name} may change something, and this session's mode is {self.mode}. "
            f"Change the mode to {Mode.ASK} or {Mode.AUTO} to allow it."
        )

    async def _ask(self, door: Door, asked: ToolCall, offer: Offer) -> Decision:
        await self.session.record.told()  # whoever is asked has seen what it is about
        decision = await door.permit(self._shown(asked), offer.tool.title or offer.name)
        await self.session.record.decided(asked, decision)
        if decision is Decision.ALLOW_ALWAYS:
            self._allowed.add(_tool(offer))
        return decision

    def _shown(self, asked: ToolCall) -> ToolCall:
        """The call as it is stored and told: without secrets."""
        arguments: Json = msgspec.json.decode(asked.arguments)
        return replace(asked, arguments=msgspec.json.encode(self.session.record.mask.json(arguments)))


class _Asked:
    """A prompt that runs or waits. Only its answer is ever cancelled: its words and its end are stored in any case."""

    def __init__(self, blocks: Sequence[JsonObject], *, cancelled: bool) -> None:
        self.blocks = blocks
        self.cancelled = cancelled
        self._answering: asyncio.Task[StopReason] | None = None

    def cancel(self) -> None:
        self.cancelled = True
        if self._answering is not None:
            self._answering.cancel()

    async def outcome(self, answer: Callable[[], Coroutine[Any, Any, StopReason]]) -> StopReason:
        """Have it answered, unless it was cancelled; whatever an agent makes of that, the turn is cancelled then."""
        if self.cancelled:
            return StopReason.CANCELLED
        self._answering = asyncio.create_task(answer())
        try:
            reason = await self._answering
        except asyncio.CancelledError:
            return StopReason.CANCELLED
        return StopReason.CANCELLED if self.cancelled else reason


class _Desk:
    """What a turn lends its agent."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._session = conversation.session
        self._message_id = new_message_id()
        self.usage: JsonObject = {}

    async def reply(self, text: str) -> None:
        if text:
            await self._session.record.stream(Replied(message_id=self._message_id, text=_whole(text)))

    async def think(self, text: str) -> None:
        if text:
            await self._session.record.stream(Thought(message_id=self._message_id, text=_whole(text)))

    async def plan(self, entries: Sequence[JsonObject]) -> None:
        await self._session.record.stream(Planned(entries=tuple(entries)))

    def used(self, usage: JsonObject) -> None:
        self.usage = usage

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        asked = ToolCall(call_id=new_call_id(), server="", tool=name, arguments=encoded(arguments))
        answer = await self._session.perform(asked, permit=self._conversation.permit)
        self._message_id = new_message_id()  # what is said after a call is another message
        return answer

    async def tools(self) -> tuple[Offer, ...]:
        return self._session.offers

    def standing(self) -> Standing:
        session = self._session
        return Standing(
            up=session.up,
            starting=session.starting,
            refusals=session.refusals,
            cautions=session.cautions,
            held_back={name: tuple(held.name for held in tools) for name, tools in session.held_back.items()},
        )


async def _end_of(task: asyncio.Task[StopReason]) -> None:
    await asyncio.wait([task])


def _whole(text: str) -> str:
    """Text that can be written down: half a character, as a model may cut one, is replaced."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _tool(offer: Offer) -> tuple[str, str]:
    return offer.server.name, offer.tool.name


def _denied(reason: str) -> Answer:
    return replace(failed(HoldfastError(codes.NOT_PERMITTED, reason)), outcome=Outcome.REFUSED)


def _title(blocks: Sequence[JsonObject], mask: Mask) -> str:
    """The beginning of what was said; masked before it is cut, for half a secret is not found any more."""
    texts = (str(block.get("text", "")) for block in blocks if block.get("type") == "text")
    words = " ".join(" ".join(all_typed(texts, mask)).split())
    return words if len(words) <= _TITLE_LENGTH else words[: _TITLE_LENGTH - 1] + "…"
