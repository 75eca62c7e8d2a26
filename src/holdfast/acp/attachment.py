"""An editor's connection to one open session: its updates, its turns, and the notices about its servers."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.acp.door import EditorDoor
from holdfast.acp.updates import Update, Updates, available_commands
from holdfast.agent.agent import Agent
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, Prompted, ServersResolved
from holdfast.model.resolution import Refusal
from holdfast.session.conversation import Conversation
from holdfast.session.session import Session
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

UPDATE = "session/update"


class Attachment:
    """An editor's connection to one open session. From `start` to `stop`, it sends every stored event to the editor."""

    def __init__(
        self,
        session: Session,
        agent: Agent,
        door: EditorDoor,
        peer: Peer,
        *,
        has_title: bool,
        wait_seconds: float,
    ) -> None:
        self.session = session
        self.door = door
        self.conversation = Conversation(
            session, agent, door, has_title=has_title, before_turn=self._before_turn
        )
        self.ready = asyncio.Event()
        """Set when the session accepts requests: after the replay, if there is one."""
        self._peer = peer
        self._session_id = str(session.context.session_id)
        self.updates = Updates(session.context.cwd)
        """Used for the replay first, then for live events."""
        self._unsent_notices: list[str] = []
        self._reported: set[str] = set()
        self._is_first_turn = True
        self._wait_seconds = wait_seconds
        """How long the first prompt, or `session/resume`, waits for servers that are still starting."""
        self._wait_deadline: float | None = None
        """Set by the first wait, and shared by later ones."""
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start sending events and watching the servers."""
        self.session.record.listen_in_batches(self._on_events)
        self._watch = asyncio.create_task(self._watch_servers())
        self.ready.set()

    async def stop(self) -> None:
        """Cancel every turn, and stop watching the servers."""
        self.ready.set()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self.conversation.stop()

    async def wait_for_servers(self) -> None:
        """Wait until every server is available or has failed, but at most `wait_seconds` in all."""
        now = asyncio.get_running_loop().time()
        if self._wait_deadline is None:
            self._wait_deadline = now + self._wait_seconds
        if self._watch is not None and self._wait_deadline > now:
            await asyncio.wait([self._watch], timeout=self._wait_deadline - now)

    async def send(self, update: Update) -> None:
        """Send one update. If it is too long for one line, send it without its payload."""
        try:
            await self._peer.notify(UPDATE, self._params(update))
        except HoldfastError as error:
            if error.code is not codes.TOO_LARGE:
                raise
            await self._peer.notify(UPDATE, self._params(_without_payload(update)))

    async def send_all(self, updates: Sequence[Update]) -> None:
        """Send several updates in one write."""
        try:
            await self._peer.notify_all(UPDATE, map(self._params, updates))
        except HoldfastError as error:
            if error.code is not codes.TOO_LARGE:
                raise
            for update in updates:
                await self.send(update)

    def _params(self, update: Update) -> dict[str, Any]:
        return {"sessionId": self._session_id, "update": update}

    async def _on_events(self, events: Sequence[Event]) -> None:
        # The editor already shows the prompt that it sent; a replay includes it.
        published = [event for event in events if not isinstance(event, Prompted)]
        await self.send_all([update for event in published for update in self.updates.for_event(event)])
        for event in events:
            if isinstance(event, ServersResolved):
                await self._report_servers(event.refusals)

    async def _before_turn(self) -> str:
        """Before the first turn, wait for the servers. Return the text of the notices not sent yet."""
        if self._is_first_turn:
            self._is_first_turn = False
            await self.wait_for_servers()
            await self.session.record.wait_published()  # by then `_on_events` has reported the refusals
            if starting := self.session.starting:
                await self._report([f"Still starting: {', '.join(starting)}."])
        lines, self._unsent_notices = self._unsent_notices, []
        return "".join(f"- {line}\n" for line in lines) + "\n" if lines else ""

    async def _watch_servers(self) -> None:
        """Send the commands, and report refused servers until all have started. `_on_events` reports later refusals."""
        try:
            await self.send(available_commands(self.conversation.agent.commands))
            await self._report_servers(await self.session.stored_refusals())
            await self.session.wait_for_servers()
            await self._report_servers(await self.session.stored_refusals())
        except HoldfastError as error:
            log.warning("could not report the servers", extra={"reason": error.message})
        except Exception:
            log.exception("could not report the servers")

    async def _report_servers(self, refusals: Sequence[Refusal]) -> None:
        """Report each refusal and each warning once."""
        lines = [f"{refusal.server}: {refusal.reason}" for refusal in refusals]
        lines += [f"{warning.server}: {warning.text}" for warning in self.session.warnings]
        masked = dict.fromkeys(map(self.session.record.mask.mask_all, lines))
        new = [line for line in masked if line not in self._reported]
        self._reported.update(new)
        await self._report(new)

    async def _report(self, lines: Iterable[str]) -> None:
        """Send each line as a notice if the editor supports notices; else keep it for the beginning of the next turn."""
        for line in lines:
            if self.door.supports_notices:
                await self.send({"sessionUpdate": "notice", "severity": "warning", "title": line})
            else:
                self._unsent_notices.append(line)


def _without_payload(update: Update) -> Update:
    kept = {key: value for key, value in update.items() if key not in ("rawInput", "rawOutput", "content")}
    block = {"type": "text", "text": "[too long to be shown]"}
    if "content" not in update:
        return kept
    is_list = isinstance(update["content"], list)
    return {**kept, "content": [{"type": "content", "content": block}] if is_list else block}
