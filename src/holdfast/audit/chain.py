"""A hash chain: the digest of each record covers the previous digest, so a changed record breaks the chain."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.store.anchor import Head
from holdfast.store.types import AuditRow

DIGEST_BYTES = 32


def parse_head(text: str) -> Head:
    """Parse a head, as `number:digest`. Raise ValueError if the text is anything else."""
    seq, _, digest = text.partition(":")
    head = Head(int(seq), bytes.fromhex(digest))
    if head.seq < 0 or len(head.digest) != DIGEST_BYTES:
        raise ValueError(text)
    return head


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of verifying a chain."""

    seq: int
    """The number of the last record or, if the chain is broken, of the first wrong or missing one; 0 if no record was checked."""
    anchored_seq: int
    """The number of the anchored record; 0 if there is none."""
    problem: str = ""
    """What is wrong, as a sentence; empty if nothing is."""
    head: Head | None = field(default=None, compare=False)
    """None if there is a problem."""

    is_unreadable: bool = False
    """Whether the file is damaged, or the anchor is missing or damaged. That need not be tampering."""

    @property
    def is_intact(self) -> bool:
        return not self.problem

    @property
    def summary(self) -> str:
        what = "The audit cannot be verified" if self.is_unreadable else "The audit was tampered with"
        return f"{what}: {self.problem}"


def empty_chain_head(store_id: bytes, book: int = 0) -> Head:
    """The head of an empty chain. It differs for every store, and for every book of a store."""
    name = store_id if book == 0 else store_id + book.to_bytes(8, "big")
    return Head(0, hashlib.sha256(b"holdfast audit 1\0" + name).digest())


def next_row(head: Head | AuditRow, body: str, book: int = 0) -> AuditRow:
    """The row that appends this body to the chain."""
    seq, text = head.seq + 1, body.encode("utf-8", "surrogateescape")
    digest = hashlib.sha256(head.digest + seq.to_bytes(8, "big") + len(text).to_bytes(8, "big") + text)
    return AuditRow(book=book, seq=seq, body=body, digest=digest.digest())


def verify(rows: Iterable[AuditRow], start: Head, anchored: Head | None) -> Verdict:
    """Verify the chain row by row, up to the first problem.

    `start` is the head of the empty chain. The caller must read the anchored head before the rows, because other processes append.
    """
    if anchored is None:
        return Verdict(
            seq=0,
            anchored_seq=0,
            problem="The anchor is missing or unreadable: the end of the chain may have been cut off.",
            is_unreadable=True,
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
                problem=f"Record {row.seq} was rewritten: its digest differs from that in the anchor.",
            )
    if head.seq < anchored.seq:
        return Verdict(
            seq=head.seq + 1,
            anchored_seq=anchored.seq,
            problem=f"The chain ends at {head.seq}, but record {anchored.seq} was anchored: the end was cut off.",
        )
    return Verdict(seq=head.seq, anchored_seq=anchored.seq, head=head)
