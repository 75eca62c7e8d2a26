"""What an agent is, and what a turn lends it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.connect.call import Answer
from holdfast.connect.catalog import Offer
from holdfast.model.event import StopReason
from holdfast.model.json import JsonObject
from holdfast.model.resolution import Caution, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Something a person can type: its name, what it does, and what follows it."""

    name: str
    description: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The session's servers: who is up, who is starting, who fell, and what to beware of."""

    up: tuple[str, ...] = ()
    starting: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    cautions: tuple[Caution, ...] = ()
    held_back: Mapping[str, tuple[str, ...]]
    """The tools that wait for approval, by server."""


class Desk(Protocol):
    """What an agent works with during one turn. Everything it says or does is stored before it is told."""

    async def reply(self, text: str) -> None:
        """Say a piece of the answer."""
        ...

    async def think(self, text: str) -> None:
        """Think aloud."""
        ...

    async def plan(self, entries: Sequence[JsonObject]) -> None:
        """Show the plan as it stands now."""
        ...

    def used(self, usage: JsonObject) -> None:
        """Say how full the context is (`used` and `size`, in tokens) and, if known, the session's `cost` so far."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Call a tool, asking for permission where that is due; whatever happens, there is an answer."""
        ...

    async def tools(self) -> tuple[Offer, ...]:
        """The tools there are by now; `standing` says which servers are still starting."""
        ...

    def standing(self) -> Standing:
        """How the session's servers are."""
        ...


class Agent(Protocol):
    """Decides what to do with a prompt."""

    @property
    def commands(self) -> tuple[Command, ...]:
        """What a person can type to steer it."""
        ...

    async def turn(self, blocks: Sequence[JsonObject], desk: Desk) -> StopReason:
        """Answer one prompt. Cancelling the task ends the turn."""
        ...
