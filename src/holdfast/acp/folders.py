"""The folders that an editor names: absolute, there, and its own to grant; each refused by its name in the message."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.resolve.own import is_own


def grantable(name: str, value: Any, own: Sequence[str]) -> str:
    """A folder that a session may work in: one that can be read, and not one of our own."""
    folder = _folder(name, value)
    if is_own(os.path.realpath(folder), own):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{name}: {folder!r} is Holdfast's own and cannot be granted. Name another folder.",
        )
    return folder


def real(name: str, value: str) -> str:
    """Where a path really leads, whether or not there is a folder."""
    return os.path.realpath(_absolute(name, value))


def _folder(name: str, value: Any) -> str:
    path = Path(_absolute(name, value))
    try:
        if path.is_dir() and os.access(path, os.R_OK | os.X_OK):
            return str(path)
        reason = "there is no folder that can be read at"
    except OSError:
        reason = "there can be no folder at"
    raise HoldfastError(codes.BAD_ARGUMENT, f"{name}: {reason} {value[:200]!r}.")


def _absolute(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{name} must be the absolute path of a folder.")
    if not Path(value).is_absolute() or "\0" in value:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{name} must be an absolute path, not {value[:200]!r}.")
    return value
