"""Create folders that only their owner can open."""

from pathlib import Path


def make_private_folder(path: Path) -> None:
    """Create a folder in the data folder, and the data folder, with mode 0700. Existing folders are not changed.

    `mkdir(parents=True)` would create the data folder with the default mode.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
