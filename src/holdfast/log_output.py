"""Logging to standard error, as text for people or as JSON lines."""

import _thread
import atexit
import json
import logging
import math
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from queue import SimpleQueue
from types import ModuleType
from typing import Literal, TextIO

from msgspec import Struct

from holdfast.model.context import current_context
from holdfast.model.visible_text import is_visible, replace_invisible

log = logging.getLogger(__name__)

Field = str | int | float | bool | None | list["Field"] | dict[str, "Field"]

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_COLOUR_CODES = {"debug": "2", "info": "36", "warning": "33", "error": "31", "critical": "31;1"}
_MAX_DEPTH = 8  # a dict or list nested deeper is logged as text
_MAX_BUFFERED_BYTES = 1024 * 1024
_MAX_TEXT = 256 * 1024  # characters of the message or of a field
_imported_log_mask: list[ModuleType] = []  # empty until `log_mask` is imported


def configure(
    level: Literal["debug", "info", "warning", "error"],
    format: Literal["auto", "human", "json"],
    stream: TextIO | None = None,
) -> None:
    """Send log records of this level and above to the stream, by default standard error. Records of libraries below `warning` are dropped.

    Python's own warnings (`warnings.warn`) become log records. The format `auto` is human-readable on a terminal and JSON lines elsewhere. A
    second call replaces the first.
    """
    target = stream or sys.stderr
    handler = _Handler(NonBlockingStream(target.fileno()) if _may_block(target) else target)
    is_terminal = target.isatty()
    if format == "human" or (format == "auto" and is_terminal):
        handler.setFormatter(HumanFormatter(colour=is_terminal and not os.environ.get("NO_COLOR")))
    else:
        handler.setFormatter(JsonFormatter())

    root = logging.getLogger()
    for previous in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(previous)
        if isinstance(previous.stream, NonBlockingStream):
            previous.stream.close()
    root.addHandler(handler)
    level_number = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(level_number, logging.WARNING))
    logging.getLogger("holdfast").setLevel(level_number)
    # Libraries put what they received into their warnings: Python would print it as it is, with secrets and line breaks.
    logging.captureWarnings(True)


class NonBlockingStream:
    """A stream that never blocks, even if its pipe is not read.

    A thread writes what the pipe does not accept at once. When the buffer is full, lines are dropped and counted. `write` never waits for
    a lock: a signal handler that logs may interrupt `write`, and would wait forever for a lock that `write` holds.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._is_open = True
        self.reset()
        atexit.register(self.drain)

    def reset(self) -> None:
        """Start with an empty buffer and no thread, as a forked process must."""
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._queued_bytes = self._written_bytes = self._dropped_lines = 0
        # Held from its start by the thread that writes the queued lines. A second thread ends at once.
        self._thread_lock = threading.Lock()

    def write(self, text: str) -> int:
        data = text.encode(errors="backslashreplace")
        if (
            self._queued_bytes == self._written_bytes
            and len(data) <= select.PIPE_BUF
            and self._is_writable(0)
        ):
            data = self._write_some(data)
        if not data:
            return len(text)
        if self._queued_bytes - self._written_bytes > _MAX_BUFFERED_BYTES:
            self._dropped_lines += 1
            return len(text)
        size = len(data)
        # Python runs signal handlers after calls. If this statement contained a call, a handler could log in the middle of the
        # statement, and the bytes that it counts would be lost.
        self._queued_bytes += size
        self._lines.put(data)
        self._start_thread()
        return len(text)

    def flush(self) -> None:
        """Do nothing, because `write` has written or queued every line."""

    def drain(self, seconds: float = 0.5) -> None:
        """Wait until everything is written, for at most this many seconds."""
        deadline = time.monotonic() + seconds
        if self._queued_bytes != self._written_bytes:
            self._start_thread()
        while self._queued_bytes != self._written_bytes and time.monotonic() < deadline:
            time.sleep(0.005)

    def close(self) -> None:
        """Let the thread write what is queued, and end. Nothing may be written after this."""
        if not self._is_open:
            return
        self._is_open = False
        atexit.unregister(self.drain)
        self._lines.put(None)
        if self._queued_bytes == self._written_bytes and self._thread_lock.acquire(blocking=False):
            os.close(self._descriptor)  # no thread runs that would close it
        else:
            self._start_thread()

    def _start_thread(self) -> None:
        if not self._thread_lock.locked():
            # Not `Thread.start`: if a signal handler raises in it, the thread may never run.
            _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        if not self._thread_lock.acquire(blocking=False):
            return  # another thread writes already
        lines = self._lines
        while (data := lines.get()) is not None:
            size = len(data)
            while data and self._is_writable(None):
                # Not through `sys.stderr`: a thread that blocks in it at exit makes the interpreter crash.
                data = self._write_some(data)
            self._written_bytes += size
            if self._dropped_lines and lines.empty():
                dropped, self._dropped_lines = self._dropped_lines, 0
                log.warning("log lines were dropped because the pipe was not read", extra={"count": dropped})
        os.close(self._descriptor)

    def _is_writable(self, wait: float | None) -> bool:
        """Whether a line can be written without blocking. With `wait=0`, return at once; with `wait=None`, wait until it can."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(wait))

    def _write_some(self, data: bytes) -> bytes:
        try:
            return data[os.write(self._descriptor, data) :]
        except BlockingIOError:
            return data
        except OSError:  # the pipe is closed
            return b""


def _reset_after_fork() -> None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Handler) and isinstance(handler.stream, NonBlockingStream):
            handler.stream.reset()


os.register_at_fork(after_in_child=_reset_after_fork)


def _may_block(stream: TextIO) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class HumanFormatter(logging.Formatter):
    """Formats a record as `time level logger: event key=value …`, and below it the traceback, each line after a `|`."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self.colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Format a record. No text in it can look like the start of another record."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        level = record.levelname.lower()
        content = _masked_content(record)
        fields = "".join(f" {_escape(key)}={_quote(value)}" for key, value in content.fields.items())
        line = f"{self._dim(time)} {self._paint(level)} {_logger(record)}: {_escape(content.event)}{fields}"
        lines = content.traceback.split("\n") if content.traceback else []
        return "\n".join([line, *(f"  | {_escape(text)}" for text in lines)])

    def _paint(self, level: str) -> str:
        padded = f"{_escape(level):<7}"
        return f"\x1b[{_COLOUR_CODES.get(level, '0')}m{padded}\x1b[0m" if self.colour else padded

    def _dim(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self.colour else text


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record. The caller's fields never replace the standard ones."""
        content = _masked_content(record)
        values: dict[str, Field] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": _logger(record),
            "event": content.event,
        }
        if content.traceback:
            values["traceback"] = content.traceback
        for key, value in content.fields.items():
            values[f"{key}_" if key in values else key] = value
        return json.dumps(values)


class _Handler(logging.StreamHandler[TextIO | NonBlockingStream]):
    """The handler that `configure` adds, and replaces when it is called again."""


class _Content(Struct, frozen=True, kw_only=True):
    """What the caller logged, masked."""

    event: str
    traceback: str
    fields: Mapping[str, Field]
    """The caller's `extra` fields and the current session."""


def _masked_content(record: logging.LogRecord) -> _Content:
    """Mask a record before it is formatted, because masking could make its JSON invalid."""
    session_id = _session_id()
    event, traceback = _event(record), "\n".join(_traceback(record))
    masked = _load_log_mask().mask_fields(
        {"event": event, "traceback": traceback, "fields": _extra_fields(record)}, session_id
    )
    if session_id:
        masked["fields"]["session"] = session_id
    return _Content(**masked)


def _session_id() -> str:
    context = current_context()
    return context.session_id if context is not None else ""


def _shorten(text: str) -> str:
    """The beginning of a long text. It is masked before it is cut, because half a secret would not be recognised."""
    if len(text) <= _MAX_TEXT:
        return text
    return f"{_load_log_mask().mask_start(text, _MAX_TEXT, _session_id())}… ({len(text)} characters)"


def _load_log_mask() -> ModuleType:
    """Import `log_mask` when the first line is logged, because the import is slow.

    The import runs in a thread, because a signal handler may interrupt an import in the main thread and log a line itself.
    """
    if not _imported_log_mask:
        thread = threading.Thread(target=_import_log_mask, name="holdfast-log-mask", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is exiting
            _import_log_mask()
        while thread.is_alive():
            time.sleep(0.0005)
    return _imported_log_mask[0]


def _import_log_mask() -> None:
    from holdfast.masking import log_mask

    _imported_log_mask.append(log_mask)


def _extra_fields(record: logging.LogRecord) -> Mapping[str, Field]:
    return {key: _to_json(value) for key, value in vars(record).items() if key not in _STANDARD_ATTRIBUTES}


def _event(record: logging.LogRecord) -> str:
    try:
        return _shorten(record.getMessage())
    except Exception:
        # The arguments do not match the message. That is a bug in the caller, but log the record anyway.
        return _shorten(str(record.msg))


def _logger(record: logging.LogRecord) -> str:
    return _escape(record.name.removeprefix("holdfast."))


def _traceback(record: logging.LogRecord) -> Iterator[str]:
    plain = logging.Formatter()
    if record.exc_info:
        yield from _shorten(plain.formatException(record.exc_info)).split("\n")
    if record.stack_info:
        yield from plain.formatStack(record.stack_info).split("\n")


def _to_json(value: object, depth: int = 0) -> Field:
    match value:
        case None | bool() | int():
            return value
        case str():
            return _shorten(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case dict() if depth < _MAX_DEPTH:
            return {str(key): _to_json(inner, depth + 1) for key, inner in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case list() | tuple() if depth < _MAX_DEPTH:
            return [_to_json(inner, depth + 1) for inner in value]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            return _shorten(str(value))


def _quote(value: Field) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if value and is_visible(value) and not any(mark in value for mark in ' "=\\'):
        return value
    return '"' + _escape(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escape(text: str) -> str:
    """The text on one line, with newlines, control and invisible characters escaped."""
    return replace_invisible(text, lambda letter: letter.encode("unicode_escape").decode("ascii"))
