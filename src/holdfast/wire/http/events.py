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
    _line: list[bytes] = field(default_factory=list[bytes])  # the pieces of one that has not ended
    _data: list[bytes] = field(default_factory=list[bytes])
    _kept: int = 0
    _event: Event | None = None
    _at_start: bool = True
    _after_return: bool = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that end in here."""
        if self._at_start:
            self._at_start = False
            data = data.removeprefix(_MARK)
        if self._after_return:
            data = data.removeprefix(b"\n")  # that line ended with the return before it
        self._after_return = data.endswith(b"\r")
        lines = data.splitlines()
        rest = lines.pop() if lines and not data.endswith((b"\n", b"\r")) else b""
        for line in lines:
            if self._line:
                line = b"".join((*self._line, line))  # noqa: PLW2901 - the same line, whole
                self._kept -= sum(map(len, self._line))
                self._line.clear()
            if line:
                self._take(line)
            elif self._event is not None:
                yield self._ended(self._event)
        if rest:
            self._keep(rest, self._line)

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if not name:
            return  # a comment: the server is still there
        value = value.removeprefix(b" ")
        event = self._event = self._event or Event()
        match name:
            case b"data":
                self._keep(value, self._data)
            case b"event":
                event.name = value[: self.most].decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                event.id = value[: self.most].decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                event.retry_ms = int(value)
            case _:
                pass

    def _keep(self, piece: bytes, where: list[bytes]) -> None:
        self._kept += len(piece) + (where is self._data)  # many empty pieces are not nothing
        if self._kept > self.most:
            raise EventTooLong(f"an event has more than {self.most} bytes")
        where.append(piece)

    def _ended(self, event: Event) -> Event:
        event.data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._event, self._kept = None, 0
        self._data.clear()
        return event
