"""One prompt, from the user's words to the agent's."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.agent.agent import Agent, Standing
from holdfast.connect.call import Answer, failed
from holdfast.connect.catalog import Offer
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision, Planned, Prompted, Replied, StopReason, Thought, Titled, TurnEnded
from holdfast.model.ids import new_call_id, new_message_id, new_turn_id
from holdfast.model.json import JsonObject
from holdfast.model.ports import Door
from holdfast.session.permission import Due, Mode, due
from holdfast.session.session import Session, encoded

log = logging.getLogger(__name__)

_TITLE_LENGTH = 80
APOLOGY = "Something went wrong inside Holdfast; its log has the details. The session goes on."


class Conversation:
    """A session's turns, one at a time and in order; a prompt that comes during another waits for it."""

    def __init__(
        self, session: Session, agent: Agent, door: Door | None = None, *, titled: bool = False
    ) -> None:
        self.session = session
        self.agent = agent
        self.mode = Mode.ASK
        self._door = door
        self._titled = titled
        self._allowed: set[tuple[str, str]] = set()
        self._turn = asyncio.Lock()
        self._waiting: set[asyncio.Task[StopReason]] = set()

    async def prompt(self, blocks: Sequence[JsonObject]) -> StopReason:
        """Take the user's words; returns when the last word of the answer is stored and told."""
        task = asyncio.create_task(self._take(blocks))
        self._waiting.add(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._waiting.discard(task)

    def cancel(self) -> None:
        """End the turn that runs, and those that wait: each ends as cancelled."""
        for task in self._waiting:
            task.cancel()

    async def stop(self) -> None:
        """Cancel, and wait until every turn has ended."""
        waiting = set(self._waiting)
        self.cancel()
        if waiting:
            await asyncio.wait(waiting)

    async def _take(self, blocks: Sequence[JsonObject]) -> StopReason:
        try:
            async with self._turn:
                return await self._run(blocks)
        except asyncio.CancelledError:
            return StopReason.CANCELLED

    async def _run(self, blocks: Sequence[JsonObject]) -> StopReason:
        record = self.session.record
        turn_id = new_turn_id()
        await record.add(Prompted(turn_id=turn_id, message_id=new_message_id(), blocks=tuple(blocks)))
        if not self._titled:
            self._titled = True
            await record.stream(Titled(title=_title(blocks)))
        reason = StopReason.CANCELLED
        try:
            reason = await self.agent.turn(blocks, _Desk(self))
        except HoldfastError as error:
            reason = StopReason.END_TURN
            await record.stream(Replied(message_id=new_message_id(), text=error.message))
        except Exception:
            log.exception("turn crashed")
            reason = StopReason.END_TURN
            await record.stream(Replied(message_id=new_message_id(), text=APOLOGY))
        finally:
            await asyncio.shield(self._end(turn_id, reason))
        return reason

    async def _end(self, turn_id: str, reason: StopReason) -> None:
        await self.session.record.stream(TurnEnded(turn_id=turn_id, reason=reason))
        await self.session.record.told()

    async def permit(self, asked: ToolCall, offer: Offer) -> Answer | None:
        """None when the call may run; else the answer that says why not."""
        tool = (offer.server.name, offer.tool.name)
        match Due.NOTHING if tool in self._allowed else due(offer, self.mode):
            case Due.NOTHING:
                return None
            case Due.REFUSAL:
                return _denied(f"{offer.name} may change something, and this session's mode is {self.mode}.")
            case Due.ASKING:
                pass
        if self._door is None or not self._door.powers.permits:
            return _denied(f"{offer.name} needs somebody's permission, and there is nobody to ask.")
        await self.session.record.told()  # whoever is asked has seen what it is about
        decision = await self._door.permit(asked, offer.tool.title or offer.name)
        await self.session.record.decided(asked, decision)
        if decision is Decision.ALLOW_ALWAYS:
            self._allowed.add(tool)
        return _denied(f"{offer.name} was not permitted.") if decision is Decision.REJECT else None


class _Desk:
    """What a turn lends its agent."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._session = conversation.session
        self._message_id = new_message_id()

    async def reply(self, text: str) -> None:
        if text:
            await self._session.record.stream(Replied(message_id=self._message_id, text=text))

    async def think(self, text: str) -> None:
        if text:
            await self._session.record.stream(Thought(message_id=self._message_id, text=text))

    async def plan(self, entries: Sequence[JsonObject]) -> None:
        await self._session.record.stream(Planned(entries=tuple(entries)))

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        asked = ToolCall(call_id=new_call_id(), server="", tool=name, arguments=encoded(arguments))
        answer = await self._session.perform(asked, permit=self._conversation.permit)
        self._message_id = new_message_id()  # what is said after a call is another message
        return answer

    async def tools(self) -> tuple[Offer, ...]:
        return await self._session.tools()

    def standing(self) -> Standing:
        session = self._session
        return Standing(
            up=session.up,
            starting=session.starting,
            refusals=session.refusals,
            cautions=session.cautions,
            held_back={name: tuple(held.name for held in tools) for name, tools in session.held_back.items()},
        )


def _denied(reason: str) -> Answer:
    return failed(HoldfastError(codes.NOT_PERMITTED, reason))


def _title(blocks: Sequence[JsonObject]) -> str:
    texts = (str(block.get("text", "")) for block in blocks if block.get("type") == "text")
    words = " ".join(" ".join(texts).split())
    return words if len(words) <= _TITLE_LENGTH else words[: _TITLE_LENGTH - 1] + "…"
