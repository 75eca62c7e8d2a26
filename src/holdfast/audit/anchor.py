"""The anchor: the chain's head, kept outside of the table, so that a chain that was cut off or begun anew is seen."""

import glob
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.audit.chain import DIGEST_BYTES, Head
from holdfast.store.database import told

_LARGEST = 4096
# After this, nobody is about to put it in the anchor's place any more.
_LEFT_SECONDS = 60.0


class Anchor(Protocol):
    """Where the head is kept."""

    def read(self) -> Head | None:
        """The head that was kept last; None when there is none, or none that can be read."""
        ...

    def write(self, head: Head) -> None:
        """Keep this head instead."""
        ...


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    seq: int
    digest: str


class FileAnchor:
    """A small file beside the database, replaced whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def beside(cls, database: Path) -> "FileAnchor":
        """The anchor that belongs to a database."""
        return cls(database.with_name(database.name + "-anchor"))

    def read(self) -> Head | None:
        """The head that was kept last."""
        try:
            written = msgspec.json.decode(self._text(), type=_Written)
            head = Head(written.seq, bytes.fromhex(written.digest))
        except (ValueError, msgspec.DecodeError):
            return None
        return head if head.seq >= 0 and len(head.digest) == DIGEST_BYTES else None

    def write(self, head: Head) -> None:
        """Keep this head instead; whoever reads meanwhile sees the one or the other."""
        # A name that nobody else has: two hosts may share a process, and two containers a process id.
        new = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}.new")
        with told(self.path):
            self._remove_what_a_crash_left()
            self._replace(new, head)

    def _text(self) -> bytes:
        with told(self.path):
            try:
                with self.path.open("rb") as file:
                    return file.read(_LARGEST)
            except FileNotFoundError:
                return b""

    def _remove_what_a_crash_left(self) -> None:
        for left in self.path.parent.glob(f"{glob.escape(self.path.name)}.*.new"):
            with suppress(OSError):
                if left.stat().st_mtime < time.time() - _LEFT_SECONDS:
                    left.unlink()

    def _replace(self, new: Path, head: Head) -> None:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(_Written(head.seq, head.digest.hex())) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


class MemoryAnchor:
    """An anchor for tests, and for a store in memory."""

    def __init__(self) -> None:
        self._head: Head | None = None

    def read(self) -> Head | None:
        """The head that was kept last."""
        return self._head

    def write(self, head: Head) -> None:
        """Keep this head instead."""
        self._head = head
