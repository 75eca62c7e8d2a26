"""A check that other users cannot change the data folder, and the names of two of its parts.

The keys, approvals and workspaces in the data folder decide what sessions may do.
"""

import shlex
import stat
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.untrusted_file import belongs_to_other_user, is_writable_by_others

DATABASE_FILE = "holdfast.db"
KEYS_FOLDER = "keys"


def check_data_folder(data_dir: Path) -> None:
    """Raise if the data folder is not a folder, if another user can change it, or if every user can replace it. It may be missing.

    The owners of the folders above it, and the groups that can write to these folders, are trusted.
    """
    existing = next((part for part in (data_dir, *data_dir.parents) if part.exists()), None)
    if existing is not None and not existing.is_dir():
        raise _unusable(
            f"`data_dir` is '{data_dir}', and '{existing}' is not a folder.",
            "Set `data_dir` to the path of a folder.",
        )
    real = data_dir.resolve()
    try:
        status = real.stat()
    except OSError:
        return
    if is_writable_by_others(status):
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise _unusable(
            f"Other users can change the data folder '{real}' (its mode is {mode}).",
            f"Run: {shlex.join(['chmod', 'go-w', str(real)])}",
        )
    if belongs_to_other_user(status):
        raise _unusable(
            f"The data folder '{real}' belongs to another user.", "Set `data_dir` to a folder of your own."
        )
    for parent in real.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise _unusable(
                f"Other users can replace the data folder '{real}': they can write to '{parent}'.",
                f"Set `data_dir` to another folder, or run: {shlex.join(['chmod', 'o-w', str(parent)])}",
            )


def _unusable(message: str, hint: str) -> HoldfastError:
    return HoldfastError(codes.STORE_UNREADABLE, message, hint=hint)
