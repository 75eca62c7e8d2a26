"""Keep the secrets that this process obtains while it runs: tokens of logins, keys, signed tokens, cookies.

A session's mask is made from the configuration when the session opens, so it cannot contain secrets that come later.
This module keeps them for the whole process, and the masks of all sessions use it. A value that a server chose, such as a
cookie, is masked only in the session of the server's link, unless sessions share the link: otherwise a server could hide words in the
records of other sessions.
"""

import re
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from holdfast.masking.escapes import Span
from holdfast.masking.known_secrets import SecretIndex, encode_secrets, split_secret
from holdfast.masking.secret_shapes import looks_random

CONTEXT_TOKEN_START = "eyJhbGciOiJFZERTQSIsImtpZCI6I"
"""Every signed context token begins with this part of its header in base64. The rest differs between keys and requests."""
ANY_SESSION = "*"
"""In place of a session id: mask the values that servers chose in any session."""
_MAX_LOGINS = 256  # whose credentials one host masks
_MAX_CREDENTIALS_OF_LOGIN = 16
_MAX_LINKS = 256  # whose values are masked in one session
_MAX_FRAGMENTS_OF_LINK = 64
_MAX_VALUE_LENGTH = 4096  # characters; the rest of a longer secret is not masked
_CREDENTIAL = re.compile(r"[!-~]{8,}")
_PUNCTUATION = re.compile(r"\W+")
# The tokens of the gateway's clients. Only their hashes are stored, so they are recognised by their form.
_CLIENT_TOKEN_START = "hft_"
_CLIENT_TOKEN = re.compile(r"hft_[a-z2-7]{12}_[A-Za-z0-9_-]{43}")
_CLIENT_TOKEN_LENGTH = 60
_PARTIAL_CLIENT_TOKEN = re.compile(r"h(?:f(?:t(?:_[A-Za-z0-9_-]*+)?)?)?\Z")
_TOKEN_REST = re.compile(r"[\w.-]*+", re.ASCII)

_in_all_sessions = SecretIndex()
_by_session: dict[str, SecretIndex] = {}
"""By session id: the values that servers chose for the session's own links."""
_lock = threading.Lock()


class ObtainedSecrets:
    """The secrets that one host has obtained. They are masked until the host is closed, or until `forget_session`.

    If there are too many, the oldest are forgotten, and no longer masked.
    """

    def __init__(self) -> None:
        self._credentials: dict[object, dict[str, tuple[str, ...]]] = {}
        """By login: its credentials, each with the fragments that are masked for it."""
        self._in_files: dict[str, tuple[str, ...]] = {}
        """By file: the fragments that are masked for its secrets."""
        self._from_servers: dict[str, _ValuesFromServers] = {}
        """By session id; "" for the links that sessions share."""
        self._masks_context_tokens = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._masks_context_tokens:
            _change(removed=[CONTEXT_TOKEN_START])
            self._masks_context_tokens = False
        for login in self._credentials.values():
            for fragments in login.values():
                _change(removed=fragments)
        for fragments in self._in_files.values():
            _change(removed=fragments)
        for session_id in [*self._from_servers]:
            self.forget_session(session_id)
        self._credentials, self._in_files = {}, {}

    def add_context_tokens(self) -> None:
        """Mask all signed context tokens. They are recognised by their first characters."""
        if not self._masks_context_tokens:
            self._masks_context_tokens = True
            _change(added=[CONTEXT_TOKEN_START])

    def add_credentials(self, login: object, values: Iterable[str | None]) -> None:
        """Mask the secrets of one login: tokens, authorization codes, client secrets. A client of the gateway counts as a login, with its tokens.

        The number of secrets is limited for each login, so that frequent refreshes of one login do not push out the secrets of another.
        """
        kept = self._credentials.pop(login, None) or {}
        self._credentials[login] = kept  # move it to the end: the first login is the least recently used
        for value in values:
            if value is None or not _CREDENTIAL.fullmatch(value):
                continue
            if (fragments := kept.pop(value, None)) is None:
                fragments = encode_secrets([value[:_MAX_VALUE_LENGTH]])
                _change(added=fragments)
            kept[value] = fragments
            if len(kept) > _MAX_CREDENTIALS_OF_LOGIN:
                _change(removed=kept.pop(next(iter(kept))))
        if len(self._credentials) > _MAX_LOGINS:
            for fragments in self._credentials.pop(next(iter(self._credentials))).values():
                _change(removed=fragments)

    def set_in_file(self, file: str, fragments: tuple[str, ...]) -> None:
        """Mask the secrets in one of Holdfast's own files, as `encode_secrets` returns them. They replace the file's earlier secrets."""
        _change(added=fragments, removed=self._in_files.get(file, ()))
        self._in_files[file] = fragments

    def add_from_server(self, session_id: str, link: object, value: str) -> None:
        """Mask a cookie or an id that a server chose for a link, but only if it looks random, so that servers cannot mask words.

        The value is masked in the session of the link. If sessions share the link, `session_id` is empty, and the value is masked in
        all sessions.
        """
        plain = value[:_MAX_VALUE_LENGTH]
        fragments = tuple(
            fragment for fragment in split_secret(plain) if looks_random(_PUNCTUATION.sub("", fragment))
        )
        if not fragments:
            return
        values = self._from_servers.get(session_id)
        if values is None:
            index = _by_session.setdefault(session_id, SecretIndex()) if session_id else _in_all_sessions
            values = self._from_servers[session_id] = _ValuesFromServers(index)
        values.add(link, fragments)

    def forget_session(self, session_id: str) -> None:
        """Forget the values that servers chose for the links of this session."""
        if (values := self._from_servers.pop(session_id, None)) is not None:
            values.clear()
            if not values.index:
                _by_session.pop(session_id, None)


class _ValuesFromServers:
    """The values that servers chose for the links of one session.

    Their number is limited: the oldest values of a link, and the least recently used link, are forgotten.
    """

    def __init__(self, index: SecretIndex) -> None:
        self.index = index
        self._links: dict[object, deque[tuple[str, ...]]] = {}

    def add(self, link: object, fragments: tuple[str, ...]) -> None:
        values = self._links.pop(link, None) or deque[tuple[str, ...]]()
        self._links[link] = values  # move it to the end: the first link is the least recently used
        if fragments in values:
            return
        values.append(fragments)
        _change(self.index, added=fragments)
        while len(values) > 1 and sum(map(len, values)) > _MAX_FRAGMENTS_OF_LINK:
            _change(self.index, removed=values.popleft())
        if len(self._links) > _MAX_LINKS:
            for old in self._links.pop(next(iter(self._links))):
                _change(self.index, removed=old)

    def clear(self) -> None:
        for values in self._links.values():
            for fragments in values:
                _change(self.index, removed=fragments)
        self._links = {}


def count(session_id: str = "") -> int:
    """The number of fragments of obtained secrets that are masked in this session."""
    return sum(map(len, _indexes(session_id)))


def contains(text: str, session_id: str = "") -> bool:
    """Whether there is an obtained secret in a text of this session. Escapes are not decoded."""
    if _CLIENT_TOKEN_START in text and _CLIENT_TOKEN.search(text):
        return True
    if session_id not in _by_session and session_id != ANY_SESSION:  # the usual case
        return _in_all_sessions.contains(text)
    return any(index.contains(text) for index in _indexes(session_id))


def find(text: str, session_id: str = "") -> list[Span]:
    """The spans of obtained secrets in a text of this session. Escapes are not decoded."""
    return _find(text, _indexes(session_id))


def find_partial_at_end(text: str, session_id: str = "") -> int:
    """The index at which an unfinished obtained secret may begin at the end of the text; the length of the text if there is none."""
    partial = _PARTIAL_CLIENT_TOKEN.search(text, max(0, len(text) - _CLIENT_TOKEN_LENGTH + 1))
    partial_token = len(text) if partial is None else partial.start()
    return min([partial_token, *(index.find_partial_at_end(text) for index in _indexes(session_id))])


def may_begin_escaped(session_id: str = "") -> bool:
    """Whether usual encoders may escape the first character of an obtained secret."""
    return any(index.may_begin_escaped for index in _indexes(session_id))


def is_nearly_whole(prefix: str, session_id: str = "") -> bool:
    """Whether this text must not be shown, because it is the first three quarters or more of an obtained secret."""
    if 4 * len(prefix) >= 3 * _CLIENT_TOKEN_LENGTH and _PARTIAL_CLIENT_TOKEN.match(prefix):
        return True
    return any(index.is_nearly_whole(prefix) for index in _indexes(session_id))


def skip_token(text: str) -> str:
    """Remove the rest of a signed token from the beginning of a text, if an earlier piece ended within the token."""
    rest = _TOKEN_REST.match(text)
    return text[rest.end() :] if rest is not None else text


def _indexes(session_id: str) -> Sequence[SecretIndex]:
    """The non-empty indexes that apply to a session."""
    if session_id == ANY_SESSION:
        return [index for index in (_in_all_sessions, *_by_session.copy().values()) if index]
    session_index = _by_session.get(session_id) if session_id else None
    if session_index:
        return (_in_all_sessions, session_index) if _in_all_sessions else (session_index,)
    return (_in_all_sessions,) if _in_all_sessions else ()


def _find(text: str, indexes: Iterable[SecretIndex]) -> list[Span]:
    spans = [span for index in indexes for span in index.find(text)]
    if _CLIENT_TOKEN_START in text:
        spans += (found.span() for found in _CLIENT_TOKEN.finditer(text))
    if spans and CONTEXT_TOKEN_START in text:
        spans = [(begin, end + _rest_length(text, begin, end)) for begin, end in spans]
    return spans


def _rest_length(text: str, begin: int, end: int) -> int:
    """The length of the rest of a signed token after this span; 0 if the span is not the beginning of a token."""
    rest = _TOKEN_REST.match(text, end) if CONTEXT_TOKEN_START in text[begin:end] else None
    return len(rest[0]) if rest is not None else 0


def _change(
    index: SecretIndex = _in_all_sessions, *, added: Iterable[str] = (), removed: Iterable[str] = ()
) -> None:
    with _lock:
        index.add(added)
        index.remove(removed)
