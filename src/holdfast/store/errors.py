"""Errors of stores: which are temporary, and which errors of the file system they come from."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError


def is_transient(error: BaseException | None) -> bool:
    """Whether the same write may succeed later: the disk is full, or another process has locked the file."""
    return isinstance(error, HoldfastError) and error.code in (codes.STORE_FULL, codes.STORE_BUSY)


@contextmanager
def translate_file_errors(path: Path | str) -> Iterator[None]:
    """Raise errors of the file system as a `HoldfastError` that the user can act on."""
    try:
        yield
    except OSError as error:
        if (translated := _explain(error, Path(path))) is None:
            raise
        raise translated from error


def store_error(code: Code, path: Path | str) -> HoldfastError:
    """The error with this code and a message about this file."""
    return HoldfastError(code, _MESSAGES[code.name].format(path=path))


def _explain(error: OSError, path: Path) -> HoldfastError | None:
    match error.errno:
        case errno.ENOENT:
            message = f"There is no folder '{path.parent}'. Create it, or choose another path."
        case errno.EEXIST | errno.ENOTDIR if (file := _file_in_place_of_folder(path)) is not None:
            message = f"'{path}' cannot be created: '{file}' is not a folder. Choose another path."
        case errno.ENAMETOOLONG:
            message = f"'{path}' cannot be opened: its name is too long. Choose another path."
        case errno.ELOOP:
            message = f"'{path}' cannot be opened: it is a link to itself, or a chain of too many links. Remove it, or choose another path."
        case number:
            code = _ERRNO_CODES.get(number or 0)
            return None if code is None else store_error(code, path)
    return HoldfastError(codes.STORE_UNREADABLE, message)


def _file_in_place_of_folder(path: Path) -> Path | None:
    return next((part for part in reversed(path.parents) if part.exists() and not part.is_dir()), None)


_ERRNO_CODES: dict[int, Code] = {
    errno.ENOSPC: codes.STORE_FULL,
    errno.EDQUOT: codes.STORE_FULL,
    errno.EROFS: codes.STORE_READ_ONLY,
    errno.EACCES: codes.STORE_UNREADABLE,
    errno.EPERM: codes.STORE_UNREADABLE,
    errno.EISDIR: codes.STORE_UNREADABLE,
    errno.EEXIST: codes.FILE_EXISTS,
    errno.EIO: codes.STORE_FAILED,
}
_MESSAGES = {
    "STORE_FULL": "No space is left to write '{path}'. This write was not stored.",
    "STORE_READ_ONLY": "'{path}' is on a disk or in a folder that cannot be written to. Nothing was changed.",
    "STORE_CORRUPT": "'{path}' is damaged or not a database. Nothing was changed.",
    "STORE_BUSY": "'{path}' is locked by another process. This write was not stored. Try again.",
    "STORE_UNREADABLE": "'{path}' cannot be opened.",
    "FILE_EXISTS": "'{path}' cannot be created: it already exists. Nothing was changed.",
    "STORE_CLOSED": "'{path}' was closed while it was read.",
    "STORE_FAILED": "The disk failed while reading or writing '{path}'.",
}
