"""Refuse a data folder that other users can change: its keys, approvals and workspaces decide what sessions may do."""

import os
import stat
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError


def check_data_folder(data_dir: Path) -> None:
    """Raise if another user could write to the data folder, or put another in its place. A missing one is not checked."""
    real = data_dir.resolve()
    try:
        status = real.stat()
    except OSError:
        return
    if status.st_mode & stat.S_IWOTH or _is_writable_by_other_group(status):
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise _unsafe(
            f"Other users can change the data folder '{real}' (its mode is {mode}).",
            f"Run: chmod go-w '{real}'",
        )
    if os.geteuid() and status.st_uid not in (0, os.geteuid()):
        raise _unsafe(
            f"The data folder '{real}' belongs to another user.", "Set `data_dir` to a folder of your own."
        )
    for parent in real.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise _unsafe(
                f"Other users can replace the data folder '{real}': they can write to '{parent}'.",
                f"Run: chmod o-w '{parent}', or set `data_dir` to another folder.",
            )


def _is_writable_by_other_group(status: os.stat_result) -> bool:
    """Whether a group other than the user's own may write. Many systems give each user a private primary group."""
    return bool(status.st_mode & stat.S_IWGRP) and status.st_gid not in (0, os.getegid())


def _unsafe(message: str, hint: str) -> HoldfastError:
    return HoldfastError(codes.STORE_UNREADABLE, message, hint=hint)
