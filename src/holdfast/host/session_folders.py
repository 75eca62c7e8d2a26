"""Checks the folders that an editor or a user chooses for a session."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.real_path import real_path
from holdfast.resolve.protected_paths import is_protected

_MAX_PATH = 4096  # the kernel's own limit (PATH_MAX)
_MAX_FOLDERS = 100
_MAX_CHARACTERS = 64 * 1024
"""The maximum total length of the paths of a session's folders. Every list of sessions contains them."""


def check_folders(name: str, values: Sequence[Any], protected: Sequence[str]) -> tuple[str, ...]:
    """Check each folder with `check_folder`. `name` is the parameter that the folders came from."""
    if len(values) > _MAX_FOLDERS:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"{name} has {len(values)} folders; the maximum is {_MAX_FOLDERS}. Use fewer."
        )
    return tuple(check_folder(f"{name}[{index}]", value, protected) for index, value in enumerate(values))


def check_total_length(folders: Sequence[str]) -> None:
    """Raise BAD_ARGUMENT if the paths of a session's folders are too long in total."""
    total = sum(map(len, folders))
    if total > _MAX_CHARACTERS:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"The paths of the session's {len(folders)} folders have {total} characters in total; the maximum is "
            f"{_MAX_CHARACTERS}. Use fewer folders.",
        )


def check_folder(name: str, value: Any, protected: Sequence[str]) -> str:
    """Return the folder if its path is absolute, and it is readable and not one of Holdfast's own. Otherwise raise BAD_ARGUMENT.

    `name` is the parameter that the folder came from; the error message contains it.
    """
    folder = _check_readable(name, value)
    if is_protected(resolve_path(name, folder), protected):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{name}: {folder!r} is one of Holdfast's own folders. Use another folder.",
        )
    return folder


def resolve_path(name: str, value: str) -> str:
    """Resolve the symbolic links in an absolute path. The path need not exist."""
    try:
        return real_path(_check_absolute(name, value))
    except OSError as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{name}: {value[:200]!r} cannot be resolved: {error.strerror}. Give the path without symbolic links.",
        ) from None


def _check_readable(name: str, value: Any) -> str:
    path = Path(_check_absolute(name, value))
    try:
        if path.is_dir() and os.access(path, os.R_OK | os.X_OK):
            return str(path)
        problem = "is not a readable folder"
    except OSError as error:
        problem = f"cannot be accessed: {error.strerror}"
    raise HoldfastError(codes.BAD_ARGUMENT, f"{name}: {value[:200]!r} {problem}.")


def _check_absolute(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{name} must be the absolute path of a folder.")
    if len(value) > _MAX_PATH:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{name} has more than {_MAX_PATH} characters.")
    if not Path(value).is_absolute() or "\0" in value:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{name} must be an absolute path, not {value[:200]!r}.")
    return value
