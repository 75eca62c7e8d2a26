"""Stage two: turn entries into server specs. An invalid entry is refused alone, with a reason that says what to do."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.model.allowlist import ALLOW_ALL, ALLOW_NONE, Allowlist
from holdfast.model.errors import HoldfastError
from holdfast.model.reserved_variables import risky_variable_reason
from holdfast.model.resolution import Refusal, Resolution, ServerWarning, Stage
from holdfast.model.secrets import secrets_in_mapping
from holdfast.model.server import Http, Lifetime, ServerSpec, Source, Sse, Stdio, Transport
from holdfast.model.trust import Trust, parse_trust
from holdfast.resolve.expand import MissingVariableError, expand, referenced_variables
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.server_entry import ASKS_HELP, HOST_AND_USER_KEYS, EntryFields, ServerEntry

MAX_NAME_LENGTH = 128
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")


class _RefusedEntryError(ValueError):
    """An entry is refused. The message is the reason, for the user."""


def validate(
    loaded: LoadedEntries,
    *,
    builtins: Collection[ServerSpec] = (),
    reserved_names: Collection[str] = (),
    environ: Mapping[str, str],
) -> Resolution:
    """Keep the built-in servers and the valid entries.

    If two entries have the same name, the one from the more trusted source is kept and the other is refused.
    """
    servers = {server.name: server for server in builtins}
    refusals = list(loaded.refusals)
    warnings: list[ServerWarning] = []
    for entry in loaded.entries:
        try:
            _check_name(entry, servers, reserved_names)
            fields = _parse(entry)
            servers[entry.name] = _build_server(entry, fields, environ)
        except _RefusedEntryError as error:
            refusals.append(Refusal(server=entry.name, stage=Stage.VALIDATE, reason=str(error)))
            continue
        warnings += _warnings(entry, fields)
    return Resolution(servers=tuple(servers.values()), refusals=tuple(refusals), warnings=tuple(warnings))


def _check_name(
    entry: ServerEntry, servers: Mapping[str, ServerSpec], reserved_names: Collection[str]
) -> None:
    if not entry.name.strip() or len(entry.name) > MAX_NAME_LENGTH or not entry.name.isprintable():
        raise _RefusedEntryError(f"A server's name must have 1 to {MAX_NAME_LENGTH} printable characters.")
    taken = servers.get(entry.name)
    if entry.name in reserved_names or (taken is not None and taken.source is Source.BUILTIN):
        raise _RefusedEntryError("A built-in server has this name. Choose another name.")
    if taken is not None:
        raise _RefusedEntryError(f"A server in {taken.origin} has the same name. Rename one of them.")


def _parse(entry: ServerEntry) -> EntryFields:
    try:
        return msgspec.convert(entry.value, EntryFields)
    except msgspec.ValidationError as error:
        raise _RefusedEntryError(f"{_describe(error)} Correct it in {entry.origin}.") from None


def _describe(error: msgspec.ValidationError) -> str:
    problem, _, path = str(error).partition(" - at ")
    key = path.strip("`").removeprefix("$.")
    explanation = f" {ASKS_HELP}" if key.startswith("asks") else ""
    return f"{key or 'The entry'}: {problem}.{explanation}"


def _build_server(entry: ServerEntry, fields: EntryFields, environ: Mapping[str, str]) -> ServerSpec:
    if fields.disabled:
        raise _RefusedEntryError(f'It is disabled in {entry.origin}. Remove "disabled" there to use it.')
    if entry.source is Source.CLIENT:
        expand_text: Callable[[str], str] = (
            str  # a client cannot refer to variables of the host's environment
        )
    else:
        expand_text = _expander(environ)
    is_trusted = entry.source in (Source.HOST, Source.USER)
    return ServerSpec(
        name=entry.name,
        source=entry.source,
        origin=entry.origin,
        digest=entry.digest,
        transport=_transport(entry, fields, expand_text),
        trust=_trust(fields) if is_trusted else Trust.DIRECT,
        lifetime=fields.lifetime if is_trusted else Lifetime.SESSION,
        tools=_allowlist(fields.tools),
        allowed_requests=_allowlist(fields.asks) if is_trusted else ALLOW_NONE,
        secrets=() if entry.source is Source.CLIENT else _expanded_secrets(fields, environ),
    )


def _expanded_secrets(fields: EntryFields, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets among the variables that the entry refers to."""
    texts = [fields.command or "", fields.url or "", *fields.args, *fields.env.values()]
    names = {name for text in (*texts, *fields.headers.values()) for name in referenced_variables(text)}
    return secrets_in_mapping({name: environ[name] for name in sorted(names) if name in environ})


def _expander(environ: Mapping[str, str]) -> Callable[[str], str]:
    def expand_text(text: str) -> str:
        try:
            return expand(text, environ)
        except MissingVariableError as missing:
            raise _RefusedEntryError(
                f"The variable {missing} is not set. Set it, or give a default: ${{{missing}:-…}}."
            ) from None

    return expand_text


def _transport(entry: ServerEntry, fields: EntryFields, expand_text: Callable[[str], str]) -> Transport:
    if fields.command is not None and fields.url is not None:
        raise _RefusedEntryError('It has both "command" and "url". Keep one.')
    if fields.command is not None:
        if fields.kind not in (None, "stdio"):
            raise _RefusedEntryError(
                f'"type" must be stdio for a server with a "command", not {fields.kind}.'
            )
        return _stdio(entry, fields, expand_text)
    if fields.url is not None:
        if fields.kind == "stdio":
            raise _RefusedEntryError('"type" must be http or sse for a server with a "url", not stdio.')
        headers = {name: expand_text(value) for name, value in fields.headers.items()}
        _check_headers(headers)
        url = _check_url(expand_text(fields.url))
        return Sse(url=url, headers=headers) if fields.kind == "sse" else Http(url=url, headers=headers)
    raise _RefusedEntryError('It has neither a "command" nor a "url". Add one of them.')


def _stdio(entry: ServerEntry, fields: EntryFields, expand_text: Callable[[str], str]) -> Stdio:
    command = expand_text(fields.command or "")
    if not command.strip():
        raise _RefusedEntryError('"command" is empty.')
    args = tuple(expand_text(arg) for arg in fields.args)
    env = {name: expand_text(value) for name, value in fields.env.items()}
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            raise _RefusedEntryError(f"env: {name!r} is not a valid variable name.")
        if entry.source in (Source.PROJECT, Source.CLIENT) and (why := risky_variable_reason(name)):
            raise _RefusedEntryError(f"env: {name} may not come from {entry.origin}: {why}.")
        if "\0" in value:
            raise _RefusedEntryError(f"env: the value of {name} contains a NUL character.")
    if any("\0" in word for word in (command, *args)):
        raise _RefusedEntryError('"command" and "args" must not contain a NUL character.')
    is_trusted = entry.source in (Source.HOST, Source.USER)
    for host in fields.network:
        if not _HOST.fullmatch(host):
            raise _RefusedEntryError(
                f"network: {host!r} is not a host name. Write example.org or example.org:443."
            )
    readable = tuple(expand_text(path) for path in fields.readable)
    for path in readable:
        if not path.startswith("/"):
            raise _RefusedEntryError(f"readable: {path!r} is not an absolute path.")
    return Stdio(
        command=command,
        args=args,
        env=env,
        network=tuple(fields.network) if is_trusted else (),
        readable=readable if is_trusted else (),
    )


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise _RefusedEntryError(f"{url[:100]!r} is not a URL.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _RefusedEntryError(f"{url[:100]!r} is not an http or https URL.")
    if parts.username is not None or parts.password is not None:
        raise _RefusedEntryError(
            'The URL contains a user name or password. Put it into "headers", as a ${VARIABLE}.'
        )
    if not url.isprintable() or " " in url:
        raise _RefusedEntryError("The URL contains a space or a control character.")
    return url


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise _RefusedEntryError(f"headers: {name[:80]!r} is not a valid header name.")
        if any(char in value for char in "\r\n\0"):
            raise _RefusedEntryError(
                f"headers: the value of {name} contains a line break or a NUL character."
            )


def _trust(fields: EntryFields) -> Trust:
    if fields.trust_level is None:
        return Trust.DIRECT
    try:
        return parse_trust(fields.trust_level)
    except HoldfastError as error:
        raise _RefusedEntryError(f"trust_level: {error.message}") from None


def _allowlist(names: Any) -> Allowlist:
    match names:
        case "all":
            return ALLOW_ALL
        case "none":
            return ALLOW_NONE
        case _:
            return Allowlist(frozenset(names))


def _warnings(entry: ServerEntry, fields: EntryFields) -> list[ServerWarning]:
    if entry.source in (Source.HOST, Source.USER):
        return []
    defaults = EntryFields()
    ignored = [key for key in HOST_AND_USER_KEYS if getattr(fields, key) != getattr(defaults, key)]
    if not ignored:
        return []
    text = (
        f"These keys have no effect in {entry.origin}: {', '.join(ignored)}. "
        "Only the config files of the host and the user can set them."
    )
    return [ServerWarning(server=entry.name, stage=Stage.VALIDATE, text=text)]
