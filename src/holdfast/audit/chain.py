"""The hash chain: the digest of each record covers the digest before it, so that every change is detected."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.store.anchor import Head
from holdfast.store.types import AuditRow

DIGEST_BYTES = 32


def parse_head(text: str) -> Head:
    """Read a head as it is printed: `number:digest`. Raises ValueError."""
    seq, _, digest = text.partition(":")
    head = Head(int(seq), bytes.fromhex(digest))
    if head.seq < 0 or len(head.digest) != DIGEST_BYTES:
        raise ValueError(text)
    return head


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of verifying a chain."""

    seq: int
    """The number of the last record; if a record is bad or missing, of the first such record; 0 if nothing could be checked."""
    anchored_seq: int
    """The `seq` of the anchored head; 0 if there is none."""
    problem: str = ""
    head: Head | None = field(default=None, compare=False)
    """The last record; None if there is a problem."""

    @property
    def is_good(self) -> bool:
        return not self.problem


def genesis(store_id: bytes, book: int = 0) -> Head:
    """The head of an empty chain. It differs for every store, and for every book of a store."""
    name = store_id if book == 0 else store_id + book.to_bytes(8, "big")
    return Head(0, hashlib.sha256(b"holdfast audit 1\0" + name).digest())


def next_row(head: Head | AuditRow, body: str, book: int = 0) -> AuditRow:
    """The row that appends this body to the chain of a book."""
    seq, text = head.seq + 1, body.encode("utf-8", "surrogateescape")
    digest = hashlib.sha256(head.digest + seq.to_bytes(8, "big") + len(text).to_bytes(8, "big") + text)
    return AuditRow(book=book, seq=seq, body=body, digest=digest.digest())


def verify(rows: Iterable[AuditRow], start: Head, anchored: Head | None) -> Verdict:
    """Verify the chain row by row, up to the first problem.

    The caller must read the anchored head before the rows. If it is ahead of them, the end of the chain was cut off.
    """
    if anchored is None:
        return Verdict(
            seq=0,
            anchored_seq=0,
            problem="The anchor is missing or unreadable: the end of the chain may be cut off.",
        )
    head = start
    if anchored.seq == 0 and anchored.digest != start.digest:
        return Verdict(seq=0, anchored_seq=0, problem="The anchor belongs to another store.")
    for row in rows:
        if row.seq != head.seq + 1:
            return Verdict(
                seq=head.seq + 1, anchored_seq=anchored.seq, problem=f"Record {head.seq + 1} is missing."
            )
        if next_row(head, row.body, row.book) != row:
            return Verdict(
                seq=row.seq,
                anchored_seq=anchored.seq,
                problem=f"Record {row.seq} was changed or moved: its digest does not match.",
            )
        head = Head(row.seq, row.digest)
        if row.seq == anchored.seq and row.digest != anchored.digest:
            return Verdict(
                seq=row.seq,
                anchored_seq=anchored.seq,
                problem=f"Record {row.seq} was rewritten: it is not the anchored one.",
            )
    if head.seq < anchored.seq:
        return Verdict(
            seq=head.seq + 1,
            anchored_seq=anchored.seq,
            problem=f"The chain ends at {head.seq}, but record {anchored.seq} was anchored: the end was cut off.",
        )
    return Verdict(seq=head.seq, anchored_seq=anchored.seq, head=head)
