"""Checks the folders that a client names for a session."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.resolve.protected import is_protected


def check_folder(name: str, value: Any, own: Sequence[str]) -> str:
    """Return the folder if a session may work in it: absolute, readable, and not Holdfast's own."""
    folder = _check_readable(name, value)
    if is_protected(os.path.realpath(folder), own):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{name}: {folder!r} is Holdfast's own and cannot be granted. Name another folder.",
        )
    return folder


def resolve_path(name: str, value: str) -> str:
    """Resolve the links of an absolute path; the folder need not exist."""
    return os.path.realpath(_check_absolute(name, value))


def _check_readable(name: str, value: Any) -> str:
    path = Path(_check_absolute(name, value))
    try:
        if path.is_dir() and os.access(path, os.R_OK | os.X_OK):
            return str(path)
        reason = "there is no folder that can be read at"
    except OSError:
        reason = "there can be no folder at"
    raise HoldfastError(codes.BAD_ARGUMENT, f"{name}: {reason} {value[:200]!r}.")


def _check_absolute(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{name} must be the absolute path of a folder.")
    if not Path(value).is_absolute() or "\0" in value:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{name} must be an absolute path, not {value[:200]!r}.")
    return value
