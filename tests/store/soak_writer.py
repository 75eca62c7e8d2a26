"""A process that writes to a store until it is killed, and says what it was told is durable.

It speaks in lines on standard output: `event N` for every event that was acknowledged. On a session that
an earlier process left behind, it goes on where the log ends, and first repeats what it cannot be sure of.
"""

import asyncio
import os
import sys
from pathlib import Path

from holdfast.audit.anchor import FileAnchor
from holdfast.audit.audit import Audit
from holdfast.audit.record import AuditKind, Subject, record
from holdfast.model.event import Prompted, Replied
from holdfast.model.ids import SessionId
from holdfast.store.appender import Ticket
from holdfast.store.interrupted import end_interrupted
from holdfast.store.sqlite import SqliteStore

# As far back as a writer can be unsure: what was in flight when it was killed.
WINDOW = 64


async def write(path: Path, session_id: SessionId, *, early: bool) -> None:
    async with (
        SqliteStore(path) as store,
        Audit(store, FileAnchor.beside(path), anchor_seconds=0.01) as audit,
    ):
        await store.hold(session_id)
        await store.write(lambda tx: end_interrupted(tx, session_id))
        session = await store.session(session_id)
        assert session is not None
        events = [stored async for stored in store.events(session_id)]
        numbers = [int(stored.key) for stored in events if stored.key and stored.key.isdigit()]
        start = max(numbers, default=0)
        stream = store.appender(session_id, window=WINDOW)
        told = asyncio.Queue[tuple[int, Ticket]](WINDOW)
        telling = asyncio.create_task(_tell(told, early=early))
        number = max(0, start - WINDOW)
        while not telling.done():
            number += 1
            made = record(AuditKind.CALL, session.context, Subject(tool=str(number)), outcome="completed")
            ticket = await stream.append(_event(number), key=str(number), also=audit.adds(made))
            await told.put((number, ticket))
        await telling


def _event(number: int) -> Replied | Prompted:
    if number % 50 == 1:
        return Prompted(
            turn_id=f"turn_{number}", message_id=f"msg_{number}", blocks=({"type": "text", "text": "go"},)
        )
    return Replied(message_id=f"msg_r{number // 50}", text=f"{number} " + "x" * (number * 37 % 900))


async def _tell(told: asyncio.Queue[tuple[int, Ticket]], *, early: bool) -> None:
    while True:
        number, ticket = await told.get()
        if not early:
            await ticket.durable()
        os.write(1, b"event %d\n" % number)


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), SessionId(sys.argv[2]), early="--early" in sys.argv))
