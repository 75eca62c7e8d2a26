"""The file that holds the host's keys: readable by its owner alone, changed by one process at a time."""

import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.token.keys import Key, made, private_jwks, public_jwks, read_private

PRIVATE = "context-keys.json"
PUBLIC = "context-jwks.json"
_FILE_BYTES = 1024 * 1024

Stamp: TypeAlias = tuple[int, ...]
"""What changes whenever the file or its permissions do."""


class KeyFile:
    """Keys in a folder of their own; beside them the public key set, for verifiers on the same machine."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._private = folder / PRIVATE
        self.public = folder / PUBLIC

    def stamp(self) -> Stamp | None:
        """The file's stamp; None when there is no file."""
        try:
            return _stamp(self._private.lstat())
        except FileNotFoundError:
            return None

    def read(self) -> tuple[tuple[Key, ...], Stamp]:
        """The keys and the stamp they were read under; made now when there are none."""
        try:
            keys, stamp = self._read()
        except FileNotFoundError:
            return self._made()
        if not self._is_published(keys[0]):  # somebody removed it, or was killed while changing the keys
            with self._locked():
                self._publish(self._read()[0])
        return keys, stamp

    def change(self, change: Callable[[tuple[Key, ...]], tuple[Key, ...]]) -> None:
        """Replace the keys and the public set, with no other process between reading and writing."""
        self.read()
        with self._locked():
            self._write(change(self._read()[0]))

    def _made(self) -> tuple[tuple[Key, ...], Stamp]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(self._folder, self._folder.stat(), "700")
        with self._locked():
            if not self._private.exists():  # else another process was first, and its key is ours
                self._write((made(),))
            return self._read()

    def _read(self) -> tuple[tuple[Key, ...], Stamp]:
        try:
            descriptor = os.open(self._private, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _bad(self._private, f"{error.strerror}. It must be a plain file of your own.") from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise _bad(self._private, "It must be a plain file of your own.")
            _check(self._private, found, "600")
            _check(self._folder, self._folder.stat(), "700")
            return read_private(os.read(descriptor, _FILE_BYTES)), _stamp(found)
        finally:
            os.close(descriptor)

    def _write(self, keys: tuple[Key, ...]) -> None:
        _replace(self._private, private_jwks(keys), 0o600)
        self._publish(keys)

    def _publish(self, keys: tuple[Key, ...]) -> None:
        _replace(self.public, public_jwks(keys, self._clock()), 0o644)

    def _is_published(self, key: Key) -> bool:
        try:
            return f'"{key.key_id}"' in self.public.read_text(encoding="ascii")
        except (OSError, ValueError):
            return False

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _stamp(found: os.stat_result) -> Stamp:
    return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid)


def _check(path: Path, found: os.stat_result, mode: str) -> None:
    if found.st_uid != os.geteuid():
        raise _bad(path, "It belongs to another user, who could have read or made it.")
    if found.st_mode & 0o077:
        raise _bad(path, f"Others may open it. If none did: chmod {mode} {path}. Otherwise remove it.")


def _replace(path: Path, content: JsonObject, mode: int) -> None:
    """Write the whole file beside its place, then move it there: no reader ever sees half of it."""
    from tempfile import mkstemp

    descriptor, name = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, mode)
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _bad(path: Path, message: str) -> HoldfastError:
    return HoldfastError(codes.BAD_KEY, f"The key in {str(path)!r} cannot be used. {message}")
