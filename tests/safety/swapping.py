"""Swap a file or a folder for a link while something else uses it."""

import contextlib
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def swapping(path: Path, target: Path) -> Iterator[None]:
    """Replace the path by a link to the target, and back, as fast as possible."""
    spare, stop, dice = path.with_name("spare"), threading.Event(), random.Random(17)

    def swap() -> None:
        while not stop.is_set():
            path.rename(spare)
            with contextlib.suppress(FileExistsError):  # a concurrent write has created a new file there
                path.symlink_to(target)
            stop.wait(dice.random() * 0.0005)
            while spare.exists():
                _remove(path)
                with contextlib.suppress(OSError):
                    spare.rename(path)
            stop.wait(dice.random() * 0.0005)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)
