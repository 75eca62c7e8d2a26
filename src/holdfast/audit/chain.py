"""The chain: each record's digest covers the one before, so that none can be changed, moved or left out unseen."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.store.rows import AuditRow

DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Head:
    """A place in the chain and its digest; place 0 is before the first record."""

    seq: int
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How far the chain holds. `seq` is the last good record, or the first bad one when there is a problem."""

    seq: int
    anchored: int
    problem: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problem


def genesis(store_id: bytes) -> Head:
    """Where the chain of this store begins; records of another store do not fit."""
    return Head(0, hashlib.sha256(b"holdfast audit 1\0" + store_id).digest())


def link(before: Head, body: str) -> AuditRow:
    """The next row after a head."""
    seq, text = before.seq + 1, body.encode("utf-8", "surrogateescape")
    digest = hashlib.sha256(before.digest + seq.to_bytes(8, "big") + len(text).to_bytes(8, "big") + text)
    return AuditRow(seq=seq, body=body, digest=digest.digest())


def verify(rows: Iterable[AuditRow], start: Head, anchor: Head | None) -> Verdict:
    """Follow the chain row by row and name the first place where it does not hold.

    The anchor must have been read before the rows: it may lag behind them, and never runs ahead.
    """
    anchored = 0 if anchor is None else anchor.seq
    if anchor is None:
        return Verdict(
            seq=0,
            anchored=0,
            problem="The anchor is missing or unreadable: the end of the chain may be cut off.",
        )
    head = start
    if anchor.seq == 0 and anchor.digest != start.digest:
        return Verdict(seq=0, anchored=0, problem="The anchor belongs to another store.")
    for row in rows:
        if row.seq != head.seq + 1:
            return Verdict(seq=head.seq + 1, anchored=anchored, problem=f"Record {head.seq + 1} is missing.")
        if link(head, row.body) != row:
            return Verdict(
                seq=row.seq,
                anchored=anchored,
                problem=f"Record {row.seq} was changed, or stands where another one stood: its digest does not fit.",
            )
        head = Head(row.seq, row.digest)
        if row.seq == anchor.seq and row.digest != anchor.digest:
            return Verdict(
                seq=row.seq,
                anchored=anchored,
                problem=f"Record {row.seq} was written anew: it is not the one anchored.",
            )
    if head.seq < anchor.seq:
        return Verdict(
            seq=head.seq + 1,
            anchored=anchored,
            problem=f"The chain ends at {head.seq}, but record {anchor.seq} was anchored: the end was cut off.",
        )
    return Verdict(seq=head.seq, anchored=anchored)
