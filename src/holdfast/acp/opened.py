"""One session as an editor has it open: what it is told, and what it hears about its servers."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.acp.door import EditorDoor
from holdfast.acp.telling import Telling
from holdfast.acp.translate import Update, available_commands
from holdfast.agent.agent import Agent
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, Prompted, ServersResolved
from holdfast.model.resolution import Refusal
from holdfast.session.session import Session
from holdfast.session.turn import Conversation
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

UPDATE = "session/update"


class Opened:
    """Told everything that happens, once it is stored; `begin` starts it, `end` stops it."""

    def __init__(
        self,
        session: Session,
        agent: Agent,
        door: EditorDoor,
        peer: Peer,
        *,
        titled: bool,
        patience: float,
    ) -> None:
        self.session = session
        self.door = door
        self.conversation = Conversation(session, agent, door, titled=titled, before=self._before)
        self.ready = asyncio.Event()
        """Set once its past has been replayed: until then it takes nothing new."""
        self._peer = peer
        self._session_id = str(session.context.session_id)
        self.telling = Telling(session.context.cwd)
        """The same for what happened before it was loaded and for what happens now."""
        self._news: list[str] = []
        self._reported: set[str] = set()
        self._first = True
        self._patience = patience
        """How long the first prompt, or a resumed session, waits for servers that are still starting."""
        self._until: float | None = None
        """When the patience with the servers ends, once it has begun."""
        self._watch: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """From here on, tell what happens."""
        self.session.record.listen_to_many(self._hear)
        self._watch = asyncio.create_task(self._watch_servers())
        self.ready.set()

    async def end(self) -> None:
        """End every turn as cancelled, and tell nothing about servers any more."""
        self.ready.set()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self.conversation.stop()

    async def wait_for_servers(self) -> None:
        """Wait until every server stands or has fallen, within reason; whoever waits after another waits no longer."""
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + self._patience
        if self._watch is not None and self._until > now:
            await asyncio.wait([self._watch], timeout=self._until - now)

    async def tell(self, update: Update) -> None:
        """Send one update; one that is too long for a line is sent without its payload."""
        try:
            await self._peer.notify(UPDATE, self._addressed(update))
        except HoldfastError as error:
            if error.code is not codes.TOO_LARGE:
                raise
            await self._peer.notify(UPDATE, self._addressed(_shortened(update)))

    async def tell_all(self, updates: Sequence[Update]) -> None:
        """Send updates, in order and together."""
        try:
            await self._peer.notify_all(UPDATE, map(self._addressed, updates))
        except HoldfastError as error:
            if error.code is not codes.TOO_LARGE:
                raise
            for update in updates:
                await self.tell(update)

    def _addressed(self, update: Update) -> dict[str, Any]:
        return {"sessionId": self._session_id, "update": update}

    async def _hear(self, events: Sequence[Event]) -> None:
        # While it happens, an editor is not told its own words back.
        told = [event for event in events if not isinstance(event, Prompted)]
        await self.tell_all([update for event in told for update in self.telling.of(event)])
        for event in events:
            if isinstance(event, ServersResolved):
                await self._report_servers(event.refusals)

    async def _before(self) -> str:
        """Before the first turn: wait for the servers, and say who is missing."""
        if self._first:
            self._first = False
            await self.wait_for_servers()
            await self.session.record.told()  # and with it whoever has fallen up to now
            if starting := self.session.starting:
                await self._report([f"Still starting: {', '.join(starting)}."])
        news, self._news = self._news, []
        return "".join(f"- {line}\n" for line in news) + "\n" if news else ""

    async def _watch_servers(self) -> None:
        """Tell what can be typed and who has fallen; of those that fall later, `_hear` tells when it is stored."""
        try:
            await self.tell(available_commands(self.conversation.agent.commands))
            await self._report_servers(await self.session.noted())
            await self.session.settle()
            await self._report_servers(await self.session.noted())
        except HoldfastError as error:
            log.warning("servers are not told of", extra={"reason": error.message})
        except Exception:
            log.exception("servers are not told of")

    async def _report_servers(self, refusals: Sequence[Refusal]) -> None:
        """Say who has fallen and what to beware of, each once."""
        lines = [f"{refusal.server}: {refusal.reason}" for refusal in refusals]
        lines += [f"{caution.server}: {caution.text}" for caution in self.session.cautions]
        masked = dict.fromkeys(map(self.session.record.mask.line, lines))
        new = [line for line in masked if line not in self._reported]
        self._reported.update(new)
        await self._report(new)

    async def _report(self, lines: Iterable[str]) -> None:
        """A notice each where the editor takes notices, else the next turn begins with them."""
        for line in lines:
            if self.door.takes_notices:
                await self.tell({"sessionUpdate": "notice", "severity": "warning", "title": line})
            else:
                self._news.append(line)


def _shortened(update: Update) -> Update:
    kept = {key: value for key, value in update.items() if key not in ("rawInput", "rawOutput", "content")}
    block = {"type": "text", "text": "[too long to be shown]"}
    if "content" not in update:
        return kept
    whole = isinstance(update["content"], list)
    return {**kept, "content": [{"type": "content", "content": block}] if whole else block}
