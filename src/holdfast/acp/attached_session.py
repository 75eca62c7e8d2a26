"""Connects an editor to a session that another process has open."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.acp.config_options import OptionValues
from holdfast.acp.door import EditorDoor
from holdfast.acp.editor_session import EditorSession
from holdfast.acp.updates import available_commands
from holdfast.host.join import OtherOwner
from holdfast.host.remote.client import AttachRequest, RemoteSession, attach_to_owner
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Event, ModeChanged, StopReason, TrustLowered
from holdfast.model.json import Json, JsonObject
from holdfast.model.permission import DoorKind, Mode
from holdfast.model.trust import Trust
from holdfast.model.visible_text import display_name
from holdfast.session.run_to_completion import run_to_completion
from holdfast.store.types import StoredEvent
from holdfast.wire.peer import Peer

log = logging.getLogger(__name__)

_MAX_NAMES = 5


class AttachedSession(EditorSession):
    """A session of another process. The editor gets its events, and can prompt, answer questions and cancel.

    The session goes on when the editor leaves.
    """

    def __init__(self, owner: OtherOwner, door: EditorDoor, peer: Peer, *, wait_seconds: float) -> None:
        super().__init__(str(owner.lease.session_id), owner.requested.cwd, door, peer)
        self._owner = owner
        self._wait_seconds = wait_seconds
        self._connection = AsyncExitStack()
        self._remote: RemoteSession | None = None
        self._options = OptionValues(mode=Mode.ASK, max_mode=Mode.ASK, trust=Trust.DIRECT)
        self._unused: list[str] = []
        """What the session ignores of what the editor sent or offered, as parts of a notice: "does not start the servers …"."""
        self._started = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def attach(self, data_dir: Path, *, replay: bool, client_servers: Sequence[Json]) -> None:
        """Connect to the process that has the session open. With `replay`, the editor first gets all stored events."""
        requested = self._owner.requested
        request = AttachRequest(
            door=DoorKind.ACP,
            after=0 if replay else None,
            trust=requested.trust_level,
            roots=requested.roots,
        )
        self._remote = remote = await self._connection.enter_async_context(
            attach_to_owner(
                data_dir, self._owner.lease, door=self._door, on_events=self._on_events, request=request
            )
        )
        self._last_replayed = remote.last_seq if replay else 0
        self._options = OptionValues(
            mode=Mode(remote.description.mode),
            max_mode=remote.max_mode,
            trust=Trust(remote.description.trust),
        )
        self._unused = _describe_unused(remote, client_servers, self._door)

    @property
    def is_closed(self) -> bool:
        return self._remote is None or self._remote.ended.is_set()

    @property
    def options(self) -> OptionValues:
        return self._options

    async def start(self) -> None:
        remote = self._require_remote()
        self._started.set()
        await remote.wait_handled(self._last_replayed)
        if remote.ended.is_set():
            raise self._ended_error()
        if self._unused:
            pid = self._owner.lease.owner.pid
            await self._report(
                [f"This session is open in process {pid}. It {', and it '.join(self._unused)}."]
            )
        self._run_in_background(self._report_startup(remote))
        self._run_in_background(self._report_end(remote))
        self.ready.set()

    async def prompt(self, blocks: Sequence[JsonObject], *, is_cancelled: bool = False) -> StopReason:
        try:
            remote = self._require_remote()
            await self._send_kept_notices()
            turn = await remote.prompt(blocks, is_cancelled=is_cancelled)
        except HoldfastError as error:
            if error.code is codes.CONNECTION_CLOSED:
                raise self._ended_error() from None
            raise
        return turn.reason

    def cancel(self) -> None:
        if not self.is_closed:
            self._run_in_background(self._require_remote().cancel())

    async def change_mode(self, mode: Mode) -> None:
        await self._require_remote().change_mode(mode)

    async def lower_trust(self) -> None:
        await self._require_remote().lower_trust()

    async def wait_for_servers(self) -> None:
        remote = self._require_remote()
        if remote.description.starting:
            await remote.describe(wait_seconds=self._wait_seconds)

    async def stop(self) -> None:
        """Disconnect from the other process. A turn that the editor started goes on."""
        await run_to_completion(self._connection.aclose())

    async def leave(self) -> None:
        """Detach the editor. The session goes on in its own process."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.stop()
        self.ready.set()

    async def _on_events(self, batch: Sequence[StoredEvent]) -> None:
        await self._started.wait()
        await self._send_events(batch)

    async def _on_new_event(self, event: Event) -> None:
        match event:
            case ModeChanged(mode=mode):
                self._options = replace(self._options, mode=Mode(mode))
            case TrustLowered():
                self._options = replace(self._options, trust=Trust.SANDBOXED)
            case _:
                pass
        await super()._on_new_event(event)

    async def _report_startup(self, remote: RemoteSession) -> None:
        description = remote.description
        await self._send(available_commands(description.commands))
        await self._report_once(
            f"{display_name(server)}: {reason}" for server, reason in description.refusals.items()
        )

    async def _report_end(self, remote: RemoteSession) -> None:
        await remote.ended.wait()
        self.failure = self._ended_error()
        if self._door.supports_notices:
            await self._report([f"{remote.end_reason} To continue, load the session again."])

    def _require_remote(self) -> RemoteSession:
        if self._remote is None:
            raise HoldfastError(codes.CONNECTION_CLOSED, "This editor is not attached to the session.")
        return self._remote

    def _ended_error(self) -> HoldfastError:
        return HoldfastError(
            codes.CONNECTION_CLOSED,
            self._require_remote().end_reason,
            hint="Load the session again. What was stored is kept.",
            session_id=self.session_id,
        )

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except HoldfastError as error:
                log.debug("background task of an attached session failed", extra={"reason": error.message})
            except Exception:
                log.exception("background task of an attached session crashed")

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _describe_unused(remote: RemoteSession, client_servers: Sequence[Json], door: EditorDoor) -> list[str]:
    description = remote.description
    known = {*description.servers, *description.starting, *description.refusals}
    names = [str(entry.get("name")) for entry in client_servers if isinstance(entry, dict)]
    clauses: list[str] = []
    if not_used := [name for name in names if name not in known]:
        more = ", …" if len(not_used) > _MAX_NAMES else ""
        clauses.append(
            f"does not start the servers that this editor sent ({', '.join(map(display_name, not_used[:_MAX_NAMES]))}{more})"
        )
    if door.capabilities.read_files or door.capabilities.write_files:
        clauses.append("does not see text that is not saved in this editor")
    return clauses
