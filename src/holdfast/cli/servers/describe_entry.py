"""Describes a server's entry to the user who decides about it: in `servers approve`, `servers explain` and `servers import`."""

import re
from collections.abc import Iterator, Mapping, Sequence

from holdfast.cli.terminal_text import shorten
from holdfast.masking import MASKED
from holdfast.masking.configured_secrets import secrets_in_mapping
from holdfast.masking.secret_shapes import looks_generated
from holdfast.model.reserved_variables import risky_variable_reason
from holdfast.model.visible_text import quote
from holdfast.resolve.entry_summary import EntrySummary

_MAX_WORD_CELLS = 60
_MAX_WORDS = 12
_MAX_VALUE_CELLS = 200


def describe_entry(summary: EntrySummary, environ: Mapping[str, str] | None = None) -> list[str]:
    """Every line about an entry: command, arguments, URL, variables, headers and grants. Values are quoted as in JSON.

    With `environ`, the values of the variables that the entry refers to are shown, except secrets.
    """
    lines: list[str] = []
    if summary.command:
        program, *args = summary.command
        lines.append(f"command:   {quote(program)}")
        lines += _column("args:", map(quote, args))
    if summary.cwd:
        lines.append(f"cwd:       {quote(summary.cwd)}")
    if summary.url:
        lines.append(f"url:       {quote(ascii_host(summary.url))}")
    # Variables that decide which code runs, such as PYTHONPATH.
    code_variables = {name: value for name, value in summary.env.items() if risky_variable_reason(name)}
    lines += _column("env:", _pairs({k: v for k, v in summary.env.items() if k not in code_variables}))
    lines += _column(
        "code from:", (f"{pair}, which decides which code runs" for pair in _pairs(code_variables))
    )
    lines += _column("headers:", _pairs(summary.headers))
    if summary.host_variables:
        values = (_with_value(name, environ) for name in summary.host_variables)
        lines.append(f"uses:      {', '.join(values)} from your environment")
    lines += _column("network:", map(quote, summary.network))
    lines += _column("can read:", map(quote, summary.readable))
    lines += _column("can write:", map(_describe_writable, summary.writable))
    if summary.is_confined:
        lines.append("confined:  yes, in every session")
    return lines


def describe_grants(network: Sequence[str], readable: Sequence[str], writable: Sequence[str]) -> str:
    """What a confined server may reach, read and change, in a few words."""
    paths = f", can read: {', '.join(readable)}" if readable else ""
    names = f", can write: {', '.join(writable)}" if writable else ""
    return f"network: {', '.join(network) or 'none'}{paths}{names}"


def _describe_writable(name: str) -> str:
    return (
        f"{quote(name)}, the whole folder, with programs that run with your rights"
        if name == "."
        else quote(name)
    )


def _with_value(name: str, environ: Mapping[str, str] | None) -> str:
    if environ is None:
        return name
    value = environ.get(name)
    if value is None:
        return f"{name} (not set)"
    is_secret = any(secrets_in_mapping({name: value})) or looks_generated(value)
    return f"{name} = {MASKED if is_secret else quote(shorten(value, _MAX_VALUE_CELLS))}"


def describe_briefly(summary: EntrySummary) -> str:
    """The beginning of the command, or the URL, on one line. A shortened word is followed by its full length."""
    if not summary.command:
        return _brief(ascii_host(summary.url))
    words = [_brief(word) for word in summary.command[:_MAX_WORDS]]
    left_out = len(summary.command) - len(words)
    return " ".join((*words, f"… and {left_out} more arguments") if left_out else words)


def ascii_host(url: str) -> str:
    """The URL with its host in punycode, because letters outside of ASCII may look like those of a well-known host."""
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


def _pairs(values: Mapping[str, str]) -> Iterator[str]:
    for name, value in values.items():
        shown = name if name.isascii() and name.isprintable() and " " not in name else quote(name)
        yield f"{shown} = {quote(value)}"


def _column(title: str, lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{title if number == 0 else '':<11}{line}"
