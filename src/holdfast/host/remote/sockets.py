"""Where hosts listen: one Unix socket each, in the folder `sockets` of the data folder, which only its owner can open."""

import os
import shlex
import socket
import stat
import struct
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

SOCKETS_FOLDER = "sockets"
_MAX_PATH = 100  # the kernel's limit for the path of a socket is 108 bytes
_BACKLOG = 16
_MAX_CHECKED = 100  # how many sockets are checked, because their processes may have ended


def open_listening_socket(data_dir: Path, name: str) -> socket.socket:
    """Listen on the socket with this name. Sockets of processes that have ended are removed."""
    folder = data_dir / SOCKETS_FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(folder)
    _remove_stale(folder)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with _ShortPath(folder, name) as path:
            listening.bind(path)
        (folder / name).chmod(0o600)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def remove_socket(data_dir: Path, name: str) -> None:
    """Remove the socket with this name."""
    (data_dir / SOCKETS_FOLDER / name).unlink(missing_ok=True)


def connect_socket(data_dir: Path, name: str) -> socket.socket:
    """Connect to the host that listens on the socket with this name; raise OSError if there is none, or if its queue is full.

    Never blocks: waiting for a stopped process whose queue is full would block the whole event loop. A stopped process whose
    queue is not full is not noticed here.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    connection.setblocking(False)
    try:
        with _ShortPath(data_dir / SOCKETS_FOLDER, name) as path:
            connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def peer_uid(connection: socket.socket) -> int | None:
    """The user id of the process at the other end; None if the system cannot tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1]


class _ShortPath:
    """The path of a socket, short enough for the kernel: a long path is replaced by a path through an open descriptor of the folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._descriptor = -1

    def __enter__(self) -> str:
        path = str(self._folder / self._name)
        if len(os.fsencode(path)) <= _MAX_PATH:
            return path
        self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._descriptor}/{self._name}"

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _check_private(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise HoldfastError(
            codes.STORE_UNREADABLE,
            f"'{folder}' is not a folder that only you can open.",
            hint=f"Remove it, or run: {shlex.join(['chmod', '700', str(folder)])}"
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            else "Remove it.",
        )


def _remove_stale(folder: Path) -> None:
    """Remove the sockets of processes that have ended."""
    for path in sorted(folder.iterdir())[:_MAX_CHECKED]:
        # A datagram socket cannot be connected to a stream socket: the error tells whether a process listens, and the attempt
        # takes no place in the queue of a stopped process.
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            with _ShortPath(folder, path.name) as short_path:
                probe.connect(short_path)
        except ConnectionRefusedError:  # the process has ended
            path.unlink(missing_ok=True)
        except OSError:
            pass
        finally:
            probe.close()
