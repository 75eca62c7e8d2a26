"""Names that are minted once: of sessions, turns, messages and calls."""

import re
import secrets
from typing import NewType

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

SessionId = NewType("SessionId", str)

_SESSION = re.compile(r"sess_[0-9a-f]{16,64}")


def new_session_id() -> SessionId:
    """A session id nobody can guess."""
    return SessionId(_mint("sess"))


def parse_session_id(text: str) -> SessionId:
    """The session id that a peer or a person wrote."""
    if not _SESSION.fullmatch(text):
        raise HoldfastError(
            codes.BAD_ID, f"{text[:80]!r} is not a session id: it looks like sess_0123456789abcdef…."
        )
    return SessionId(text)


def new_turn_id() -> str:
    """An id for one turn."""
    return _mint("turn")


def new_message_id() -> str:
    """An id for one message of a conversation."""
    return _mint("msg")


def new_call_id() -> str:
    """An id for one tool call."""
    return _mint("call")


def _mint(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"
