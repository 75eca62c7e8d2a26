"""Secrets that this process obtains while it runs: tokens of logins, keys, signed tokens, cookies. Masks mask them, too.

A session's mask is made from the configuration when the session opens, so it cannot contain them. They are kept once for
the whole process, like the log: every session of every host masks all of them, except those that a server chose for a link
of another session. Otherwise a server could hide texts of its choice in the records of other sessions.
"""

import re
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from holdfast.masking.known_secrets import SecretIndex, Span, encode_secrets, split_secret
from holdfast.masking.looks_generated import looks_random

CONTEXT_TOKEN_START = "eyJhbGciOiJFZERTQSIsImtpZCI6I"
"""Every signed context token begins with this: its header in base64. There is a new token for every request."""
ANY_SESSION = "*"
"""In place of a session id: mask what servers chose in all sessions."""
_MAX_LOGINS = 256
_MAX_CREDENTIALS_OF_LOGIN = 16
_MAX_LINKS = 256
_MAX_PIECES_OF_LINK = 64
_MAX_LENGTH = 4096
_CREDENTIAL = re.compile(r"[!-~]{8,}")
_NOT_IN_WORDS = re.compile(r"\W+")
_TOKEN_REST = re.compile(r"[\w.-]*+", re.ASCII)

_index = SecretIndex()
_of_sessions: dict[str, SecretIndex] = {}
"""By session id: what servers chose for the session's own links."""
_changing = threading.Lock()


class ObtainedSecrets:
    """The secrets that one host has obtained. They are masked until it exits; if there are too many, the oldest are forgotten."""

    def __init__(self) -> None:
        self._credentials: dict[object, dict[str, tuple[str, ...]]] = {}
        self._in_files: dict[str, tuple[str, ...]] = {}
        self._from_servers: dict[str, _FromServers] = {}
        """By session id; "" for the links that sessions share."""
        self._signs_tokens = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Forget everything."""
        if self._signs_tokens:
            _change(removed=[CONTEXT_TOKEN_START])
            self._signs_tokens = False
        for login in self._credentials.values():
            for pieces in login.values():
                _change(removed=pieces)
        for pieces in self._in_files.values():
            _change(removed=pieces)
        for session_id in [*self._from_servers]:
            self.forget_session(session_id)
        self._credentials, self._in_files = {}, {}

    def add_context_tokens(self) -> None:
        """Mask signed context tokens, by their beginning."""
        if not self._signs_tokens:
            self._signs_tokens = True
            _change(added=[CONTEXT_TOKEN_START])

    def add_credentials(self, login: object, values: Iterable[str | None]) -> None:
        """Mask the secrets of one of the user's logins: tokens, authorization codes, client secrets.

        The number of secrets is limited for each login, so that a login that is refreshed often does not push out those of another.
        """
        kept = self._credentials.pop(login, None) or {}
        self._credentials[login] = kept  # the login that was used last is last
        for value in values:
            if value is None or not _CREDENTIAL.fullmatch(value):
                continue
            if (pieces := kept.pop(value, None)) is None:
                pieces = encode_secrets([value[:_MAX_LENGTH]])
                _change(added=pieces)
            kept[value] = pieces
            if len(kept) > _MAX_CREDENTIALS_OF_LOGIN:
                _change(removed=kept.pop(next(iter(kept))))
        if len(self._credentials) > _MAX_LOGINS:
            for pieces in self._credentials.pop(next(iter(self._credentials))).values():
                _change(removed=pieces)

    def set_in_file(self, file: str, pieces: tuple[str, ...]) -> None:
        """Mask the (encoded) secrets in one of Holdfast's own files, in place of those that were in it before."""
        _change(added=pieces, removed=self._in_files.get(file, ()))
        self._in_files[file] = pieces

    def add_from_server(self, session_id: str, link: object, value: str) -> None:
        """Mask a cookie or an id that a server chose for a link, if it looks random: a server must not be able to mask words.

        It is masked in the session of the link; in all sessions if they share the link (then `session_id` is empty).
        """
        plain = value[:_MAX_LENGTH]
        pieces = tuple(piece for piece in split_secret(plain) if looks_random(_NOT_IN_WORDS.sub("", piece)))
        if not pieces:
            return
        values = self._from_servers.get(session_id)
        if values is None:
            index = _of_sessions.setdefault(session_id, SecretIndex()) if session_id else _index
            values = self._from_servers[session_id] = _FromServers(index)
        values.add(link, pieces)

    def forget_session(self, session_id: str) -> None:
        """Forget what servers chose for the links of this session."""
        if (values := self._from_servers.pop(session_id, None)) is not None:
            values.clear()
            if not values.index:
                _of_sessions.pop(session_id, None)


class _FromServers:
    """What servers chose for the links of one session. If it is too much, the oldest values of each link are forgotten."""

    def __init__(self, index: SecretIndex) -> None:
        self.index = index
        self._links: dict[object, deque[tuple[str, ...]]] = {}

    def add(self, link: object, pieces: tuple[str, ...]) -> None:
        values = self._links.pop(link, None) or deque[tuple[str, ...]]()
        self._links[link] = values  # the link that was used last is last
        if pieces in values:
            return
        values.append(pieces)
        _change(self.index, added=pieces)
        while len(values) > 1 and sum(map(len, values)) > _MAX_PIECES_OF_LINK:
            _change(self.index, removed=values.popleft())
        if len(self._links) > _MAX_LINKS:
            for old in self._links.pop(next(iter(self._links))):
                _change(self.index, removed=old)

    def clear(self) -> None:
        for values in self._links.values():
            for pieces in values:
                _change(self.index, removed=pieces)
        self._links = {}


def count(session_id: str = "") -> int:
    """How many secrets, and pieces of secrets, are masked in this session because they were obtained."""
    return sum(map(len, _indexes(session_id)))


def find(text: str, session_id: str = "") -> list[Span]:
    """The spans of obtained secrets in a text of this session."""
    return _find(text, _indexes(session_id))


def find_partial_at_end(text: str, session_id: str = "") -> int:
    """The start of the longest suffix of the text that may be the beginning of an obtained secret."""
    return min((index.find_partial_at_end(text) for index in _indexes(session_id)), default=len(text))


def is_nearly_whole(prefix: str, session_id: str = "") -> bool:
    """Whether this prefix of an obtained secret is so long that it must not be shown."""
    return any(index.is_nearly_whole(prefix) for index in _indexes(session_id))


def skip_token(text: str) -> str:
    """The text without the rest of a signed token at its beginning."""
    rest = _TOKEN_REST.match(text)
    return text[rest.end() :] if rest is not None else text


def _indexes(session_id: str) -> Sequence[SecretIndex]:
    """The indexes to search for a session, without empty ones."""
    if session_id == ANY_SESSION:
        return [index for index in (_index, *_of_sessions.copy().values()) if index]
    of_session = _of_sessions.get(session_id) if session_id else None
    if of_session:
        return (_index, of_session) if _index else (of_session,)
    return (_index,) if _index else ()


def _find(text: str, indexes: Iterable[SecretIndex]) -> list[Span]:
    spans = [span for index in indexes for span in index.find(text)]
    if spans and CONTEXT_TOKEN_START in text:
        spans = [(begin, end + _rest_length(text, begin, end)) for begin, end in spans]
    return spans


def _rest_length(text: str, begin: int, end: int) -> int:
    """The length of what follows the beginning of a signed token in this span."""
    rest = _TOKEN_REST.match(text, end) if CONTEXT_TOKEN_START in text[begin:end] else None
    return len(rest[0]) if rest is not None else 0


def _change(index: SecretIndex = _index, *, added: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
    with _changing:
        index.add(added)
        index.remove(removed)
