"""A stream of server-sent events, read as it comes."""

from collections.abc import Iterator
from dataclasses import dataclass, field

_MARK = b"\xef\xbb\xbf"  # some begin a stream with it; it says nothing


class EventTooLong(Exception):
    """An event has more bytes than it may have."""


@dataclass(slots=True)
class Event:
    """One event. Its data is still bytes: whoever reads them decides how strictly."""

    name: str = "message"
    data: bytes = b""
    id: str = ""
    retry_ms: int | None = None


@dataclass(slots=True)
class EventReader:
    """Cuts what comes into events. Of one that has not ended, at most this many bytes are kept."""

    most: int
    _line: bytearray = field(default_factory=bytearray)  # what has come of one that has not ended
    _data: bytes | bytearray | None = None
    _event: Event | None = None
    _at_start: bool = True
    _after_return: bool = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that end in here."""
        if not data:
            return
        if self._after_return:
            data = data.removeprefix(b"\n")  # that line ended with the return before it
        self._after_return = data.endswith(b"\r")
        lines = data.splitlines()
        rest = lines.pop() if lines and not data.endswith((b"\n", b"\r")) else b""
        for line in lines:
            if self._line:
                line = bytes(self._line) + line  # noqa: PLW2901 - the same line, whole
                self._line.clear()
            if self._at_start:
                line = line.removeprefix(_MARK)  # noqa: PLW2901 - the same line, without it
                self._at_start = False
            if line:
                self._take(line)
            elif self._event is not None:
                yield self._ended(self._event)
        if rest:
            self._make_room(len(rest))
            self._line += rest

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if not name:
            return  # a comment: the server is still there
        value = value.removeprefix(b" ")
        event = self._event = self._event or Event()
        match name:
            case b"data":
                self._add(value)
            case b"event":
                event.name = value[: self.most].decode("utf-8", "replace") or "message"
            case b"id" if b"\0" not in value:
                event.id = value[: self.most].decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                event.retry_ms = int(value)
            case _:
                pass

    def _add(self, value: bytes) -> None:
        self._make_room(len(value) + 1)
        if self._data is None:
            self._data = value  # most often the only one
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(self._data)
        self._data += b"\n"
        self._data += value

    def _make_room(self, size: int) -> None:
        if size + len(self._line) + len(self._data or b"") > self.most:
            raise EventTooLong(f"an event has more than {self.most} bytes")

    def _ended(self, event: Event) -> Event:
        event.data = bytes(self._data or b"")
        self._event = self._data = None
        return event
