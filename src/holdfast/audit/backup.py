"""A copy of a store, with the anchor that its audit is checked against."""

from pathlib import Path

from holdfast.audit.anchor import FileAnchor
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store import upkeep


def backup(path: Path, copy: Path) -> None:
    """Copy the store, then the anchor as it was before: it may lag behind the copy, and never runs ahead."""
    beside = FileAnchor.beside(copy)
    if beside.path.exists():
        raise HoldfastError(
            codes.FILE_EXISTS,
            f"'{beside.path}' exists already, and belongs to another copy. Nothing was changed.",
        )
    anchor = FileAnchor.beside(path).read()
    upkeep.backup(path, copy)
    if anchor is None:
        return
    try:
        beside.write(anchor)
    except BaseException:
        # Without its anchor it would look tampered with.
        copy.unlink()
        raise
