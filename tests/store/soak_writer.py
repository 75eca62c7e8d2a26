"""A process that writes to a store until it is killed, and prints each event that the store acknowledged.

It prints a line `event N` for every acknowledged event. If an earlier process wrote to the session, it
continues at the end of the log, and first repeats the events that may not have been acknowledged.
"""

import asyncio
import os
import sys
from pathlib import Path

from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind, Subject, make_record
from holdfast.model.event import Prompted, Replied
from holdfast.model.ids import SessionId
from holdfast.store.end_interrupted import end_interrupted
from holdfast.store.pending_event import PendingEvent
from holdfast.store.sqlite import SqliteStore

# The number of events that may have been in flight when the writer was killed.
WINDOW = 64


async def write(path: Path, session_id: SessionId, *, acknowledge_early: bool) -> None:
    async with (
        SqliteStore(path) as store,
        Audit(store, anchor_seconds=0.01) as audit,
    ):
        hold = await store.acquire(session_id)
        await store.write(lambda tx: end_interrupted(tx, hold))
        session = await store.session(session_id)
        assert session is not None
        events = [stored async for stored in store.events(session_id)]
        numbers = [int(stored.key) for stored in events if stored.key and stored.key.isdigit()]
        start = max(numbers, default=0)
        appender = store.appender(hold, window=WINDOW)
        queue = asyncio.Queue[tuple[int, PendingEvent]](WINDOW)
        printer = asyncio.create_task(_print_acknowledged(queue, acknowledge_early=acknowledge_early))
        number = max(0, start - WINDOW)
        while not printer.done():
            number += 1
            made = make_record(
                AuditKind.CALL,
                session.context,
                Subject(tool=str(number)),
                at=store.now(),
                outcome="completed",
            )
            pending = await appender.append(
                _event(number), key=str(number), on_append=audit.append_callback(made)
            )
            await queue.put((number, pending))
        await printer


def _event(number: int) -> Replied | Prompted:
    if number % 50 == 1:
        return Prompted(
            turn_id=f"turn_{number}", message_id=f"msg_{number}", blocks=({"type": "text", "text": "go"},)
        )
    return Replied(message_id=f"msg_r{number // 50}", text=f"{number} " + "x" * (number * 37 % 900))


async def _print_acknowledged(
    queue: asyncio.Queue[tuple[int, PendingEvent]], *, acknowledge_early: bool
) -> None:
    while True:
        number, pending = await queue.get()
        if not acknowledge_early:
            await pending.wait_durable()
        os.write(1, b"event %d\n" % number)


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), SessionId(sys.argv[2]), acknowledge_early="--early" in sys.argv))
