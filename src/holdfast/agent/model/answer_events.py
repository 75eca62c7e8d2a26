"""Splits an endpoint's answer into server-sent events, and checks each event before the provider's library decodes it.

The libraries decode events on the event loop. Some build an object for every value of an event. Some copy an
unfinished event each time that more of it arrives. So the libraries get whole events, with few lines and a limited number of values.
"""

import re
from codecs import BOM_UTF8
from itertools import accumulate

from holdfast.agent.model import failures
from holdfast.agent.model.config import ModelLimits
from holdfast.model.limits import DEFAULT_LIMITS, SMALL_DOCUMENT_BYTES
from holdfast.wire.strict_json import has_more_values, strip_strings

LONG_EVENT_BYTES = 256 * 1024
"""A longer event is checked in a thread."""
_MAX_LINES = 100  # lines of one event
# Some endpoints repeat the definitions of tools: the longer the request, the more values are allowed.
_BYTES_PER_VALUE = 20
# An event with more values is followed by a pause, so that other sessions are not delayed.
_VALUES_WITHOUT_PAUSE = 1000
_PAUSE_SECONDS_PER_VALUE = 40e-6
_LONGEST_END = 4  # bytes that `_END` matches at most
_END = re.compile(rb"\n\n|\r\n\r\n")  # some libraries do not end an event at other line ends
_LINE_END = re.compile(rb"[\r\n]+")
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (DEFAULT_LIMITS.digits + 1))
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# Some libraries also end lines at these characters.
_OTHER_LINE_END = re.compile(b"[\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]")


class EventSplitter:
    """Collects the bytes of an answer until an event is complete. Raises `LimitReachedError` if an event is too large."""

    def __init__(self, limits: ModelLimits) -> None:
        self._limits = limits
        self._unfinished = bytearray()
        self._is_first = True

    def add(self, chunk: bytes) -> list[bytes]:
        """Add the next bytes. Return the events that are complete now."""
        begin = max(0, len(self._unfinished) - _LONGEST_END + 1)
        self._unfinished += chunk
        if self._is_first and len(self._unfinished) >= len(BOM_UTF8):
            self._is_first = False
            # A byte order mark is allowed, but the libraries would not recognise the first event after it.
            if self._unfinished.startswith(BOM_UTF8):
                del self._unfinished[: len(BOM_UTF8)]
        events: list[bytes] = []
        start = 0
        for end in _END.finditer(self._unfinished, begin):
            events.append(bytes(self._unfinished[start : end.end()]))
            start = end.end()
        if start:
            del self._unfinished[:start]
        if max(map(len, (self._unfinished, *events))) > self._limits.max_event_bytes:
            raise failures.too_large(f"one event has more than {self._limits.max_event_bytes} bytes")
        return events

    def take_rest(self) -> list[bytes]:
        """Return what is left when the answer has ended: an event without an end, or nothing."""
        return [bytes(self._unfinished)] if self._unfinished else []


def pause_after_event(event: bytes, limits: ModelLimits, sent_bytes: int) -> float:
    """Return how many seconds to wait after this event. Raises `LimitReachedError` if it would take too long to decode.

    `sent_bytes` is the size of the request.
    """
    if len(event) <= SMALL_DOCUMENT_BYTES:
        return 0.0
    lines = _LINE_END.split(event, _MAX_LINES + 1)
    if len(lines) > _MAX_LINES:
        raise failures.too_large(f"one event has more than {_MAX_LINES} lines")
    repeated = sent_bytes // _BYTES_PER_VALUE
    max_values = limits.max_event_values + repeated
    without_strings = b""
    for line in lines:
        # At such a character, a library may end the line inside of what looks like a string here. Without the quotation marks, all of the
        # line is checked as if it were outside of strings.
        text = line.replace(b'"', b"") if _OTHER_LINE_END.search(line) else line
        if has_more_values(text, max_values):
            raise _too_many_values(max_values)
        without_strings += strip_strings(text) + b"\n"
    values = sum(map(without_strings.count, (b",", b"[", b"{")))
    if values > max_values:
        raise _too_many_values(max_values)
    if _LONG_NUMBER.search(without_strings):
        raise failures.too_large(f"a number has more than {DEFAULT_LIMITS.digits} digits")
    if _depth(without_strings) > DEFAULT_LIMITS.depth:
        raise failures.too_large(f"one event is nested more than {DEFAULT_LIMITS.depth} levels deep")
    return _PAUSE_SECONDS_PER_VALUE * values if values > max(_VALUES_WITHOUT_PAUSE, repeated) else 0.0


def _depth(without_strings: bytes) -> int:
    """Return how deep the lists and objects in the text are nested, including those that are never closed.

    A decoder may reach its limit of depth before it finds out that they are not closed.
    """
    brackets = without_strings.translate(None, _NOT_BRACKETS)
    opening = brackets.count(b"[") + brackets.count(b"{")
    # A decoder stops at the first bracket that closes nothing.
    steps = (1 if bracket in b"[{" else -1 for bracket in brackets[: 2 * opening])
    return max(accumulate(steps), default=0)


def _too_many_values(limit: int) -> failures.LimitReachedError:
    return failures.too_large(f"one event has more than {limit} values")
