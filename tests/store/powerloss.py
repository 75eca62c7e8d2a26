"""Simulate power cuts at random moments and count lost events: `python -m tests.store.powerloss --images 2000`.

The store's own code runs, from the appender to the SQL, on an apsw connection whose VFS records every
write, truncation and sync. From this recording the test makes images of the disk as a power cut could have
left it: synced writes are there; each write that was not synced is there, missing or torn between sectors,
in any order. Each image is then opened by the regular store.

apsw brings its own SQLite, and its VFS has no shared memory, so the recorded store runs in exclusive
locking mode: the log's index is then in memory, and the writes to the disk are the same.
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

from holdfast.audit.audit import Audit, verify_store
from holdfast.audit.chain import empty_chain_head
from holdfast.audit.record import AuditKind, Subject, make_record
from holdfast.model.event import Replied
from holdfast.model.ids import SessionId
from holdfast.store.pending_event import PendingEvent
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.database import Database, Synchronous, set_pragmas
from holdfast.store.sqlite.read_tx import SqlReadTx
from holdfast.store.sqlite.store import open_database
from holdfast.testing.store_contract.factories import create_session

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
    """From here on, this many events were acknowledged as durable."""

    events: int


DiskOperation = Wrote | Truncated | Synced | Deleted | Acknowledged


@dataclass
class PowerLossReport:
    """The losses of the simulated power cuts."""

    images: int = 0
    images_with_losses: int = 0
    events_lost: int = 0
    problems: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Recording:
    session_id: SessionId
    expected: list[str]
    operations: list[DiskOperation]


def powerloss(
    folder: Path, *, images: int, synchronous: Synchronous = Synchronous.FULL, seed: int = 1
) -> PowerLossReport:
    """Record one run, then inspect images of the disk at many moments."""
    rng, report = random.Random(seed), PowerLossReport()
    recording = asyncio.run(_record(folder / "recorded", synchronous, rng))
    for number, (disk, acknowledged) in enumerate(_images(recording.operations, images, rng)):
        image_folder = folder / f"image{number}"
        image_folder.mkdir()
        for name, content in disk.items():
            (image_folder / name).write_bytes(content)
        _inspect(image_folder / "holdfast.db", recording, acknowledged, report)
        for file in image_folder.iterdir():
            file.unlink()
        image_folder.rmdir()
    return report


async def _record(folder: Path, synchronous: Synchronous, rng: random.Random) -> Recording:
    operations: list[DiskOperation] = []
    vfs = RecordingVfs(f"recording-{id(operations)}", operations)

    def connect(path: Path) -> Database:
        db = ApswDatabase(apsw.Connection(str(path), vfs=vfs.name))
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        set_pragmas(db, synchronous)
        # Small, so that there are many checkpoints.
        db.execute("PRAGMA wal_autocheckpoint = 40")
        return db

    folder.mkdir()
    expected: list[str] = []
    async with SqliteStore(folder / "holdfast.db", connect=connect) as store:
        # Not entered: that would open a second connection, which exclusive locking refuses.
        audit = Audit(store)
        context = (await create_session(store)).context
        hold = await store.acquire(context.session_id)
        operations.append(Acknowledged(0))
        for _ in range(COMMITS):
            appender = store.appender(hold)
            pending_events: list[PendingEvent] = []
            for _ in range(rng.randint(1, 6)):
                text = f"{len(expected)} " + "x" * rng.choice((10, 400, 400, 3000))
                expected.append(text)
                made = make_record(
                    AuditKind.CALL,
                    context,
                    Subject(tool=str(len(expected))),
                    at=store.now(),
                    outcome="completed",
                )
                pending_events.append(
                    await appender.append(
                        Replied(message_id="msg_0", text=text),
                        key=str(len(expected)),
                        on_append=audit.append_callback(made),
                    )
                )
            for pending in pending_events:
                await pending.wait_durable()
            operations.append(Acknowledged(len(expected)))
    return Recording(context.session_id, expected, operations[: _last_acknowledgement(operations)])


def _last_acknowledgement(operations: list[DiskOperation]) -> int:
    return max(index for index, operation in enumerate(operations) if isinstance(operation, Acknowledged)) + 1


def _images(
    operations: list[DiskOperation], count: int, rng: random.Random
) -> Iterator[tuple[dict[str, bytes], int]]:
    """Images of the disk after power cuts at random moments, and the number of events acknowledged by then."""
    first = next(index for index, operation in enumerate(operations) if isinstance(operation, Acknowledged))
    moments = sorted(rng.randint(first + 1, len(operations)) for _ in range(count))
    durable: dict[str, bytearray] = {}
    pending: dict[str, list[Wrote | Truncated]] = {}
    acknowledged = done = 0
    for moment in moments:
        for operation in operations[done:moment]:
            match operation:
                case Wrote(file=file) | Truncated(file=file):
                    pending.setdefault(file, []).append(operation)
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
        yield {name: bytes(content) for name, content in _cut(durable, pending, rng)}, acknowledged


def _cut(
    durable: dict[str, bytearray], pending: dict[str, list[Wrote | Truncated]], rng: random.Random
) -> Iterator[tuple[str, bytearray]]:
    for file in {*durable, *pending}:
        content = bytearray(durable.get(file, b""))
        changes = list(pending.get(file, []))
        if rng.random() < 0.5:
            rng.shuffle(changes)
        probability = rng.choice((0.0, 0.5, 0.9))
        for change in changes:
            if rng.random() < probability:
                _apply(content, change)
            elif isinstance(change, Wrote) and rng.random() < 0.5:
                for piece in _torn(change, rng):
                    _apply(content, piece)
        if file in durable or content:
            yield file, content


def _torn(change: Wrote, rng: random.Random) -> Iterator[Wrote]:
    start = change.offset
    while start < change.offset + len(change.data):
        end = min((start // SECTOR + 1) * SECTOR, change.offset + len(change.data))
        if rng.random() < 0.5:
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


def _inspect(path: Path, recording: Recording, acknowledged: int, report: PowerLossReport) -> None:
    report.images += 1
    try:
        with closing(open_database(path)) as db:
            tx = SqlReadTx(db)
            events = tx.events(recording.session_id, 0, len(recording.expected) + 1)
            texts = [stored.event.text for stored in events if isinstance(stored.event, Replied)]
            verdict = verify_store(tx, empty_chain_head(tx.store_id()))
            findings = [row[0] for row in db.execute("PRAGMA integrity_check")]
    except Exception as error:
        report.problems.append(f"image {report.images}: {error!r}")
        return
    lost = max(0, acknowledged - len(events))
    report.events_lost += lost
    report.images_with_losses += lost > 0
    if [stored.seq for stored in events] != list(range(1, len(events) + 1)):
        report.problems.append(f"image {report.images}: gaps")
    if texts != recording.expected[: len(texts)]:
        report.problems.append(f"image {report.images}: events differ from those written")
    if (verdict.is_intact, verdict.seq) != (True, len(events)):
        report.problems.append(f"image {report.images}: {len(events)} events, and {verdict}")
    if findings != ["ok"]:
        report.problems.append(f"image {report.images}: {findings}")


class RecordingVfs(apsw.VFS):
    """The default VFS, with every change recorded."""

    def __init__(self, name: str, operations: list[DiskOperation]) -> None:
        self.name = name
        self._operations = operations
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> "RecordingFile":  # noqa: N802
        return RecordingFile(name, flags, self._operations)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self._operations.append(Deleted(Path(filename).name))


class RecordingFile(apsw.VFSFile):
    """One file, with every change recorded."""

    def __init__(self, name: Any, flags: list[int], operations: list[DiskOperation]) -> None:
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._file = "temporary" if filename is None else Path(filename).name
        self._operations = operations
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]
        self._record(Wrote(self._file, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._record(Truncated(self._file, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._record(Synced(self._file))

    def _record(self, operation: DiskOperation) -> None:
        if self._file in FILES:
            self._operations.append(operation)


class ApswDatabase:
    """An apsw connection with the interface that the store uses."""

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
    """The result of a statement, with the interface of sqlite3."""

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
    parser = argparse.ArgumentParser(
        description="Simulate power cuts at random moments and count lost events."
    )
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    reports: dict[Synchronous, PowerLossReport] = {}
    for synchronous in Synchronous:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            report = powerloss(
                Path(folder), images=options.images, synchronous=synchronous, seed=options.seed
            )
        reports[synchronous] = report
        print(f"seed {options.seed}, synchronous={synchronous}: {report}")
    if reports[Synchronous.FULL].events_lost or reports[Synchronous.FULL].problems:
        sys.exit("Acknowledged events were lost.")
    if not reports[Synchronous.NORMAL].events_lost:
        sys.exit("The control lost nothing: this test would not notice a loss.")


if __name__ == "__main__":
    main()
