"""Expand the variables in the entries of admitted servers: `${VAR}` and `${VAR:-default}`. The time is linear in the text."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from holdfast.masking.configured_secrets import secrets_in_mapping
from holdfast.model.resolution import Refusal, Resolution, Stage
from holdfast.model.server import Http, InProcess, ServerSpec, Source, Sse, Stdio, Transport
from holdfast.resolve.check_transport import RefusedEntryError, check_transport
from holdfast.resolve.kernel_paths import check_no_kernel_paths

MAX_EXPANDED_LENGTH = 1024 * 1024
"""The maximum length of all expanded strings of one entry. A short entry can refer to a long variable many times."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expand_servers(resolution: Resolution, environ: Mapping[str, str]) -> Resolution:
    """Expand the variables in each server's transport. Refuse a server if the result cannot be used.

    A client's servers are not expanded: a client cannot refer to variables of the host's environment.
    """
    servers: list[ServerSpec] = []
    refusals = list(resolution.refusals)
    for server in resolution.servers:
        try:
            servers.append(_expand_server(server, environ))
        except (ExpandError, RefusedEntryError) as error:
            refusals.append(Refusal(server=server.name, stage=Stage.VALIDATE, reason=str(error)))
    return replace(resolution, servers=tuple(servers), refusals=tuple(refusals))


def find_variables(server: ServerSpec) -> tuple[str, ...]:
    """The names of the variables that a server's transport refers to, before it is expanded."""
    if server.source is Source.CLIENT:
        return ()
    return tuple(
        dict.fromkeys(name for text in _texts(server.transport) for name in referenced_variables(text))
    )


class ExpandError(ValueError):
    """A text cannot be expanded. The message says why; it contains no value of a variable."""


class Expander:
    """Expands the strings of one entry."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._characters_left = MAX_EXPANDED_LENGTH

    def expand(self, text: str) -> str:
        """Expand the variables in a string. The values are not expanded themselves."""
        pieces: list[str] = []
        after = 0
        for reference in _find_references(text):
            pieces += (self._count(text[after : reference.start]), self._count(self._value(reference)))
            after = reference.end
        return "".join((*pieces, self._count(text[after:])))

    def _value(self, reference: "_Reference") -> str:
        value = self._environ.get(reference.name)
        if value:
            return value
        if reference.default is not None:
            return reference.default
        if value is not None:
            return value
        name = reference.name
        raise ExpandError(f"The variable {name} is not set. Set it, or give a default: ${{{name}:-…}}.")

    def _count(self, piece: str) -> str:
        """Return the piece. Raise if all pieces together are too long."""
        self._characters_left -= len(piece)
        if self._characters_left < 0:
            raise ExpandError(
                f"With its variables filled in, the entry has more than {MAX_EXPANDED_LENGTH} characters. Shorten a variable."
            )
        return piece


def referenced_variables(text: str) -> tuple[str, ...]:
    """The names of the variables that a string refers to."""
    return tuple(reference.name for reference in _find_references(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    start: int
    end: int
    name: str
    default: str | None = None


def _find_references(text: str) -> Iterator[_Reference]:
    start = text.find("${")
    while start >= 0:
        name = _NAME.match(text, start + 2)
        after = name.end() if name else start + 2
        if name and text.startswith("}", after):
            yield _Reference(start=start, end=after + 1, name=name[0])
            after += 1
        elif name and text.startswith(":-", after):
            end = text.find("}", after)
            if end < 0:  # without a `}`, the rest of the text has no reference either
                return
            yield _Reference(start=start, end=end + 1, name=name[0], default=text[after + 2 : end])
            after = end + 1
        start = text.find("${", after)


def _expand_server(server: ServerSpec, environ: Mapping[str, str]) -> ServerSpec:
    names = find_variables(server)
    if not names:
        return server
    transport = _expand_transport(server.transport, Expander(environ))
    try:
        check_transport(transport)
        check_no_kernel_paths(replace(server, transport=transport))
    except RefusedEntryError as error:
        raise RefusedEntryError(
            f"{error} Check the variables that it refers to: {', '.join(names)}."
        ) from None
    values = {name: environ[name] for name in names if name in environ}
    return replace(server, transport=transport, secrets=secrets_in_mapping(values))


def _expand_transport(transport: Transport, expander: Expander) -> Transport:
    def expand_values(values: Mapping[str, str]) -> dict[str, str]:
        return {name: expander.expand(value) for name, value in values.items()}

    match transport:
        case Stdio():
            return replace(
                transport,
                command=expander.expand(transport.command),
                args=tuple(map(expander.expand, transport.args)),
                env=expand_values(transport.env),
                readable=tuple(map(expander.expand, transport.readable)),
                cwd=expander.expand(transport.cwd),
            )
        case Http() | Sse():
            return replace(
                transport, url=expander.expand(transport.url), headers=expand_values(transport.headers)
            )
        case InProcess():
            return transport


def _texts(transport: Transport) -> Iterator[str]:
    match transport:
        case Stdio():
            yield from (transport.command, *transport.args, *transport.env.values())
            yield from (*transport.readable, transport.cwd)
        case Http() | Sse():
            yield from (transport.url, *transport.headers.values())
        case InProcess():
            pass
