"""Ids of sessions, turns, messages and calls."""

import os
import re
import time
from typing import NewType

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

SessionId = NewType("SessionId", str)

_SESSION = re.compile(r"sess_[0-9a-f]{16,64}")
_ID_BYTES = 16
_TIME_DIGITS = 11  # hexadecimal digits for the time in the id of a call
_CALL_ID = f"call_%0{_TIME_DIGITS}x%s"  # faster than an f-string with a width
# `os.urandom` releases the GIL, and the caller then waits to get it back. So one call reads the bytes of many ids.
_IDS_PER_READ = 64

_unused: list[str] = []
"""Random numbers for the next ids."""
os.register_at_fork(after_in_child=_unused.clear)  # otherwise, both processes would use the same ids


def new_session_id() -> SessionId:
    """A new session id that cannot be guessed."""
    return SessionId(f"sess_{os.urandom(_ID_BYTES).hex()}")


def parse_session_id(text: str) -> SessionId:
    """Parse a session id from a client or the user."""
    if not _SESSION.fullmatch(text):
        raise HoldfastError(
            codes.BAD_ID,
            f"{text[:80]!r} is not a session id. A session id looks like sess_0123456789abcdef….",
        )
    return SessionId(text)


def new_turn_id() -> str:
    """A new id for a turn."""
    return _new_id("turn")


def new_message_id() -> str:
    """A new id for a message."""
    return _new_id("msg")


def new_agent_id(name: str) -> str:
    """A new id for a sub-agent. It begins with the name of its definition, and is short enough to be shown."""
    return f"{name}-{os.urandom(4).hex()}"


def new_call_id() -> str:
    """A new id for a tool call. It begins with the time: a store writes fewer pages of an index if new ids are next to each other."""
    ticks = time.time_ns() >> 20  # a tick is about a millisecond
    return _CALL_ID % (ticks, _new_number()[_TIME_DIGITS:])


def _new_id(kind: str) -> str:
    return f"{kind}_{_new_number()}"


def _new_number() -> str:
    try:
        return _unused.pop()
    except IndexError:  # another thread may have taken the last one
        number, *others = os.urandom(_ID_BYTES * _IDS_PER_READ).hex("-", _ID_BYTES).split("-")
        _unused.extend(others)
        return number
