"""Hash the files of programs. Each file is read once. All files together may have 128 MiB, and take 15 seconds."""

import errno
import hashlib
import os
import time

from holdfast.model.untrusted_file import UnusableFileError, open_untrusted_file

MAX_BYTES = 128 * 1024 * 1024
MAX_SCANNED_BYTES = 256 * 1024
"""How many bytes at the beginning of each file are searched for imports and scripts."""
READ_SECONDS = 15.0
_BLOCK_BYTES = 256 * 1024


class FileHashes:
    """The hashes of the files of several programs, which share one deadline and one size limit."""

    def __init__(self, seconds: float = READ_SECONDS) -> None:
        self._deadline = time.monotonic() + seconds
        self._bytes_left = MAX_BYTES
        self._known: dict[tuple[str, int, int, int], tuple[str, bytes]] = {}

    def read(self, path: str) -> tuple[str, bytes, os.stat_result]:
        """The hash of a file, its first `MAX_SCANNED_BYTES` bytes, and its status."""
        descriptor = open_untrusted_file(path)
        try:
            status = os.fstat(descriptor)
            key = path, status.st_ino, status.st_size, status.st_ctime_ns
            if key not in self._known:
                self._known[key] = self._hash(descriptor, path, status.st_size)
        finally:
            os.close(descriptor)
        return *self._known[key], status

    def check_deadline(self, path: str) -> None:
        """Raise an error if the deadline has passed."""
        if time.monotonic() > self._deadline:
            raise UnusableFileError(errno.ETIMEDOUT, "part of a program that takes too long to read", path)

    def _hash(self, descriptor: int, path: str, size: int) -> tuple[str, bytes]:
        sha256, start = hashlib.sha256(), b""
        self._check_size(path, size)
        while block := os.read(descriptor, _BLOCK_BYTES):
            self.check_deadline(path)
            self._check_size(path, len(block))
            self._bytes_left -= len(block)
            sha256.update(block)
            start = start or block
        return sha256.hexdigest(), start[:MAX_SCANNED_BYTES]

    def _check_size(self, path: str, size: int) -> None:
        if size > self._bytes_left:
            raise UnusableFileError(errno.EFBIG, f"too large (more than {MAX_BYTES} bytes in all)", path)
