"""Secrets that this process obtains while it runs: tokens of logins, cookies, signed tokens. Every mask masks them.

A session's mask is made from the configuration when the session opens, so it cannot contain them. They are kept once for
the whole process, like the log: every session of every host masks all of them.
"""

import re
import threading
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from holdfast.masking.known_secrets import SecretIndex, Span, encode_secrets, split_secret
from holdfast.masking.looks_generated import looks_random

CONTEXT_TOKEN_START = "eyJhbGciOiJFZERTQSIsImtpZCI6I"
"""Every signed context token begins with this: its header in base64. There is a new token for every request."""
_MAX_LOGINS = 256
_MAX_CREDENTIALS_OF_LOGIN = 16
_MAX_LINKS = 1024
_MAX_PIECES_OF_LINK = 64
_MAX_LENGTH = 4096
_CREDENTIAL = re.compile(r"[!-~]{8,}")
_NOT_IN_WORDS = re.compile(r"\W+")
_TOKEN_REST = re.compile(r"[\w.-]*+", re.ASCII)

_index = SecretIndex()
_changing = threading.Lock()


class ObtainedSecrets:
    """The secrets that one host has obtained. They are masked until it exits; if there are too many, the oldest are forgotten."""

    def __init__(self) -> None:
        self._credentials: dict[object, dict[str, tuple[str, ...]]] = {}
        self._from_servers: dict[object, deque[tuple[str, ...]]] = {}
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
        for values in self._from_servers.values():
            for pieces in values:
                _change(removed=pieces)
        self._credentials, self._from_servers = {}, {}

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

    def add_from_server(self, link: object, value: str) -> None:
        """Mask a cookie or an id that a server chose for a link, if it looks random: a server must not be able to mask words."""
        plain = value[:_MAX_LENGTH]
        pieces = tuple(piece for piece in split_secret(plain) if looks_random(_NOT_IN_WORDS.sub("", piece)))
        if not pieces:
            return
        values = self._from_servers.pop(link, None) or deque[tuple[str, ...]]()
        self._from_servers[link] = values  # the link that was used last is last
        if pieces in values:
            return
        values.append(pieces)
        _change(added=pieces)
        while len(values) > 1 and sum(map(len, values)) > _MAX_PIECES_OF_LINK:
            _change(removed=values.popleft())
        if len(self._from_servers) > _MAX_LINKS:
            for old in self._from_servers.pop(next(iter(self._from_servers))):
                _change(removed=old)


def count() -> int:
    """How many secrets, and pieces of secrets, have been obtained."""
    return len(_index)


def find(text: str) -> list[Span]:
    """The spans of obtained secrets in a text."""
    if not _index:
        return []
    spans = _index.find(text)
    if spans and CONTEXT_TOKEN_START in text:
        spans = [(begin, end + _rest_length(text, begin, end)) for begin, end in spans]
    return spans


def find_partial_at_end(text: str) -> int:
    """The start of the longest suffix of the text that may be the beginning of an obtained secret."""
    return _index.find_partial_at_end(text) if _index else len(text)


def is_nearly_whole(prefix: str) -> bool:
    """Whether this prefix of an obtained secret is so long that it must not be shown."""
    return bool(_index) and _index.is_nearly_whole(prefix)


def skip_token(text: str) -> str:
    """The text without the rest of a signed token at its beginning."""
    rest = _TOKEN_REST.match(text)
    return text[rest.end() :] if rest is not None else text


def _rest_length(text: str, begin: int, end: int) -> int:
    """The length of what follows the beginning of a signed token in this span."""
    rest = _TOKEN_REST.match(text, end) if CONTEXT_TOKEN_START in text[begin:end] else None
    return len(rest[0]) if rest is not None else 0


def _change(*, added: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
    with _changing:
        _index.add(added)
        _index.remove(removed)
