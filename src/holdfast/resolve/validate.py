"""Stage two: entries become servers, or fall one by one with a reason a person can act on."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from holdfast.model.choice import ALL, NONE, Choice
from holdfast.model.errors import HoldfastError
from holdfast.model.mask import secrets_in
from holdfast.model.resolution import Caution, Refusal, Resolution, Stage
from holdfast.model.server import Http, Lifetime, ServerSpec, Source, Sse, Stdio, Transport
from holdfast.model.trust import Trust, parse_trust
from holdfast.model.variables import is_loader_variable
from holdfast.resolve.entry import Entry, Loaded
from holdfast.resolve.expand import Missing, expand, variables

NAME_LENGTH = 128
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")
# What only its own host or user may decide about a server; a project or a client cannot speak for itself.
_OURS = ("trust_level", "lifetime", "network", "readable", "asks")


class _Written(msgspec.Struct, rename={"kind": "type"}):
    """An entry's shape. What other programs write beside it (`timeout`, `autoApprove`, …) is left alone."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    url: str | None = None
    kind: Literal["stdio", "http", "streamable-http", "streamableHttp", "sse"] | None = None
    headers: dict[str, str] = {}
    trust_level: str | None = None
    lifetime: Lifetime = Lifetime.SESSION
    network: list[str] = []
    readable: list[str] = []
    tools: Literal["all", "none"] | list[str] = "all"
    asks: Literal["all", "none"] | list[Literal["roots", "sampling", "elicitation"]] = "none"
    disabled: bool = False


class _Invalid(ValueError):
    """Why an entry falls."""


def validate(
    loaded: Loaded,
    *,
    builtins: Collection[ServerSpec] = (),
    reserved: Collection[str] = (),
    environ: Mapping[str, str],
) -> Resolution:
    """The servers that make sense, behind the built-in ones; a name is taken by whoever is trusted most."""
    servers = {server.name: server for server in builtins}
    refusals = list(loaded.refusals)
    cautions: list[Caution] = []
    for entry in loaded.entries:
        try:
            _check_name(entry, servers, reserved)
            written = _read(entry)
            servers[entry.name] = _server(entry, written, environ)
        except _Invalid as invalid:
            refusals.append(Refusal(server=entry.name, stage=Stage.VALIDATE, reason=str(invalid)))
            continue
        cautions += _cautions(entry, written)
    return Resolution(servers=tuple(servers.values()), refusals=tuple(refusals), cautions=tuple(cautions))


def _check_name(entry: Entry, servers: Mapping[str, ServerSpec], reserved: Collection[str]) -> None:
    if not entry.name.strip() or len(entry.name) > NAME_LENGTH or not entry.name.isprintable():
        raise _Invalid(f"A server's name has 1 to {NAME_LENGTH} printable characters.")
    taken = servers.get(entry.name)
    if entry.name in reserved or (taken is not None and taken.source is Source.BUILTIN):
        raise _Invalid("This is the name of a built-in server. Choose another.")
    if taken is not None:
        raise _Invalid(f"A server of this name comes from {taken.origin} already. Rename one of them.")


def _read(entry: Entry) -> _Written:
    try:
        return msgspec.convert(entry.value, _Written)
    except msgspec.ValidationError as error:
        raise _Invalid(f"{_in_words(error)}. Correct it in {entry.origin}.") from None


def _in_words(error: msgspec.ValidationError) -> str:
    what, _, path = str(error).partition(" - at ")
    return f"{path.strip('`').removeprefix('$.') or 'The entry'}: {what}"


def _server(entry: Entry, written: _Written, environ: Mapping[str, str]) -> ServerSpec:
    if written.disabled:
        raise _Invalid(f'It is disabled in {entry.origin}. Remove "disabled" there to use it.')
    if entry.source is Source.CLIENT:
        fill: Callable[[str], str] = str  # a client's words are meant as they stand
    else:
        fill = _filler(environ)
    vouched = entry.source in (Source.HOST, Source.USER)
    return ServerSpec(
        name=entry.name,
        source=entry.source,
        origin=entry.origin,
        digest=entry.digest,
        transport=_transport(entry, written, fill),
        trust=_trust(written) if vouched else Trust.DIRECT,
        lifetime=written.lifetime if vouched else Lifetime.SESSION,
        tools=_choice(written.tools),
        asks=_choice(written.asks) if vouched else NONE,
        secrets=() if entry.source is Source.CLIENT else _filled_in(written, environ),
    )


def _filled_in(written: _Written, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets of the host's environment that stand anywhere in the entry."""
    words = [written.command or "", written.url or "", *written.args, *written.env.values()]
    names = {name for text in (*words, *written.headers.values()) for name in variables(text)}
    return secrets_in({name: environ[name] for name in sorted(names) if name in environ})


def _filler(environ: Mapping[str, str]) -> Callable[[str], str]:
    def fill(text: str) -> str:
        try:
            return expand(text, environ)
        except Missing as missing:
            raise _Invalid(
                f"The variable {missing} is not set. Set it, or give a default: ${{{missing}:-…}}."
            ) from None

    return fill


def _transport(entry: Entry, written: _Written, fill: Callable[[str], str]) -> Transport:
    if written.command is not None and written.url is not None:
        raise _Invalid('It has both "command" and "url". Keep one.')
    if written.command is not None:
        if written.kind not in (None, "stdio"):
            raise _Invalid(f'A "command" is reached by stdio, not by {written.kind}.')
        return _stdio(entry, written, fill)
    if written.url is not None:
        if written.kind == "stdio":
            raise _Invalid('A "url" is reached by http or sse, not by stdio.')
        headers = {name: fill(value) for name, value in written.headers.items()}
        _check_headers(headers)
        url = _checked_url(fill(written.url))
        return Sse(url=url, headers=headers) if written.kind == "sse" else Http(url=url, headers=headers)
    raise _Invalid('It has neither a "command" to start nor a "url" to reach.')


def _stdio(entry: Entry, written: _Written, fill: Callable[[str], str]) -> Stdio:
    command = fill(written.command or "")
    if not command.strip():
        raise _Invalid('"command" is empty.')
    args = tuple(fill(arg) for arg in written.args)
    env = {name: fill(value) for name, value in written.env.items()}
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            raise _Invalid(f"env: {name!r} is no name of a variable.")
        if entry.source in (Source.PROJECT, Source.CLIENT) and (why := is_loader_variable(name)):
            raise _Invalid(f"env: {name} may not come from {entry.origin}: {why}.")
        if "\0" in value:
            raise _Invalid(f"env: the value of {name} has a NUL character.")
    if any("\0" in word for word in (command, *args)):
        raise _Invalid('"command" and "args" cannot have a NUL character.')
    vouched = entry.source in (Source.HOST, Source.USER)
    for host in written.network:
        if not _HOST.fullmatch(host):
            raise _Invalid(f"network: {host!r} is no host name. Write example.org or example.org:443.")
    readable = tuple(fill(place) for place in written.readable)
    for place in readable:
        if not place.startswith("/"):
            raise _Invalid(f"readable: {place!r} is no absolute path.")
    return Stdio(
        command=command,
        args=args,
        env=env,
        network=tuple(written.network) if vouched else (),
        readable=readable if vouched else (),
    )


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise _Invalid(f"{url[:100]!r} is no address.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _Invalid(f"{url[:100]!r} is no http or https address.")
    if parts.username is not None or parts.password is not None:
        raise _Invalid('The address holds a user name or password. Put it into "headers", by a ${VARIABLE}.')
    if not url.isprintable() or " " in url:
        raise _Invalid("The address has a blank or a control character.")
    return url


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise _Invalid(f"headers: {name[:80]!r} is no name of a header.")
        if any(letter in value for letter in "\r\n\0"):
            raise _Invalid(f"headers: the value of {name} has a line end or a NUL character.")


def _trust(written: _Written) -> Trust:
    if written.trust_level is None:
        return Trust.DIRECT
    try:
        return parse_trust(written.trust_level)
    except HoldfastError as error:
        raise _Invalid(f"trust_level: {error.message}") from None


def _choice(tools: Any) -> Choice:
    match tools:
        case "all":
            return ALL
        case "none":
            return NONE
        case _:
            return Choice(frozenset(tools))


def _cautions(entry: Entry, written: _Written) -> list[Caution]:
    if entry.source in (Source.HOST, Source.USER):
        return []
    unset = _Written()
    spoken = [key for key in _OURS if getattr(written, key) != getattr(unset, key)]
    if not spoken:
        return []
    text = f"{', '.join(spoken)} cannot be set in {entry.origin} and had no effect."
    return [Caution(server=entry.name, stage=Stage.VALIDATE, text=text)]
