"""Logs: one record, one line on standard error, for a person or for a program."""

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
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Literal, TextIO

from holdfast.model.context import current_context
from holdfast.model.mask import Mask

log = logging.getLogger(__name__)

Field = str | int | float | bool | None | list["Field"] | dict[str, "Field"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_COLOURS = {"debug": "2", "info": "36", "warning": "33", "error": "31", "critical": "31;1"}
_DEEPEST = 8
_MOST_BYTES = 1024 * 1024
_hidden = Counter[str]()


def configure(
    level: Literal["debug", "info", "warning", "error"],
    format: Literal["auto", "human", "json"],
    stream: TextIO | None = None,
) -> None:
    """Send all logs to the stream (standard error), ours from this level on, others' from warning on.

    The format `auto` is for a person on a terminal and JSON lines elsewhere. Calling again replaces
    what an earlier call set up.
    """
    target = stream or sys.stderr
    handler = _Handler(Unhurried(target.fileno()) if _may_block(target) else target)
    terminal = target.isatty()
    if format == "human" or (format == "auto" and terminal):
        handler.setFormatter(HumanFormatter(colour=terminal and not os.environ.get("NO_COLOR")))
    else:
        handler.setFormatter(JsonFormatter())

    root = logging.getLogger()
    for earlier in [known for known in root.handlers if isinstance(known, _Handler)]:
        root.removeHandler(earlier)
        if isinstance(earlier.stream, Unhurried):
            earlier.stream.close()
    root.addHandler(handler)
    chosen = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(chosen, logging.WARNING))
    logging.getLogger("holdfast").setLevel(chosen)


class Unhurried:
    """A pipe that nobody may be reading: what it does not take at once is left to a thread, and too much is dropped.

    Nothing here takes a lock: a signal may come in the midst of a line, and its handler may log, or raise.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._is_open = True
        self.begin()
        atexit.register(self.drain)

    def begin(self) -> None:
        """Begin anew, as in a process that was forked: its thread stayed behind."""
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._left = self._taken = self._dropped = 0  # bytes, bytes, lines
        self._thread: threading.Thread | None = None

    def write(self, text: str) -> int:
        """Write a line, or leave it to be written."""
        data = text.encode(errors="backslashreplace")
        if self._left == self._taken and len(data) <= select.PIPE_BUF and self._takes(0):
            data = self._written(data)
        if not data:
            return len(text)
        if self._left - self._taken > _MOST_BYTES:
            self._dropped += 1
            return len(text)
        self._left += len(data)
        self._lines.put(data)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-log", daemon=True)
            self._thread.start()
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def drain(self, seconds: float = 0.5) -> None:
        """Wait until all is written; not for long, for it may never be."""
        until = time.monotonic() + seconds
        while self._left != self._taken and time.monotonic() < until:
            time.sleep(0.005)

    def close(self) -> None:
        """Write no more than what was left; the thread ends behind it."""
        if not self._is_open:
            return
        self._is_open = False
        atexit.unregister(self.drain)
        if self._thread is None:
            os.close(self._descriptor)
        self._lines.put(None)

    def _run(self) -> None:
        lines = self._lines
        while (data := lines.get()) is not None:
            size = len(data)
            while data and self._takes(None):
                # Not by way of `sys.stderr`: whoever waits there at the end of the process makes it crash.
                data = self._written(data)
            self._taken += size
            if self._dropped and lines.empty():
                dropped, self._dropped = self._dropped, 0
                log.warning("lines of this log were dropped: nobody read them", extra={"count": dropped})
        os.close(self._descriptor)

    def _takes(self, wait: float | None) -> bool:
        """Whether there is room for a line; without a limit, waits until there is."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(wait))

    def _written(self, data: bytes) -> bytes:
        """Write some of it; what is left."""
        try:
            return data[os.write(self._descriptor, data) :]
        except BlockingIOError:
            return data
        except OSError:  # nobody will ever read it
            return b""


def _forked() -> None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Handler) and isinstance(handler.stream, Unhurried):
            handler.stream.begin()


os.register_at_fork(after_in_child=_forked)


def _may_block(stream: TextIO) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class HumanFormatter(logging.Formatter):
    """A record as `time level logger event key=value …`, its traceback below it behind a bar."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self.colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Render the record; nothing in it can look like the start of another."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        level = record.levelname.lower()
        fields = "".join(f" {_escaped(key)}={_quoted(value)}" for key, value in _fields(record).items())
        line = (
            f"{self._dim(time)} {self._painted(level)} {_logger(record)}: {_escaped(_event(record))}{fields}"
        )
        return "\n".join([line, *(f"  | {_escaped(under)}" for under in _traceback(record))])

    def _painted(self, level: str) -> str:
        padded = f"{_escaped(level):<7}"
        return f"\x1b[{_COLOURS.get(level, '0')}m{padded}\x1b[0m" if self.colour else padded

    def _dim(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self.colour else text


class JsonFormatter(logging.Formatter):
    """A record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the record; a field of the caller's never replaces one of ours."""
        values: dict[str, Field] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": _logger(record),
            "event": _event(record),
        }
        traceback = list(_traceback(record))
        if traceback:
            values["traceback"] = "\n".join(traceback)
        for key, value in _fields(record).items():
            values[f"{key}_" if key in values else key] = value
        return json.dumps(values)


def hide(mask: Mask) -> None:
    """From now on, keep these secrets out of every line, along with all that was hidden before."""
    _hidden.update(mask.secrets)
    _Handler.mask = _Handler.mask.plus(mask)


def unhide(mask: Mask) -> None:
    """These secrets need no hiding any more, unless somebody else asked for it, too: take back one `hide`."""
    _hidden.subtract(mask.secrets)
    over = {secret for secret in mask.secrets if _hidden[secret] <= 0}
    for secret in over:
        del _hidden[secret]
    _Handler.mask = Mask(tuple(secret for secret in _Handler.mask.secrets if secret not in over))


class _Handler(logging.StreamHandler[TextIO | Unhurried]):
    """Ours, so that `configure` replaces no handler of anybody else's."""

    mask = Mask()

    def format(self, record: logging.LogRecord) -> str:
        """Render the record, without secrets and without what looks like one."""
        return self.mask.line(super().format(record))


def _fields(record: logging.LogRecord) -> Mapping[str, Field]:
    """What the caller gave as `extra`, and the session that the code ran for."""
    fields = {key: _plain(value) for key, value in vars(record).items() if key not in _STANDARD}
    context = current_context()
    if context is not None:
        fields["session"] = context.session_id
    return fields


def _event(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        # A placeholder without its argument is a bug of the caller's; the record still counts.
        return str(record.msg)


def _logger(record: logging.LogRecord) -> str:
    return _escaped(record.name.removeprefix("holdfast."))


def _traceback(record: logging.LogRecord) -> Iterator[str]:
    plain = logging.Formatter()
    if record.exc_info:
        yield from plain.formatException(record.exc_info).split("\n")
    if record.stack_info:
        yield from plain.formatStack(record.stack_info).split("\n")


def _plain(value: object, depth: int = 0) -> Field:
    """The value in JSON's terms; what has none is told in words."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case dict() if depth < _DEEPEST:
            return {str(key): _plain(inner, depth + 1) for key, inner in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case list() | tuple() if depth < _DEEPEST:
            return [_plain(inner, depth + 1) for inner in value]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            return str(value)


def _quoted(value: Field) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if value and value.isprintable() and not any(mark in value for mark in ' "=\\'):
        return value
    return '"' + _escaped(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escaped(text: str) -> str:
    """The text on one line: newlines, control and invisible characters become escapes."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )
