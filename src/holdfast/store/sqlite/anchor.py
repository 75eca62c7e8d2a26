"""The anchor of an SQLite store: a file next to the database."""

import glob
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.model.untrusted_file import UnusableFileError, read_untrusted_file
from holdfast.store.anchor import Head
from holdfast.store.errors import translate_file_errors

_MAX_BYTES = 4096
_DIGEST_BYTES = 32
_STALE_SECONDS = 60.0  # an older temporary file was left by a crash


class _StoredHead(msgspec.Struct, forbid_unknown_fields=True):
    seq: int
    digest: str


class FileAnchor:
    """A file next to the database, replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def for_database(cls, database: Path) -> "FileAnchor":
        return cls(database.with_name(database.name + "-anchor"))

    def exists(self) -> bool:
        return self.path.exists()

    def read(self) -> Head | None:
        try:
            content = msgspec.json.decode(self._read_bytes(), type=_StoredHead)
            head = Head(content.seq, bytes.fromhex(content.digest))
        except (ValueError, msgspec.DecodeError):
            return None
        return head if head.seq >= 0 and len(head.digest) == _DIGEST_BYTES else None

    def write(self, head: Head) -> None:
        # The temporary file has a random name: two threads or containers can have the same process id.
        new = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}.new")
        with translate_file_errors(self.path):
            self._remove_stale_files()
            self._replace(new, head)

    def _read_bytes(self) -> bytes:
        with translate_file_errors(self.path):
            try:
                return read_untrusted_file(self.path, limit=_MAX_BYTES)
            except (FileNotFoundError, UnusableFileError):
                return b""

    def _remove_stale_files(self) -> None:
        for stale in self.path.parent.glob(f"{glob.escape(self.path.name)}.*.new"):
            with suppress(OSError):
                if stale.stat().st_mtime < time.time() - _STALE_SECONDS:
                    stale.unlink()

    def _replace(self, new: Path, head: Head) -> None:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(_StoredHead(head.seq, head.digest.hex())) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
