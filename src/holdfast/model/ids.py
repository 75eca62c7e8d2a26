"""Ids of sessions, turns, messages and calls."""

import os
import re
from typing import NewType

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

SessionId = NewType("SessionId", str)

_SESSION = re.compile(r"sess_[0-9a-f]{16,64}")


def new_session_id() -> SessionId:
    """A new session id that cannot be guessed."""
    return SessionId(_new_id("sess"))


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
    """A new id for a tool call."""
    return _new_id("call")


def _new_id(kind: str) -> str:
    return f"{kind}_{os.urandom(16).hex()}"
