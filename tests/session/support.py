"""What the tests of sessions share: a scripted user, an agent that waits, a host whose disk can be full."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.agent.agent import Command, TurnContext
from holdfast.audit.record import AuditKind, AuditRecord, decode_record
from holdfast.host.host import Host
from holdfast.model.door import DoorCapabilities, PermissionQuestion
from holdfast.model.event import Decision, Event, StopReason
from holdfast.model.json import JsonObject
from holdfast.session.subscription import EventFeed
from holdfast.store.sqlite import SqliteStore
from tests.connect.conftest import HostFactory, counter_entry
from tests.journeys.editor import Editor, RpcError
from tests.store.disks import FailingDisk

LONG = "x" * 200_000


class ScriptedUser:
    """A door whose user gives these answers when asked for permission."""

    capabilities = DoorCapabilities(permission=True)

    def __init__(self, *decisions: Decision) -> None:
        self._decisions = [*decisions]

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        return self._decisions.pop(0)

    async def elicit(self, params: JsonObject) -> JsonObject:
        raise NotImplementedError

    async def sample(self, params: JsonObject) -> JsonObject:
        raise NotImplementedError

    async def read_text(self, path: str) -> str:
        raise NotImplementedError

    async def write_text(self, path: str, text: str) -> None:
        raise NotImplementedError


class WaitingAgent:
    """An agent that waits until it is cancelled, then runs `when_cancelled`."""

    commands: tuple[Command, ...] = ()

    def __init__(self, when_cancelled: Callable[[], Awaitable[StopReason]] | None = None) -> None:
        self.prompts: list[str] = []
        self.started = asyncio.Event()
        self._when_cancelled = when_cancelled

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> StopReason:
        self.prompts.append(str(blocks[0]["text"]))
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self._when_cancelled is None:
                raise
            return await self._when_cancelled()
        return StopReason.END_TURN


def text_prompt(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}]


async def audit_records(host: Host, *kinds: AuditKind) -> Sequence[AuditRecord]:
    rows = await host.store.read(lambda tx: [*tx.audit_rows()])
    return [record for record in (decode_record(row.body) for row in rows) if record.kind in kinds]


@asynccontextmanager
async def failing_host(make_host: HostFactory, tmp_path: Path) -> AsyncIterator[tuple[Host, FailingDisk]]:
    """A host whose disk can be made to fail."""
    disk = FailingDisk()
    async with (
        SqliteStore(tmp_path / "holdfast.db", connect=disk.open) as store,
        Host(settings=make_host({"c": counter_entry()}).settings, store=store) as host,
    ):
        yield host, disk
        disk.fails_with = 0


async def prompt_until_full(zed: Editor, session: str) -> RpcError:
    while True:
        try:
            await zed.prompt(session, LONG)
        except RpcError as full:
            return full


class Watcher:
    """Subscribes to a session's new events, and keeps them."""

    def __init__(self, feed: EventFeed, on_event: Callable[[Event], object] | None = None) -> None:
        self.events: list[Event] = []
        self._feed = feed
        self._on_event = on_event
        self._subscription = feed.subscribe(feed.last)

    async def __aenter__(self) -> "Watcher":
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._subscription.close()
        await self._task

    async def caught_up(self) -> list[Event]:
        """Wait for the events that are stored by now, and return all so far."""
        await self._subscription.wait_handled(self._feed.last)
        return self.events

    async def _watch(self) -> None:
        async for stored in self._subscription:
            self.events.append(stored.event)
            if self._on_event is not None:
                self._on_event(stored.event)
