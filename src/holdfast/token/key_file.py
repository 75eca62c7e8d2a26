"""The file with the host's keys. Only its owner can read it."""

import fcntl
import json
import os
import shlex
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.model.private_files import make_private_folder
from holdfast.model.untrusted_file import (
    UnusableFileError,
    open_untrusted_file,
    read_descriptor,
    read_untrusted_file,
)
from holdfast.token.jws import encode_base64url
from holdfast.token.signing_keys import Key, generate_key, private_jwks, public_jwks, read_private

_PRIVATE_NAME = "context-keys.json"
_PUBLIC_NAME = "context-jwks.json"
_MAX_FILE_BYTES = 1024 * 1024

FileVersion: TypeAlias = tuple[int, ...]
"""Values from `stat` that change when the file or its permissions change."""


class KeyFile:
    """The file with the private keys, and next to it a file with the public keys."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._private = folder / _PRIVATE_NAME
        # Used for every token. `lstat` is faster with a string than with a `Path`.
        self._private_path = str(self._private)
        self.public_file = folder / _PUBLIC_NAME

    def version(self) -> FileVersion | None:
        """The current version of the file; None when there is no file."""
        try:
            return _file_version(os.lstat(self._private_path))
        except FileNotFoundError:
            return None

    def read(self) -> tuple[tuple[Key, ...], FileVersion]:
        """The keys, and the version of the file that they were read from. If there is no file, create it."""
        try:
            keys, version = self._read()
        except FileNotFoundError:
            return self._create()
        if not self._is_published(keys[0]):
            # The public set was removed, or a process was killed during a rotation.
            with self._locked():
                self._publish(self._read()[0])
        return keys, version

    def update(self, change: Callable[[tuple[Key, ...]], tuple[Key, ...]]) -> None:
        """Replace the keys with the result of `change`, under a lock, and write the new public set."""
        self.read()
        with self._locked():
            self._write(change(self._read()[0]))

    def _create(self) -> tuple[tuple[Key, ...], FileVersion]:
        """Create the file with a new key, unless another process has just done it. Return its keys and version."""
        make_private_folder(self._folder)
        _check_private(self._folder, self._folder.stat(), "700")
        with self._locked():
            if not self._private.exists():  # otherwise another process has just created it
                self._write((generate_key(),))
            return self._read()

    def _read(self) -> tuple[tuple[Key, ...], FileVersion]:
        """The keys and the version of the file. Raise if other users could have read or written it."""
        try:
            descriptor = open_untrusted_file(self._private, follow_link=False)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _bad_key_file(
                self._private, f"It must be a regular file that you own ({error.strerror})."
            ) from None
        try:
            status = os.fstat(descriptor)
            _check_private(self._private, status, "600")
            _check_private(self._folder, self._folder.stat(), "700")
            text = read_descriptor(descriptor, limit=_MAX_FILE_BYTES, name=str(self._private))
            return read_private(text), _file_version(status)
        except UnusableFileError as error:
            raise _bad_key_file(self._private, f"It has {error.strerror}.") from None
        finally:
            os.close(descriptor)

    def _write(self, keys: tuple[Key, ...]) -> None:
        _write_file(self._private, private_jwks(keys), 0o600)
        self._publish(keys)

    def _publish(self, keys: tuple[Key, ...]) -> None:
        _write_file(self.public_file, public_jwks(keys, self._clock()), 0o644)

    def _is_published(self, key: Key) -> bool:
        try:
            return f'"{key.key_id}"' in read_untrusted_file(self.public_file, limit=_MAX_FILE_BYTES).decode(
                "ascii"
            )
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


def secrets_in_key_folder(folder: Path) -> Iterator[str]:
    """The private keys in the folder, in several encodings, so that they can be masked. Nothing if the file cannot be read."""
    try:
        keys = read_private(read_untrusted_file(folder / _PRIVATE_NAME, limit=_MAX_FILE_BYTES))
    except (OSError, HoldfastError):
        return
    for key in keys:
        if key.secret is not None:
            yield from (encode_base64url(key.secret), b64encode(key.secret).decode(), key.secret.hex())


def _file_version(status: os.stat_result) -> FileVersion:
    return (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode, status.st_uid)


def _check_private(path: Path, status: os.stat_result, mode: str) -> None:
    """Raise unless only this user can open the file or folder. `mode` is the mode that it should have."""
    if status.st_uid != os.geteuid():
        raise _bad_key_file(
            path,
            "It belongs to another user, who may have read or written it. Remove it: Holdfast then creates a new one.",
        )
    if status.st_mode & 0o077:
        raise _bad_key_file(
            path,
            "Other users can open it. Remove it or, if you are sure that no other user has opened it, "
            f"run: {shlex.join(['chmod', mode, str(path)])}",
        )


def _write_file(path: Path, content: JsonObject, mode: int) -> None:
    from tempfile import mkstemp

    descriptor, name = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, mode)
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _bad_key_file(path: Path, message: str) -> HoldfastError:
    return HoldfastError(codes.BAD_KEY, f"{str(path)!r} cannot be used for keys. {message}")
