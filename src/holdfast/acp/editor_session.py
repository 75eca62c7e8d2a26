"""An editor's view of one live session: the updates that it gets, its prompts, and the notices about the servers."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.acp.config_options import describe_options
from holdfast.acp.door import EditorDoor
from holdfast.acp.updates import Update, Updates, available_commands
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ModeChanged, ServersResolved, StopReason, TrustLowered
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.model.resolution import Refusal
from holdfast.session.session import Session
from holdfast.session.subscription import Subscription
from holdfast.store.types import StoredEvent
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

UPDATE = "session/update"


class EditorSession:
    """One live session on an editor's connection. From `start` to `stop`, the editor gets the session's events."""

    def __init__(self, session: Session, door: EditorDoor, peer: Peer, *, wait_seconds: float) -> None:
        self.session = session
        self._door = door
        self._attachment = session.attach(door)
        self._peer = peer
        self._session_id = str(session.context.session_id)
        self.ready = asyncio.Event()
        """Set when the session accepts prompts (after the replay of `session/load`), and when it is closed."""
        self._updates = Updates(session.context.cwd)
        self._events: Subscription | None = None
        self._sending: asyncio.Task[None] | None = None
        self._last_replayed = 0
        """The number of the last event that was stored before `start`."""
        self._unsent_notices: list[str] = []
        self._reported: set[str] = set()
        """The texts that were reported already, with secrets masked."""
        self._is_first_turn = True
        self._wait_seconds = wait_seconds
        """How long the first prompt, or `session/resume`, waits for servers that are still starting."""
        self._wait_deadline: float | None = None
        """When waiting for servers ends. The first wait sets it; later waits end at the same time."""
        self._startup: asyncio.Task[None] | None = None
        """Runs until every server is available or has failed."""

    async def start(self, *, replay: bool = False) -> None:
        """Start to send events: all of them with `replay`, which this waits for, or else those from now on.

        Then start to report servers that are refused or fail.
        """
        self._last_replayed = self.session.record.events.last
        self._events = self._attachment.subscribe(0 if replay else self._last_replayed)
        self._sending = asyncio.create_task(self._send_events(self._events))
        if replay:
            await self._events.wait_handled(self._last_replayed)
        self._startup = asyncio.create_task(self._report_startup())
        self.ready.set()

    async def prompt(self, blocks: Sequence[JsonObject], *, is_cancelled: bool = False) -> StopReason:
        """Run one turn. Returns when the editor has got all of its updates."""
        try:
            turn = await self._attachment.prompt(blocks, before=self._before_turn, is_cancelled=is_cancelled)
        except HoldfastError:
            await self.wait_sent()
            raise
        if self._events is not None:
            await self._events.wait_handled(turn.last_seq)
        return turn.reason

    def cancel(self) -> None:
        """Cancel the running turn, and the prompts of this editor that wait."""
        self._attachment.cancel()

    async def wait_sent(self) -> None:
        """Wait until the editor has got every event that is stored by now."""
        if self._events is not None:
            await self._events.wait_handled(self.session.record.events.last)

    async def leave(self) -> None:
        """Detach the editor from the session. If no other door is attached, close the session."""
        if self._startup is not None:
            self._startup.cancel()
            await asyncio.wait([self._startup])
        if not self._attachment.detach():
            await self.session.close()  # the last updates are sent, too
        elif self._events is not None:
            self._events.close()
        self.ready.set()
        if self._sending is not None:
            await asyncio.wait([self._sending])

    async def wait_for_servers(self) -> None:
        """Wait until every server is available or has failed, but at most `wait_seconds` in all."""
        now = asyncio.get_running_loop().time()
        if self._wait_deadline is None:
            self._wait_deadline = now + self._wait_seconds
        if self._startup is not None and self._wait_deadline > now:
            await asyncio.wait([self._startup], timeout=self._wait_deadline - now)

    async def _send_events(self, events: Subscription) -> None:
        try:
            while batch := await events.next_batch():
                await self._send_all(self._convert(batch))
                for stored in batch:
                    if stored.seq > self._last_replayed:
                        await self._on_new_event(stored.event)
        except HoldfastError as error:
            # The editor has disconnected, for example. The session's events are still stored.
            log.warning("events are no longer sent", extra={"reason": error.message})
        finally:
            events.close()

    def _convert(self, batch: Sequence[StoredEvent]) -> list[Update]:
        updates: list[Update] = []
        for stored in batch:
            try:
                updates += self._updates.for_event(stored.event)
            except Exception:
                log.exception("event not sent", extra={"event": type(stored.event).__name__})
        return updates

    async def _on_new_event(self, event: Event) -> None:
        match event:
            case ServersResolved(refusals=refusals):
                await self._report_servers(refusals)
            case ModeChanged(mode=mode):
                await self._send_options(Mode(mode))
            case TrustLowered():
                await self._send_options(self.session.permission.mode)
            case _:
                pass

    async def _send_options(self, mode: Mode) -> None:
        options = describe_options(mode, self.session.context.trust_level)
        await self._send({"sessionUpdate": "config_option_update", "configOptions": options})

    async def _send(self, update: Update) -> None:
        """Send one update. If it is too long for one line, send it without its payload."""
        try:
            await self._peer.notify(UPDATE, self._params(update))
        except HoldfastError as error:
            if error.code is not codes.TOO_LARGE:
                raise
            await self._peer.notify(UPDATE, self._params(_without_payload(update)))

    async def _send_all(self, updates: Sequence[Update]) -> None:
        """Send several updates in one write."""
        try:
            await self._peer.notify_all(UPDATE, map(self._params, updates))
        except HoldfastError as error:
            if error.code is not codes.TOO_LARGE:
                raise
            for update in updates:
                await self._send(update)

    def _params(self, update: Update) -> dict[str, Any]:
        return {"sessionId": self._session_id, "update": update}

    async def _before_turn(self) -> str:
        """Before the first turn, wait for the servers. Return the notices that were not sent yet, to begin the reply."""
        if self._is_first_turn:
            self._is_first_turn = False
            await self.wait_for_servers()
            await self.wait_sent()  # by then `_on_new_event` has reported the refusals
            if starting := self.session.starting:
                await self._report([f"Still starting: {', '.join(starting)}."])
        lines, self._unsent_notices = self._unsent_notices, []
        return "".join(f"- {line}\n" for line in lines) + "\n" if lines else ""

    async def _report_startup(self) -> None:
        """Send the list of slash commands, then report the refused servers until every server has started or failed.

        Later refusals are reported by `_on_new_event`.
        """
        try:
            await self._send(available_commands(self.session.agent.commands))
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
        lines += [f"{warning.subject}: {warning.text}" for warning in self.session.warnings]
        masked = dict.fromkeys(map(self.session.record.mask.mask_all, lines))
        new = [line for line in masked if line not in self._reported]
        self._reported.update(new)
        await self._report(new)

    async def _report(self, lines: Iterable[str]) -> None:
        """Send each line as a notice if the editor supports notices; else keep it for the beginning of the next reply."""
        for line in lines:
            if self._door.supports_notices:
                await self._send({"sessionUpdate": "notice", "severity": "warning", "title": line})
            else:
                self._unsent_notices.append(line)


def _without_payload(update: Update) -> Update:
    kept = {key: value for key, value in update.items() if key not in ("rawInput", "rawOutput", "content")}
    block = {"type": "text", "text": "[too long to be shown]"}
    if "content" not in update:
        return kept
    is_list = isinstance(update["content"], list)
    return {**kept, "content": [{"type": "content", "content": block}] if is_list else block}
