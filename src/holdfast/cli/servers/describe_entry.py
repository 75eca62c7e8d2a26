"""Describes a server's entry to the user who decides about it: in `servers approve`, `servers explain` and `servers import`."""

import json
import re
from collections.abc import Iterator, Mapping

from holdfast.cli.text import shorten
from holdfast.resolve.entry_summary import EntrySummary

_MAX_WORD_CELLS = 60
_MAX_WORDS = 12


def describe_entry(summary: EntrySummary) -> list[str]:
    """Return all lines of an entry: command, arguments, URL, variables and headers. Values are quoted as in JSON."""
    lines: list[str] = []
    if summary.command:
        program, *args = summary.command
        lines.append(f"command:   {quote(program)}")
        lines += _column("args:", map(quote, args))
    if summary.cwd:
        lines.append(f"cwd:       {quote(summary.cwd)}")
    if summary.url:
        lines.append(f"url:       {quote(ascii_host(summary.url))}")
    lines += _column("env:", _pairs(summary.env))
    lines += _column("headers:", _pairs(summary.headers))
    if summary.host_variables:
        lines.append(f"uses:      {', '.join(summary.host_variables)} from your environment")
    return lines


def describe_briefly(summary: EntrySummary) -> str:
    """Return the command or the URL in a few lines. Long words are shortened, and say how long they are."""
    if not summary.command:
        return _brief(ascii_host(summary.url))
    words = [_brief(word) for word in summary.command[:_MAX_WORDS]]
    left_out = len(summary.command) - len(words)
    return " ".join((*words, f"… and {left_out} more arguments") if left_out else words)


def ascii_host(url: str) -> str:
    """Return the URL with its host in ASCII (punycode): other letters may look like those of a host that you know."""
    scheme, slashes, rest = url.partition("//")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, at, place = authority.rpartition("@")
    host, colon, port = place.partition(":")
    if host.isascii():
        return url
    try:
        encoded = host.encode("idna").decode()
    except UnicodeError:
        return url
    return f"{scheme}{slashes}{user}{at}{encoded}{colon}{port}{rest[len(authority) :]}"


def _brief(word: str) -> str:
    quoted = quote(word)
    short = shorten(quoted, _MAX_WORD_CELLS)
    return short if short == quoted else f'{short}" ({len(word)} characters)'


def quote(text: str) -> str:
    """Return the text as ASCII JSON: no letter looks like another, and blanks at the end are visible."""
    return json.dumps(text)


def _pairs(values: Mapping[str, str]) -> Iterator[str]:
    for name, value in values.items():
        shown = name if name.isascii() and name.isprintable() and " " not in name else quote(name)
        yield f"{shown} = {quote(value)}"


def _column(title: str, lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{title if number == 0 else '':<11}{line}"
