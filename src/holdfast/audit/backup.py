"""A copy of a store, with the anchor that its audit is checked against."""

from pathlib import Path

from holdfast.audit.anchor import FileAnchor
from holdfast.store import upkeep


def backup(path: Path, copy: Path) -> None:
    """Copy the store, then the anchor as it was before: it may lag behind the copy, and never runs ahead."""
    anchor = FileAnchor.beside(path).read()
    upkeep.backup(path, copy)
    if anchor is not None:
        FileAnchor.beside(copy).write(anchor)
