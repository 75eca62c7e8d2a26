"""Hash the arguments of calls with a key, so that an audit record does not reveal a short secret that was masked."""

import hmac
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.private_files import make_private_folder
from holdfast.model.untrusted_file import read_untrusted_file

log = logging.getLogger(__name__)

KEY_FILE = "audit-key"
PREFIX = "hmac-sha256:"
"""Records from before hashes had a key contain a plain SHA-256, without a prefix."""
_KEY_BYTES = 32
_MAX_FILE_BYTES = 1024


class ArgumentHasher:
    """Hashes with the key in a folder, which is generated at the first use. Without a folder, the key is not kept."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._key = b""

    def load(self) -> None:
        """Load or generate the key, unless it is loaded already."""
        if self._key:
            return
        try:
            self._key = _read_or_create(self._folder) if self._folder is not None else _generate()
        except OSError as error:
            self._key = _generate()
            extra = {"folder": str(self._folder), "reason": error.strerror}
            log.warning("hashes of arguments cannot be compared with later ones: no key stored", extra=extra)

    def __call__(self, arguments: bytes) -> str:
        """The hash of a call's arguments, given as the JSON text that was received."""
        if not self._key:
            self.load()
        return f"{PREFIX}{hmac.digest(self._key, arguments, 'sha256').hex()}"


def secrets_in_audit_key(folder: Path) -> Iterator[str]:
    """The key in this folder, as it is written in its file; nothing if there is none."""
    try:
        yield _read(folder).hex()
    except (OSError, HoldfastError):
        return


def _generate() -> bytes:
    return secrets.token_bytes(_KEY_BYTES)


def _read_or_create(folder: Path) -> bytes:
    try:
        return _read(folder)
    except FileNotFoundError:
        pass
    make_private_folder(folder)
    descriptor, temporary = mkstemp(prefix=".new-", dir=folder)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{_generate().hex()}\n")
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):  # another process has just created it
            (folder / KEY_FILE).hardlink_to(temporary)
    finally:
        Path(temporary).unlink()
    return _read(folder)


def _read(folder: Path) -> bytes:
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
