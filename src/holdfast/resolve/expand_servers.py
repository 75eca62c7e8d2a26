"""After admission: fill in the variables that the entries of admitted servers refer to."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from holdfast.model.resolution import Refusal, Resolution, Stage
from holdfast.model.secrets import secrets_in_mapping
from holdfast.model.server import Http, InProcess, ServerSpec, Source, Sse, Stdio, Transport
from holdfast.resolve.check_transport import RefusedEntryError, check_transport
from holdfast.resolve.expand import Expander, ExpandError, referenced_variables


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


def _expand_server(server: ServerSpec, environ: Mapping[str, str]) -> ServerSpec:
    names = find_variables(server)
    if not names:
        return server
    transport = _expand_transport(server.transport, Expander(environ))
    try:
        check_transport(transport)
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
