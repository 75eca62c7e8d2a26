"""Open a confined server's roots."""

import errno
import os
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.mounts import is_within
from holdfast.model.real_path import real_path
from holdfast.sandbox.opened_path import OpenedPath, PathOpener
from holdfast.sandbox.own_code import SYSTEM_FOLDERS

_MAX_DEPTH = 64  # while a server starts, each folder above its root is locked, which takes a descriptor


def open_root(path: str, opener: PathOpener) -> OpenedPath:
    """Open a root. The result stays the same folder even if the path is changed later."""
    _check_path(path)
    opened = open_no_symlinks(path, opener)
    if not opened.is_folder:
        raise _open_error(path, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    return opened


def open_no_symlinks(path: str, opener: PathOpener) -> OpenedPath:
    """Open a file or folder. Fail if any part of its path is a symbolic link."""
    try:
        opened = opener.open(path, links="refuse")
    except OSError as error:
        raise _open_error(path, error) from None
    if not opened.is_folder and not opened.is_file:
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"{path!r} cannot be opened: it is neither a file nor a folder. Use another path.",
        )
    return opened


def _check_path(path: str) -> None:
    if not path.startswith("/") or "\0" in path or os.path.normpath(path) != path:
        raise HoldfastError(
            codes.SPAWN_FAILED, f"{path!r} cannot be a root: use the folder's absolute, normalized path."
        )
    if path.count("/") > _MAX_DEPTH:
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"{path[:200]!r}… cannot be a root: it lies more than {_MAX_DEPTH} folders deep. Use a folder further up.",
        )
    if any(
        is_within(path, folder) or (is_within(folder, path) and Path(folder).exists())
        for folder in SYSTEM_FOLDERS
    ):
        raise HoldfastError(
            codes.SPAWN_FAILED,
            f"{path!r} cannot be a root: it belongs to the system, or contains folders that do. Use a folder of your own.",
        )


def _open_error(path: str, error: OSError) -> HoldfastError:
    if error.errno == errno.ELOOP:
        try:
            advice = f"Use the real path: {real_path(path)!r}."
        except OSError:
            advice = "Use a path without links."
        text = f"{path!r} is, or contains, a symbolic link. {advice}"
    else:
        reason = (error.strerror or "unknown error").lower()
        text = f"{path!r} cannot be opened: {reason}. Use another path."
    return HoldfastError(codes.SPAWN_FAILED, text)
