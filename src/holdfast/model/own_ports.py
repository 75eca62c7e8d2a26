"""The ports on which Holdfast's processes with this data folder listen. Servers and web pages of sessions must not reach them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.model.private_files import make_private_folder

_FOLDER = "ports"  # one file for each port, which the listening process keeps locked
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def hold_port(data_dir: Path, port: int) -> Iterator[None]:
    """While the block runs, other processes see that this one listens on a port."""
    folder = data_dir / _FOLDER
    make_private_folder(folder)
    handle = os.open(folder / str(port), _FLAGS | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def own_ports(data_dir: Path) -> set[int]:
    """The ports that processes hold now."""
    return {
        int(file.name) for file in (data_dir / _FOLDER).glob("*") if file.name.isdecimal() and _is_held(file)
    }


def _is_held(file: Path) -> bool:
    with suppress(FileNotFoundError):
        handle = os.open(file, _FLAGS)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
    return False
