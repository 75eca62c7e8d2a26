"""Connects an editor to a session of this process."""

import asyncio
import logging
from collections.abc import Sequence

from holdfast.acp.config_options import OptionValues
from holdfast.acp.door import EditorDoor
from holdfast.acp.editor_session import EditorSession
from holdfast.acp.updates import available_commands
from holdfast.agent.model.model_agent import ModelAgent
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import StopReason
from holdfast.model.json import JsonObject
from holdfast.model.permission import DoorKind, Mode
from holdfast.model.resolution import Refusal
from holdfast.session.session import Session
from holdfast.session.subscription import Subscription
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)


class OwnSession(EditorSession):
    """A session of this process. When the editor leaves, the session is closed, unless other doors may still answer its questions."""

    def __init__(
        self, session: Session, door: EditorDoor, peer: Peer, *, replay: bool, wait_seconds: float
    ) -> None:
        """With `replay`, `start` first sends all stored events."""
        super().__init__(str(session.context.session_id), session.context.cwd, door, peer)
        self.agents: tuple[tuple[str, str], ...] = ()
        """The names and descriptions of the agents that the editor can choose."""
        self._session = session
        self._attachment = session.attach(door)
        self._replay = replay
        self._events: Subscription | None = None
        self._sending: asyncio.Task[None] | None = None
        self._is_first_turn = True
        self._wait_seconds = wait_seconds
        """How long the first prompt, or `session/resume`, waits for servers that are still starting."""
        self._wait_deadline: float | None = None
        """When waiting for servers ends. The first wait sets it."""
        self._startup: asyncio.Task[None] | None = None
        """Runs until every server is available or has failed."""

    @property
    def is_closed(self) -> bool:
        return self._session.is_closing or self.failure is not None

    @property
    def options(self) -> OptionValues:
        policy, agent = self._session.permission, self._session.agent
        return OptionValues(
            mode=policy.mode,
            max_mode=policy.rules.max_mode_of(DoorKind.ACP),
            trust=self._session.context.trust_level,
            model=agent.chosen_model if isinstance(agent, ModelAgent) else "",
            models=agent.model_choices if isinstance(agent, ModelAgent) else (),
            agent=self._session.definition.name if self._session.definition is not None else "",
            agents=self.agents,
        )

    async def start(self) -> None:
        self._last_replayed = self._session.record.events.last
        self._events = self._attachment.subscribe(0 if self._replay else self._last_replayed)
        self._sending = asyncio.create_task(self._send_all_events(self._events))
        if self._replay:
            await self._events.wait_handled(self._last_replayed)
            self._check_failure()
        self._startup = asyncio.create_task(self._report_startup())
        self.ready.set()

    async def prompt(self, blocks: Sequence[JsonObject], *, is_cancelled: bool = False) -> StopReason:
        try:
            turn = await self._attachment.prompt(blocks, before=self._before_turn, is_cancelled=is_cancelled)
        except HoldfastError:
            await self._wait_sent()
            raise
        if self._events is not None:
            await self._events.wait_handled(turn.last_seq)
        self._check_failure()
        return turn.reason

    def cancel(self) -> None:
        self._attachment.cancel()

    async def change_mode(self, mode: Mode) -> None:
        await self._session.permission.change_mode(mode, DoorKind.ACP)
        await self._wait_sent()

    async def set_model(self, name: str) -> None:
        await self._session.set_model(name)

    def check_can_reopen(self) -> None:
        if self._session.is_busy or self._session.doors.count > 1:
            raise HoldfastError(
                codes.BUSY,
                "The agent can be changed only while no turn is running and no other editor or terminal is attached.",
                hint="Wait until the turn has ended, and detach other editors and terminals. Then try again.",
            )

    async def lower_trust(self) -> None:
        await self._session.lower_trust()
        await self._wait_sent()

    async def stop(self) -> None:
        self.cancel()

    async def leave(self) -> None:
        """Detach the editor. If no other door may answer questions, close the session."""
        if self._startup is not None:
            self._startup.cancel()
            await asyncio.wait([self._startup])
        if not self._attachment.detach():
            await self._session.close()  # closing also sends the last updates
        else:
            self._session.opener_has_left = True
            if self._events is not None:
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

    async def _send_all_events(self, events: Subscription) -> None:
        try:
            while batch := await events.next_batch():
                await self._send_events(batch)
        except HoldfastError as error:
            # The session's events are still stored.
            log.warning("events are no longer sent", extra={"reason": error.message})
            if error.code is not codes.CONNECTION_CLOSED:
                self.failure = HoldfastError(
                    error.code,
                    f"The events of the session could not be read. {error.message}",
                    hint="Load the session again, when the store can be read.",
                    session_id=self.session_id,
                )
        finally:
            events.close()

    def _check_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def _wait_sent(self) -> None:
        if self._events is not None:
            await self._events.wait_handled(self._session.record.events.last)

    async def _before_turn(self) -> None:
        if self._is_first_turn:
            self._is_first_turn = False
            await self.wait_for_servers()
            await self._wait_sent()  # by then `_on_new_event` has reported the refusals
            if starting := self._session.starting:
                await self._report([f"Still starting: {', '.join(starting)}."])
        await self._send_kept_notices()

    async def _report_startup(self) -> None:
        """Send the list of slash commands, and report the servers that were refused."""
        try:
            await self._send(available_commands(self._session.agent.commands))
            await self._report_servers(await self._session.stored_refusals())
            await self._session.wait_ready_and_store()
            await self._report_servers(await self._session.stored_refusals())
        except HoldfastError as error:
            log.warning("could not report the servers", extra={"reason": error.message})
        except Exception:
            log.exception("could not report the servers")

    async def _report_servers(self, refusals: Sequence[Refusal]) -> None:
        lines = [f"{refusal.display_name}: {refusal.reason}" for refusal in refusals]
        lines += [f"{warning.subject}: {warning.text}" for warning in self._session.warnings]
        await self._report_once(map(self._session.record.mask.mask_all, lines))
