"""Hashes the arguments of calls with a key, so that a short secret in them cannot be guessed from the hash."""

import hashlib
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.private_files import make_private_folder
from holdfast.model.untrusted_file import read_untrusted_file

log = logging.getLogger(__name__)

KEY_FILE = "audit-key"
PREFIX = "hmac-sha256:"
"""Earlier versions wrote plain SHA-256 hashes, without a prefix."""
_KEY_BYTES = 32
_BLOCK_BYTES = hashlib.sha256().block_size
_MAX_FILE_BYTES = 1024  # the file has a key of 64 hexadecimal digits


class ArgumentHasher:
    """Hashes with a key that is stored in a folder. Without a folder, or if the file cannot be read or stored, it generates a key for itself.

    If the file has other content than a key, `load` raises `BAD_KEY`: with a new key, new hashes could not be compared with earlier ones.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._states: tuple[Any, Any] | None = None
        """The inner and the outer SHA-256 of an HMAC with the key and no data. Each hash continues copies of them, which is faster than
        the module `hmac`."""

    def load(self) -> None:
        """Load the key, or generate it. Does nothing if it is loaded already."""
        if self._states is not None:
            return
        try:
            key = _read_or_create_key(self._folder) if self._folder is not None else _generate_key()
        except OSError as error:
            key = _generate_key()
            extra = {"folder": str(self._folder), "reason": error.strerror}
            log.warning(
                "audit key cannot be read or stored: the argument hashes of this process cannot be compared with others",
                extra=extra,
            )
        self._states = _begin_hmac(key)

    def __call__(self, arguments: bytes) -> str:
        """Hash the JSON text of a call's arguments."""
        if self._states is None:
            self.load()
            assert self._states is not None
        inner, outer = self._states
        inner, outer = inner.copy(), outer.copy()
        inner.update(arguments)
        outer.update(inner.digest())
        return f"{PREFIX}{outer.hexdigest()}"


def audit_key_secrets(folder: Path) -> Iterator[str]:
    """The audit key in this folder, as hexadecimal text, so that it can be masked. Nothing if it cannot be read."""
    try:
        yield _read_key(folder).hex()
    except (OSError, HoldfastError):
        return


def _begin_hmac(key: bytes) -> tuple[Any, Any]:
    """The two hashes of HMAC-SHA-256 (RFC 2104) for a key of up to 64 bytes, before any data."""
    padded = key.ljust(_BLOCK_BYTES, b"\0")
    inner = bytes(byte ^ 0x36 for byte in padded)  # the RFC's `ipad`
    outer = bytes(byte ^ 0x5C for byte in padded)  # the RFC's `opad`
    return hashlib.sha256(inner), hashlib.sha256(outer)


def _generate_key() -> bytes:
    return secrets.token_bytes(_KEY_BYTES)


def _read_or_create_key(folder: Path) -> bytes:
    try:
        return _read_key(folder)
    except FileNotFoundError:
        pass
    make_private_folder(folder)
    descriptor, temporary = mkstemp(prefix=".new-", dir=folder)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{_generate_key().hex()}\n")
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):  # another process has just created the file
            (folder / KEY_FILE).hardlink_to(temporary)
    finally:
        Path(temporary).unlink()
    return _read_key(folder)


def _read_key(folder: Path) -> bytes:
    try:
        key = bytes.fromhex(read_untrusted_file(folder / KEY_FILE, limit=_MAX_FILE_BYTES).decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise HoldfastError(
            codes.BAD_KEY,
            f"'{folder / KEY_FILE}' is not a key for the audit. Restore it from a backup, or remove it: then new"
            " hashes of arguments cannot be compared with earlier ones.",
        )
    return key
