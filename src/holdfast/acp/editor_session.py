"""Connects an editor to one live session: sends it updates and notices, and takes its prompts."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from holdfast.acp.config_options import OptionValues, describe_options
from holdfast.acp.door import EditorDoor
from holdfast.acp.updates import FOR_SESSION, Update, Updates, agent_message, without_payload
from holdfast.host.open_options import OpenOptions
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ModeChanged, ServersResolved, StopReason, TrustLowered
from holdfast.model.ids import new_message_id
from holdfast.model.json import JsonObject
from holdfast.model.permission import Mode
from holdfast.model.resolution import Refusal
from holdfast.store.types import StoredEvent
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

UPDATE = "session/update"
_HANDLED_EVENTS = (ServersResolved, ModeChanged, TrustLowered)  # those that `_on_new_event` handles
_MAX_SENT_NOTICES = 10_000
_SLICE_SECONDS = 0.001  # how long events are converted before the event loop does other work
_GROUP_EVENTS = 16  # the time is checked after this many events
_SLICE_UPDATES = 256  # how many updates are sent before the event loop does other work


class EditorSession(ABC):
    """One live session on an editor's connection. From `start` to `leave`, the editor gets the session's events."""

    def __init__(self, session_id: str, cwd: str, door: EditorDoor, peer: Peer) -> None:
        self.session_id = session_id
        self.ready = asyncio.Event()
        """Set when the session accepts prompts, and when it is closed."""
        self.failure: HoldfastError | None = None
        """Why the editor gets no more events although it is connected."""
        self.opened_with: OpenOptions | None = None
        """The options with which this connection opened the session."""
        self._door = door
        self._peer = peer
        self._updates = Updates(cwd, session_id=session_id, sub_agents_are_sessions=door.supports_sub_agents)
        self._last_replayed = 0
        """`_on_new_event` is called for the events after this number."""
        self.sent_notices: set[tuple[str, str]] = set()
        """The notices that were sent on this connection as messages of the agent, each as (the session's folder, the line)."""
        self._cwd = cwd
        self._unsent_notices: list[tuple[str, bool]] = []
        """Notices for the next prompt: each line, and whether to leave it out if it is in `sent_notices`."""
        self._reported: set[str] = set()
        """The texts that were reported already, with secrets masked."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the editor can no longer use the session."""

    @property
    @abstractmethod
    def options(self) -> OptionValues:
        """The current values of the session's options."""

    @abstractmethod
    async def start(self) -> None:
        """Start to send events and to report refused servers. Returns when the replay is sent."""

    @abstractmethod
    async def prompt(self, blocks: Sequence[JsonObject], *, is_cancelled: bool = False) -> StopReason:
        """Run one turn. Returns when the editor has got all updates of the turn."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancel the running turn, and the waiting prompts of this editor."""

    @abstractmethod
    async def change_mode(self, mode: Mode) -> None:
        """Use another mode. Returns when the editor was told."""

    async def set_model(self, name: str) -> None:
        """Use another model. Raises unless a subclass supports this."""
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"Type /model {name[:80]} to change the model of this session."
        )

    def check_can_reopen(self) -> None:
        """Raise unless the session can be closed and opened again with another agent. A subclass may allow it."""
        raise HoldfastError(
            codes.BAD_ARGUMENT, "The agent of a session that another process has open cannot be changed."
        )

    @abstractmethod
    async def lower_trust(self) -> None:
        """Make the session sandboxed. Returns when the editor was told."""

    @abstractmethod
    async def wait_for_servers(self) -> None:
        """Wait for a limited time until every server is available or has failed."""

    @abstractmethod
    async def stop(self) -> None:
        """Let the requests that wait for this session end soon, because the editor has disconnected."""

    @abstractmethod
    async def leave(self) -> None:
        """Detach the editor from the session."""

    # Sending updates

    async def _send_events(self, batch: Sequence[StoredEvent]) -> None:
        """Send the next events as updates, in slices, so that other sessions are not delayed."""
        updates: list[Update] = []
        started = monotonic()
        for begin in range(0, len(batch), _GROUP_EVENTS):
            updates += self._convert(batch[begin : begin + _GROUP_EVENTS])
            if monotonic() - started > _SLICE_SECONDS:
                await self._send_all(updates)
                await asyncio.sleep(0)
                updates, started = [], monotonic()
        await self._send_all(updates)
        for stored in batch:
            if isinstance(stored.event, _HANDLED_EVENTS) and stored.seq > self._last_replayed:
                await self._on_new_event(stored.event)

    def _convert(self, events: Sequence[StoredEvent]) -> list[Update]:
        updates: list[Update] = []
        for stored in events:
            try:
                if stored.agent:
                    updates += self._updates.for_sub_agent(stored.event, stored.origin)
                else:
                    updates += self._updates.for_event(stored.event)
            except Exception:
                log.exception("event not sent", extra={"event": type(stored.event).__name__})
        return updates

    async def _on_new_event(self, event: Event) -> None:
        match event:
            case ServersResolved(refusals=refusals):
                await self._report_servers(refusals)
            case ModeChanged(mode=mode):  # `self.options` may still have the earlier mode
                await self._send_options(replace(self.options, mode=Mode(mode)))
            case TrustLowered():
                await self._send_options(self.options)
            case _:
                pass

    async def _send_options(self, values: OptionValues) -> None:
        await self._send({"sessionUpdate": "config_option_update", "configOptions": describe_options(values)})

    async def _send(self, update: Update) -> None:
        """Send one update. If it is too long for one line, send it without its payload."""
        try:
            await self._peer.notify(UPDATE, self._params(update))
        except HoldfastError as error:
            if error.code is not codes.TOO_LARGE:
                raise
            await self._peer.notify(UPDATE, self._params(without_payload(update)))

    async def _send_all(self, updates: Sequence[Update]) -> None:
        for start in range(0, len(updates), _SLICE_UPDATES):
            if start:
                await asyncio.sleep(0)
            part = updates[start : start + _SLICE_UPDATES]
            try:
                await self._peer.notify_all(UPDATE, map(self._params, part))
            except HoldfastError as error:
                if error.code is not codes.TOO_LARGE:
                    raise
                for update in part:
                    await self._send(update)

    def _params(self, update: Update) -> dict[str, Any]:
        if FOR_SESSION not in update:
            return {"sessionId": self.session_id, "update": update}
        sent = {key: value for key, value in update.items() if key != FOR_SESSION}
        return {"sessionId": update[FOR_SESSION], "update": sent}

    # Notices

    async def _report_servers(self, refusals: Sequence[Refusal]) -> None:
        await self._report_once(f"{refusal.display_name}: {refusal.reason}" for refusal in refusals)

    async def _report_once(self, lines: Iterable[str]) -> None:
        """Report the lines that were not reported yet. The caller has masked secrets in them."""
        new = [line for line in dict.fromkeys(lines) if line not in self._reported]
        self._reported.update(new)
        await self._report(new, once=True)

    async def _report(self, lines: Iterable[str], *, once: bool = False) -> None:
        """Send each line as a notice if the editor supports notices; else keep it until the next prompt.

        With `once`, a kept line is not sent if this connection has sent it before, for a session in the same folder.
        """
        for line in lines:
            if self._door.supports_notices:
                await self._send({"sessionUpdate": "notice", "severity": "warning", "title": line})
            else:
                self._unsent_notices.append((line, once))

    async def _send_kept_notices(self) -> None:
        """Send the kept notices as a message of the agent, to this editor only. They are not stored."""
        lines, self._unsent_notices = self._unsent_notices, []
        new = [line for line, once in lines if not once or (self._cwd, line) not in self.sent_notices]
        if len(self.sent_notices) > _MAX_SENT_NOTICES:
            self.sent_notices.clear()
        self.sent_notices.update((self._cwd, line) for line in new)
        if new:
            text = "".join(f"- {line}\n" for line in new) + "\n"
            await self._send(agent_message(text, new_message_id()))
