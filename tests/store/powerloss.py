"""Cut the power at random moments and count what was lost: `python -m tests.store.powerloss --images 2000`.

The store's own code runs, from the appender to the SQL, on a connection of apsw's whose VFS notes every
write, truncation and sync that SQLite asks the system for. From these notes come images of the disk as a
power cut could have left it: what was synced is there; of what was not, each write is there, missing or
torn between sectors, in any order. Each image is then opened by the store as users have it.

apsw brings an SQLite of its own, and its VFS has no shared memory, so the recorded store runs in exclusive
locking mode: the index of the log is in memory then, and what goes to the disk is the same.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from holdfast.audit.anchor import MemoryAnchor
from holdfast.audit.audit import Audit, verify_store
from holdfast.audit.chain import genesis
from holdfast.audit.record import AuditKind, Subject, record
from holdfast.model.event import Replied
from holdfast.model.ids import SessionId
from holdfast.store.appender import Ticket
from holdfast.store.database import Database, Synchronous, prepare
from holdfast.store.sqlite import SqliteStore, open_database
from holdfast.store.sqlreads import SqlReads
from holdfast.testing.contract.given import create

SECTOR = 512
COMMITS = 150
FILES = ("holdfast.db", "holdfast.db-wal", "holdfast.db-journal")


@dataclass(frozen=True, slots=True)
class Wrote:
    file: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncated:
    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Synced:
    file: str


@dataclass(frozen=True, slots=True)
class Deleted:
    file: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """From here on, so many events were told to be durable."""

    events: int


Note = Wrote | Truncated | Synced | Deleted | Acknowledged


@dataclass
class Toll:
    """What the power cuts cost."""

    images: int = 0
    images_with_losses: int = 0
    events_lost: int = 0
    problems: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Tape:
    session_id: SessionId
    expected: list[str]
    notes: list[Note]


def powerloss(
    folder: Path, *, images: int, synchronous: Synchronous = Synchronous.FULL, seed: int = 1
) -> Toll:
    """Record one run, then look at many moments of it."""
    dice, toll = random.Random(seed), Toll()
    tape = asyncio.run(_record(folder / "recorded", synchronous, dice))
    for number, (disk, acknowledged) in enumerate(_images(tape.notes, images, dice)):
        place = folder / f"image{number}"
        place.mkdir()
        for name, content in disk.items():
            (place / name).write_bytes(content)
        _inspect(place / "holdfast.db", tape, acknowledged, toll)
        for file in place.iterdir():
            file.unlink()
        place.rmdir()
    return toll


async def _record(folder: Path, synchronous: Synchronous, dice: random.Random) -> Tape:
    notes: list[Note] = []
    vfs = NotingVfs(f"noting-{id(notes)}", notes)

    def connect(path: Path, synchronous: Synchronous) -> Database:
        db = ApswDatabase(apsw.Connection(str(path), vfs=vfs.name))
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        prepare(db, synchronous)
        # Small, so that the log is moved into the file many times.
        db.execute("PRAGMA wal_autocheckpoint = 40")
        return db

    folder.mkdir()
    expected: list[str] = []
    async with SqliteStore(folder / "holdfast.db", synchronous=synchronous, connect=connect) as store:
        # Not entered: that would read through a second connection, which exclusive locking keeps out.
        audit = Audit(store, MemoryAnchor())
        context = (await create(store)).context
        notes.append(Acknowledged(0))
        for _ in range(COMMITS):
            stream = store.appender(context.session_id)
            tickets: list[Ticket] = []
            for _ in range(dice.randint(1, 6)):
                text = f"{len(expected)} " + "x" * dice.choice((10, 400, 400, 3000))
                expected.append(text)
                made = record(AuditKind.CALL, context, Subject(tool=str(len(expected))), outcome="completed")
                tickets.append(
                    await stream.append(
                        Replied(message_id="msg_0", text=text), key=str(len(expected)), also=audit.adds(made)
                    )
                )
            for ticket in tickets:
                await ticket.durable()
            notes.append(Acknowledged(len(expected)))
    return Tape(context.session_id, expected, notes[: _last_acknowledgement(notes)])


def _last_acknowledgement(notes: list[Note]) -> int:
    return max(index for index, note in enumerate(notes) if isinstance(note, Acknowledged)) + 1


def _images(notes: list[Note], count: int, dice: random.Random) -> Iterator[tuple[dict[str, bytes], int]]:
    """Disks as power cuts at random moments could have left them, and how many events were acknowledged by then."""
    first = next(index for index, note in enumerate(notes) if isinstance(note, Acknowledged))
    moments = sorted(dice.randint(first + 1, len(notes)) for _ in range(count))
    durable: dict[str, bytearray] = {}
    pending: dict[str, list[Wrote | Truncated]] = {}
    acknowledged = done = 0
    for moment in moments:
        for note in notes[done:moment]:
            match note:
                case Wrote(file=file) | Truncated(file=file):
                    pending.setdefault(file, []).append(note)
                case Synced(file=file):
                    content = durable.setdefault(file, bytearray())
                    for change in pending.pop(file, []):
                        _apply(content, change)
                case Deleted(file=file):
                    durable.pop(file, None)
                    pending.pop(file, None)
                case Acknowledged(events=events):
                    acknowledged = events
        done = moment
        yield {name: bytes(content) for name, content in _cut(durable, pending, dice)}, acknowledged


def _cut(
    durable: dict[str, bytearray], pending: dict[str, list[Wrote | Truncated]], dice: random.Random
) -> Iterator[tuple[str, bytearray]]:
    for file in {*durable, *pending}:
        content = bytearray(durable.get(file, b""))
        changes = list(pending.get(file, []))
        if dice.random() < 0.5:
            dice.shuffle(changes)
        luck = dice.choice((0.0, 0.5, 0.9))
        for change in changes:
            if dice.random() < luck:
                _apply(content, change)
            elif isinstance(change, Wrote) and dice.random() < 0.5:
                for piece in _torn(change, dice):
                    _apply(content, piece)
        if file in durable or content:
            yield file, content


def _torn(change: Wrote, dice: random.Random) -> Iterator[Wrote]:
    start = change.offset
    while start < change.offset + len(change.data):
        end = min((start // SECTOR + 1) * SECTOR, change.offset + len(change.data))
        if dice.random() < 0.5:
            yield Wrote(change.file, start, change.data[start - change.offset : end - change.offset])
        start = end


def _apply(content: bytearray, change: Wrote | Truncated) -> None:
    match change:
        case Wrote(offset=offset, data=data):
            if len(content) < offset:
                content.extend(bytes(offset - len(content)))
            content[offset : offset + len(data)] = data
        case Truncated(size=size):
            del content[size:]


def _inspect(path: Path, tape: Tape, acknowledged: int, toll: Toll) -> None:
    toll.images += 1
    try:
        with closing(open_database(path, Synchronous.FULL)) as db:
            reads = SqlReads(db)
            events = reads.events(tape.session_id, 0, len(tape.expected) + 1)
            texts = [stored.event.text for stored in events if isinstance(stored.event, Replied)]
            verdict = verify_store(reads, genesis(reads.store_id()))
            findings = [row[0] for row in db.execute("PRAGMA integrity_check")]
    except Exception as error:
        toll.problems.append(f"image {toll.images}: {error!r}")
        return
    lost = max(0, acknowledged - len(events))
    toll.events_lost += lost
    toll.images_with_losses += lost > 0
    if [stored.seq for stored in events] != list(range(1, len(events) + 1)):
        toll.problems.append(f"image {toll.images}: gaps")
    if texts != tape.expected[: len(texts)]:
        toll.problems.append(f"image {toll.images}: other events than were written")
    if (verdict.good, verdict.seq) != (True, len(events)):
        toll.problems.append(f"image {toll.images}: {len(events)} events, and {verdict}")
    if findings != ["ok"]:
        toll.problems.append(f"image {toll.images}: {findings}")


class NotingVfs(apsw.VFS):
    """The system's files, with every change noted."""

    def __init__(self, name: str, notes: list[Note]) -> None:
        self.name = name
        self._notes = notes
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> "NotingFile":  # noqa: N802
        return NotingFile(name, flags, self._notes)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self._notes.append(Deleted(Path(filename).name))


class NotingFile(apsw.VFSFile):
    """One file, with every change noted."""

    def __init__(self, name: Any, flags: list[int], notes: list[Note]) -> None:
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._file = "temporary" if filename is None else Path(filename).name
        self._notes = notes
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]
        self._note(Wrote(self._file, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._note(Truncated(self._file, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._note(Synced(self._file))

    def _note(self, note: Note) -> None:
        if self._file in FILES:
            self._notes.append(note)


class ApswDatabase:
    """A connection of apsw's, as the store uses connections."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> "ApswRows":
        cursor: Any = self._connection.cursor()
        return ApswRows(cursor.execute(sql, tuple(parameters)), self._connection.changes())

    def close(self) -> None:
        self._connection.close()


class ApswRows:
    """The answer to a statement, as sqlite3 gives it."""

    def __init__(self, cursor: Any, rowcount: int) -> None:
        self._cursor = cursor
        self.rowcount = rowcount

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)


def main() -> None:
    parser = argparse.ArgumentParser(description="Cut the power at random moments and count what was lost.")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    tolls: dict[Synchronous, Toll] = {}
    for synchronous in Synchronous:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            toll = powerloss(Path(folder), images=options.images, synchronous=synchronous, seed=options.seed)
        tolls[synchronous] = toll
        print(f"seed {options.seed}, synchronous={synchronous}: {toll}")
    if tolls[Synchronous.FULL].events_lost or tolls[Synchronous.FULL].problems:
        sys.exit("Acknowledged events were lost.")
    if not tolls[Synchronous.NORMAL].events_lost:
        sys.exit("The control lost nothing: this test would not notice a loss.")


if __name__ == "__main__":
    main()
