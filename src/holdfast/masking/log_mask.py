"""Mask secrets in what is logged: those of all sessions of this process, and those that it obtained."""

import threading
from dataclasses import dataclass, field

from holdfast.masking import obtained_secrets
from holdfast.masking.known_secrets import MAX_PIECE_LENGTH, SecretIndex, Span, join_spans
from holdfast.masking.likely_secrets import mask_likely_secrets
from holdfast.masking.looks_generated import looks_random
from holdfast.masking.mask import Mask, mask_json, mask_spans
from holdfast.model.json import JsonObject

_everywhere = SecretIndex()
_of_sessions: dict[str, tuple["LogSecrets", ...]] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class LogSecrets:
    """The secrets of a session that are masked in the log."""

    session_id: str
    everywhere: tuple[str, ...]
    """Masked in all records."""
    in_own_records: Mask = field(default_factory=Mask)
    """Masked in the session's own records, and in those that belong to no session."""

    @classmethod
    def of(cls, session_id: str, mask: Mask, own: Mask) -> "LogSecrets":
        """All secrets of `mask`. Only those in `own`, and those that look random, are masked in the records of other sessions.

        The others were chosen by a project or a client, which must not be able to hide words in these records.
        """
        if mask.secrets == own.secrets:
            return cls(session_id, mask.secrets)
        known = frozenset(own.secrets)
        everywhere = tuple(secret for secret in mask.secrets if secret in known or looks_random(secret))
        return cls(session_id, everywhere, Mask(tuple(sorted({*mask.secrets}.difference(everywhere)))))


def add_secrets(secrets: LogSecrets) -> None:
    """Mask these secrets from now on, in addition to those that were added before."""
    with _lock:
        _everywhere.add(secrets.everywhere)
        if secrets.in_own_records.secrets:
            _of_sessions[secrets.session_id] = (*_of_sessions.get(secrets.session_id, ()), secrets)


def remove_secrets(secrets: LogSecrets) -> None:
    """Undo one `add_secrets`. A secret that was added more than once stays masked."""
    with _lock:
        _everywhere.remove(secrets.everywhere)
        left = [*_of_sessions.pop(secrets.session_id, ())]
        if secrets in left:
            left.remove(secrets)
        if left:
            _of_sessions[secrets.session_id] = (*left,)


def mask_fields(fields: JsonObject, session_id: str) -> JsonObject:
    """Mask known and likely secrets in the fields of a record of this session; `session_id` is empty if it belongs to none."""

    def find(text: str) -> list[Span]:
        return _find(text, session_id)

    def mask_text(text: str) -> str:
        return mask_likely_secrets(_mask_known(text, session_id))

    masked = mask_json(fields, find, mask_text, by_name=True)
    assert isinstance(masked, dict)
    return masked


def shorten(text: str, length: int, session_id: str) -> str:
    """The first characters of a text, with known secrets masked, including a secret in which the text is cut."""
    return _mask_known(text[: length + MAX_PIECE_LENGTH], session_id)[:length]


def _mask_known(text: str, session_id: str) -> str:
    spans = _find(text, session_id)
    return mask_spans(text, spans) if spans else text


def _find(text: str, session_id: str) -> list[Span]:
    spans = [
        *_everywhere.find(text),
        *obtained_secrets.find(text, session_id or obtained_secrets.ANY_SESSION),
    ]
    if _of_sessions:
        own = [_of_sessions.get(session_id, ())] if session_id else _of_sessions.copy().values()
        spans += (
            span for added in own for secrets in added for span in secrets.in_own_records.index.find(text)
        )
    return join_spans(spans) if spans else spans
