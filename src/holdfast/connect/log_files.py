"""The log files of servers: a folder for each session, with one file per server, limited in size."""

import hashlib
import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

LOG_FOLDER = "logs"
"""The folder of all logs, in the data folder."""
SHARED = "shared"
"""The name of the folder with the logs of servers that sessions share."""
MAX_FILE_BYTES = 256 * 1024
"""A log file that would exceed this size becomes the older part, and a new file begins."""
# `remove_oldest` keeps at most this many bytes of logs, of at most this many sessions.
_MAX_TOTAL = 64 * 1024 * 1024
_MAX_SESSIONS = 1000
_MAX_NAME = 200  # characters of a file name
_OLDER = ".log.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """The log of one server in one session."""

    path: Path
    session: str
    """The session's id; `SHARED` for a server that sessions share."""
    server: str
    size: int
    written: float
    """In seconds since 1970."""


def logs_command(server: str) -> str:
    """The command that prints the log of a server."""
    return shlex.join(["holdfast", "servers", "logs", server])


def log_path(folder: Path, session_id: str, server: str) -> Path:
    """Where the log of a server is. `session_id` is empty for a server that sessions share."""
    name = quote(server, safe="")
    if len(name) > _MAX_NAME:
        name = f"{name[:_MAX_NAME]}-{hashlib.sha256(server.encode(errors='replace')).hexdigest()[:16]}"
    return folder / (session_id or SHARED) / f"{name}.log"


def append(path: Path, data: bytes) -> None:
    """Append lines to a log file. If it would get too long, make it the older part and begin a new file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if path.stat().st_size + len(data) > MAX_FILE_BYTES:
            path.replace(path.with_suffix(_OLDER))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def find_logs(folder: Path) -> list[LogFile]:
    """All logs, the most recently written first."""
    return sorted(_iter_logs(folder), key=lambda log: log.written, reverse=True)


def read_log(path: Path) -> str:
    """The whole log, the older part first."""
    parts: list[bytes] = []
    for part in (path.with_suffix(_OLDER), path):
        with suppress(FileNotFoundError):
            parts.append(part.read_bytes())
    return b"".join(parts).decode(errors="replace")


class LogReader:
    """Reads what is appended to a log. No line is lost if at most one new file begins between two reads."""

    def __init__(self, path: Path, *, at_end: bool = False) -> None:
        """With `at_end`, skip the lines that the log already has."""
        self._path = path
        self._inode = 0
        """The inode of the file that was read last; 0 if there is none."""
        self._position = 0
        """How many bytes of that file were read."""
        if at_end:
            with suppress(FileNotFoundError):
                status = path.stat()
                self._inode, self._position = status.st_ino, status.st_size

    def read_lines(self) -> list[str]:
        """The complete lines that were appended since the last call."""
        inode, start, appended = 0, 0, b""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            start = self._position if inode == self._inode else 0
            file.seek(start)
            appended = file.read()
        older = b"" if inode == self._inode else self._read_older_part()
        whole_lines = appended[: appended.rfind(b"\n") + 1]
        self._inode, self._position = inode, start + len(whole_lines)
        return (older + whole_lines).decode(errors="replace").splitlines()

    def _read_older_part(self) -> bytes:
        """What was appended to the file before it became the older part."""
        with suppress(FileNotFoundError), self._path.with_suffix(_OLDER).open("rb") as file:
            if os.fstat(file.fileno()).st_ino == self._inode:
                file.seek(self._position)
                return file.read()
        return b""


def remove_session_logs(folder: Path, session_id: str) -> None:
    """Remove the logs of a session, if there are any."""
    shutil.rmtree(folder / session_id, ignore_errors=True)


def remove_oldest(folder: Path) -> None:
    """Remove all logs of the sessions whose logs were written longest ago, until the rest is within the limits."""
    sizes: dict[str, int] = {}
    last_written: dict[str, float] = {}
    for log in _iter_logs(folder):
        sizes[log.session] = sizes.get(log.session, 0) + log.size
        last_written[log.session] = max(last_written.get(log.session, 0.0), log.written)
    total, count = sum(sizes.values()), len(sizes)
    for session in sorted(sizes, key=lambda session: last_written[session]):
        if total <= _MAX_TOTAL and count <= _MAX_SESSIONS:
            return
        remove_session_logs(folder, session)
        total, count = total - sizes[session], count - 1


def _iter_logs(folder: Path) -> Iterator[LogFile]:
    """All logs, in no particular order."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for session in folder.iterdir():
            with suppress(FileNotFoundError, NotADirectoryError):
                for path in session.glob("*.log"):
                    with suppress(FileNotFoundError):
                        status = path.stat()
                        older = path.with_suffix(_OLDER)
                        size = status.st_size + (older.stat().st_size if older.exists() else 0)
                        name = unquote(path.name.removesuffix(".log"))
                        yield LogFile(
                            path=path, session=session.name, server=name, size=size, written=status.st_mtime
                        )
