"""Check the values of a transport: its command, arguments, variables, URL and headers.

The messages name keys and never quote values, which may be secrets.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from holdfast.model.guarded_names import WRITABLE_NAMES
from holdfast.model.server import Http, InProcess, Sse, Stdio, Transport

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class RefusedEntryError(ValueError):
    """An entry is refused. The message is the reason, for the user."""


def check_transport(transport: Transport) -> None:
    """Raise `RefusedEntryError` if a value cannot be used."""
    match transport:
        case Stdio():
            _check_stdio(transport)
        case Http(url=url, headers=headers) | Sse(url=url, headers=headers):
            _check_headers(headers)
            _check_url(url)
        case InProcess():
            pass


def _check_stdio(stdio: Stdio) -> None:
    if not stdio.command.strip():
        raise RefusedEntryError('"command" is empty. Write the program to start.')
    if any("\0" in word for word in (stdio.command, *stdio.args)):
        raise RefusedEntryError('"command" and "args" must not contain a NUL character. Remove it.')
    for name, value in stdio.env.items():
        if "\0" in value:
            raise RefusedEntryError(f"env: the value of {name} contains a NUL character. Remove it.")
    for index, path in enumerate(stdio.readable):
        if not path.startswith("/"):
            raise RefusedEntryError(
                f"readable[{index}] is not an absolute path. Write it with a / at its beginning."
            )
    for index, name in enumerate(stdio.writable):
        if name not in WRITABLE_NAMES:
            raise RefusedEntryError(
                f"writable[{index}] is not one of {', '.join(WRITABLE_NAMES)}. Remove it, or write one of them."
            )
    if stdio.cwd not in ("", ".") and not stdio.cwd.startswith("/"):
        raise RefusedEntryError(
            '"cwd" is neither "." (the session\'s folder) nor an absolute path. Write one of these.'
        )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise RefusedEntryError(
            '"url" is not a valid URL. Write one such as https://example.org/mcp.'
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RefusedEntryError(
            '"url" is not an http or https URL. Write one such as https://example.org/mcp.'
        )
    if parts.username is not None or parts.password is not None:
        raise RefusedEntryError(
            'The URL contains a user name or password. Put it into "headers", as a ${VARIABLE}.'
        )
    if not url.isprintable() or " " in url:
        raise RefusedEntryError(
            "The URL contains a space or a control character. Write it percent-encoded: a space is %20."
        )


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise RefusedEntryError(
                f"headers: {quote_name(name)} is not a valid header name. Use letters, digits and hyphens."
            )
        if any(char in value for char in "\r\n\0"):
            raise RefusedEntryError(
                f"headers: the value of {name} contains a line break or a NUL character. Remove it."
            )


def quote_name(name: str) -> str:
    """A key of an entry, for a message. It is never cut: a secret that is cut would not be recognised and masked."""
    return repr(name) if len(name) <= 100 else f"a name of {len(name)} characters"
