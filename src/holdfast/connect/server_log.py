"""Writes the standard error of servers to log files, line by line, with secrets masked."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from weakref import WeakValueDictionary

from holdfast.connect import log_files
from holdfast.connect.scope import Scope
from holdfast.masking import log_mask
from holdfast.masking.configured_secrets import secrets_in_spec
from holdfast.masking.mask import Mask
from holdfast.model.light_event import LightEvent
from holdfast.model.server import Lifetime, ServerSpec
from holdfast.model.visible_text import strip_invisible, to_line
from holdfast.model.worker_threads import WorkerThreads

log = logging.getLogger(__name__)

FROM_SERVER, FROM_HOST = "|", "#"
"""The mark between the time and the text of a line. It says who wrote the text: the server or Holdfast."""
_MAX_PENDING = 32 * 1024  # bytes that are not written yet
_PAUSE_SECONDS = 0.25  # between two writes, so that a server cannot keep the disk busy
_MAX_LINE = 8 * 1024  # characters; the rest of a longer line is left out
_MAX_NOTES = 20  # lines from Holdfast that are not written yet
_LOGS_PER_CLEAN_UP = 100
_THREADS = WorkerThreads("server-log", threads=2, per_owner=1)


class ServerLog:
    """The log of one server in one session. If the server writes too fast, some of its output is skipped."""

    __slots__ = (
        "__weakref__",
        "_ended",
        "_is_in_skipped_line",
        "_lock",
        "_mask",
        "_notes",
        "_path",
        "_pending",
        "_quota_owner",
        "_session_id",
        "_skipped",
        "_writing",
    )

    def __init__(self, path: Path, session_id: str, mask: Mask, quota_owner: str = "") -> None:
        """`session_id` and `quota_owner` (see `Scope.quota_owner`) are empty for a server that sessions share."""
        self._path = path
        self._quota_owner = quota_owner
        self._session_id = session_id
        self._mask = mask
        self._pending = bytearray()
        self._notes: list[str] = []
        self._skipped = 0
        self._is_in_skipped_line = False
        """Whether the beginning of the server's last line was skipped. If so, the end of the line is skipped, too."""
        self._ended = LightEvent()
        self._lock = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None

    def add(self, data: bytes) -> None:
        """Log what the server wrote to standard error."""
        if self._is_in_skipped_line:
            _, newline, rest = data.partition(b"\n")
            self._is_in_skipped_line = not newline
            self._skipped += len(data) - len(rest)
            data = rest
        self._pending += data
        surplus = len(self._pending) - _MAX_PENDING
        if surplus > 0:
            # Only whole lines are skipped: the rest of a secret would not be recognised, and so not be masked.
            end = self._pending.find(b"\n", surplus - 1) + 1
            self._is_in_skipped_line = not end
            skipped = end or len(self._pending)
            del self._pending[:skipped]
            self._skipped += skipped
        self._wake()

    def note(self, text: str) -> None:
        """Log a line from Holdfast about the server."""
        if len(self._notes) < _MAX_NOTES:
            self._notes.append(text)
        self._wake()

    async def flush(self) -> None:
        """Write all complete lines now."""
        async with self._lock:
            try:
                if self._notes or self._has_line():
                    await _THREADS.run(self._write, *self._take(), owner=self._quota_owner)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                log.warning("server log not written", extra={"path": str(self._path), "reason": reason})

    async def finish(self) -> None:
        """Write what was not written yet. Call this when the server has ended."""
        self._ended.set()
        await self.flush()

    def _wake(self) -> None:
        if self._writing is None and not self._ended.is_set():
            self._writing = asyncio.create_task(self._write_pending())

    async def _write_pending(self) -> None:
        while self._notes or self._has_line():
            await self.flush()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _PAUSE_SECONDS)
        self._writing = None

    def _has_line(self) -> bool:
        return bool(self._pending) and (self._ended.is_set() or b"\n" in self._pending)

    def _take(self) -> tuple[list[str], int, bytes]:
        """Take what is to be written: Holdfast's lines, the number of skipped bytes, and the server's complete lines."""
        end = len(self._pending) if self._ended.is_set() else self._pending.rfind(b"\n") + 1
        lines = bytes(self._pending[:end])
        del self._pending[:end]
        notes, self._notes = self._notes, []
        skipped, self._skipped = self._skipped, 0
        return notes, skipped, lines

    def _write(self, notes: list[str], skipped: int, lines: bytes) -> None:
        at = f"{datetime.now(UTC).isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"
        if skipped:
            notes.append(f"{skipped} bytes were skipped: the server wrote too much at once")
        texts = [f"{at} {FROM_SERVER} {line}" for line in self._lines(lines)]
        texts += (f"{at} {FROM_HOST} {self._mask_text(to_line(note))}" for note in notes)
        log_files.append(self._path, "".join(f"{text}\n" for text in texts).encode(errors="replace"))

    def _lines(self, written: bytes) -> Iterator[str]:
        if not written:
            return
        # A secret may span several lines, so the lines are masked together.
        text = strip_invisible(written.decode(errors="replace")).replace("\t", "    ")
        for line in self._mask_text(text).removesuffix("\n").split("\n"):
            yield line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"

    def _mask_text(self, text: str) -> str:
        return log_mask.mask_text(self._mask.mask_known(text), self._session_id)


class ServerLogs:
    """The logs of a host's servers, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened = 0
        self._open: WeakValueDictionary[Path, ServerLog] = WeakValueDictionary()
        self._cleaning: asyncio.Task[None] | None = None

    def open(self, spec: ServerSpec, scope: Scope | None) -> ServerLog:
        """The log of a server in a session. Await `finish` when the server has ended."""
        if self._opened % _LOGS_PER_CLEAN_UP == 0:
            self._cleaning = asyncio.create_task(_THREADS.run(log_files.remove_oldest, self._folder))
        self._opened += 1
        session_id = quota_owner = ""
        if scope is not None and spec.lifetime is not Lifetime.HOST:
            session_id, quota_owner = scope.context.session_id, scope.quota_owner
        path = log_files.log_path(self._folder, session_id, spec.name)
        mask = Mask.of(secrets_in_spec(spec))
        server_log = self._open[path] = ServerLog(path, session_id, mask, quota_owner)
        return server_log

    async def read(self, session_id: str, server: str) -> str:
        """The log of a server that only this session uses."""
        path = log_files.log_path(self._folder, session_id, server)
        if (server_log := self._open.get(path)) is not None:
            await server_log.flush()
        return await _THREADS.run(log_files.read_log, path, owner=session_id)

    async def remove(self, session_id: str) -> None:
        """Remove all logs of a session."""
        await _THREADS.run(log_files.remove_session_logs, self._folder, session_id)
