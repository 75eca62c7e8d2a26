"""Mask secrets in log records: the secrets of all sessions of this process, and those that the process obtained."""

import threading
from dataclasses import dataclass, field

from holdfast.masking import obtained_secrets
from holdfast.masking.escapes import MAX_ENCODED_LENGTH, Span, find_decoded
from holdfast.masking.known_secrets import SecretIndex, join_spans
from holdfast.masking.likely_secrets import mask_likely_secrets
from holdfast.masking.mask import Mask, mask_json, mask_spans
from holdfast.masking.secret_shapes import looks_random
from holdfast.model.json import JsonObject

_in_all_records = SecretIndex()
_by_session: dict[str, tuple["LogSecrets", ...]] = {}
"""The secrets that are masked only in the records of one session, by its id."""
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class LogSecrets:
    """The secrets of a session that are masked in the log."""

    session_id: str
    in_all_records: tuple[str, ...]
    """Masked in the records of all sessions."""
    in_own_records: Mask = field(default_factory=Mask)
    """Masked in the session's own records, and in those that belong to no session."""

    @classmethod
    def of(cls, session_id: str, mask: Mask, trusted: Mask) -> "LogSecrets":
        """The secrets of `mask`. `trusted` contains those that no project and no client chose.

        The secrets in `trusted`, and those that look random, are masked in all records. A project or a client chose the
        others, and must not be able to hide words in the records of other sessions.
        """
        if mask.secrets == trusted.secrets:
            return cls(session_id, mask.secrets)
        trusted_secrets = frozenset(trusted.secrets)
        in_all_records = tuple(
            secret for secret in mask.secrets if secret in trusted_secrets or looks_random(secret)
        )
        return cls(
            session_id, in_all_records, Mask(tuple(sorted({*mask.secrets}.difference(in_all_records))))
        )


def add_secrets(secrets: LogSecrets) -> None:
    """Mask these secrets from now on, in addition to those that were added before."""
    with _lock:
        _in_all_records.add(secrets.in_all_records)
        if secrets.in_own_records.secrets:
            _by_session[secrets.session_id] = (*_by_session.get(secrets.session_id, ()), secrets)


def remove_secrets(secrets: LogSecrets) -> None:
    """Undo one `add_secrets`. A secret that was added more than once stays masked."""
    with _lock:
        _in_all_records.remove(secrets.in_all_records)
        left = [*_by_session.pop(secrets.session_id, ())]
        if secrets in left:
            left.remove(secrets)
        if left:
            _by_session[secrets.session_id] = (*left,)


def mask_fields(fields: JsonObject, session_id: str) -> JsonObject:
    """Mask known and likely secrets in the fields of a record of this session. `session_id` is empty if the record belongs to no session."""

    def find(text: str) -> list[Span]:
        return _find(text, session_id)

    masked = mask_json(fields, find, lambda text: mask_text(text, session_id), by_name=True)
    assert isinstance(masked, dict)
    return masked


def mask_text(text: str, session_id: str) -> str:
    """Mask known and likely secrets in a text of this session. `session_id` is empty if the text belongs to no session."""
    return mask_likely_secrets(_mask_known(text, session_id))


def mask_start(text: str, length: int, session_id: str) -> str:
    """At most the first `length` characters of a text, with known secrets masked. A secret across the cut is masked, too."""
    return _mask_known(text[: length + MAX_ENCODED_LENGTH], session_id)[:length]


def _mask_known(text: str, session_id: str) -> str:
    spans = _find(text, session_id)
    return mask_spans(text, spans) if spans else text


def _find(text: str, session_id: str) -> list[Span]:
    def find(text: str) -> list[Span]:
        return _find_undecoded(text, session_id)

    spans = [*find(text), *find_decoded(text, find)]
    return join_spans(spans) if spans else spans


def _find_undecoded(text: str, session_id: str) -> list[Span]:
    """The spans of the known secrets in a text. Escapes are not decoded."""
    spans = [
        *_in_all_records.find(text),
        *obtained_secrets.find(text, session_id or obtained_secrets.ANY_SESSION),
    ]
    if _by_session:
        by_session = [_by_session.get(session_id, ())] if session_id else _by_session.copy().values()
        spans += (
            span
            for of_session in by_session
            for secrets in of_session
            for span in secrets.in_own_records.index.find(text)
        )
    return spans
