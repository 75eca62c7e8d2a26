"""Stage two: turn entries into server specs, with variables as written (`${VAR}`).

An invalid entry is refused, with a reason that says what to do. The other entries are not affected.
"""

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from enum import StrEnum
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from holdfast.model.allowlist import ALLOW_ALL, ALLOW_NONE, Allowlist
from holdfast.model.errors import HoldfastError
from holdfast.model.reserved_variables import loader_variable_reason, project_variable_reason
from holdfast.model.resolution import Refusal, Resolution, SessionWarning, Stage
from holdfast.model.server import (
    TRUSTED_SOURCES,
    Http,
    InProcess,
    Lifetime,
    ServerSpec,
    Source,
    Sse,
    Stdio,
    Transport,
    app_service,
)
from holdfast.model.trust import Trust, parse_trust
from holdfast.model.visible_text import display_path
from holdfast.resolve.approved_variables import is_covered_by_approval, module_folders, what_approval_covers
from holdfast.resolve.check_transport import RefusedEntryError, check_transport, quote_name
from holdfast.resolve.expand import find_variables
from holdfast.resolve.kernel_paths import check_no_kernel_paths
from holdfast.resolve.load import LoadedEntries
from holdfast.resolve.server_entry import (
    APPROVED_KEYS,
    ASKS_HELP,
    COPY_HELP,
    TRUSTED_SOURCE_KEYS,
    AppFields,
    EntryFields,
    ServerEntry,
    server_identity,
)
from holdfast.resolve.server_names import looks_like_tool_of, skeleton, why_bad_name

T = TypeVar("T", bound=msgspec.Struct)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:(?P<port>[0-9]{1,5}))?")
_MAX_PORT = 65535
_NOT_FOR_TOOLBOXES = (
    "command",
    "args",
    "env",
    "url",
    "headers",
    "type",
    "cwd",
    "network",
    "readable",
    "writable",
    "era",
)


def validate(
    loaded: LoadedEntries, *, builtins: Collection[ServerSpec] = (), reserved_names: Collection[str] = ()
) -> Resolution:
    """Keep the built-in servers and the valid entries. No variable is expanded, because no entry is admitted yet."""
    servers = list(builtins)
    reserved = {*reserved_names, *(server.name for server in builtins)}
    refusals = list(loaded.refusals)
    warnings = list(loaded.warnings)
    for entry in loaded.entries:
        try:
            _check_name(entry, reserved)
            fields = _parse(entry, EntryFields)
            servers.append(_make_server(entry, fields))
        except RefusedEntryError as error:
            refusals.append(Refusal(server=entry.name, stage=Stage.VALIDATE, reason=str(error)))
            continue
        warnings += _warnings(entry, fields)
    return Resolution(servers=tuple(servers), refusals=tuple(refusals), warnings=tuple(warnings))


def find_mistake(entry: ServerEntry) -> str:
    """What is wrong with an entry, whether it is disabled or not; empty if nothing is."""
    try:
        _check_name(entry, ())
        _make_server(entry, msgspec.structs.replace(_parse(entry, EntryFields), disabled=False))
    except RefusedEntryError as error:
        return str(error)
    return ""


def is_network_grant(text: str) -> bool:
    """Whether a string can be a network grant: `example.org` or `example.org:443`."""
    matched = _HOST.fullmatch(text)
    return matched is not None and 0 < int(matched["port"] or 443) <= _MAX_PORT


def _check_name(entry: ServerEntry, reserved_names: Collection[str]) -> None:
    if why := why_bad_name(entry.name):
        raise RefusedEntryError(why)
    if entry.name in reserved_names:
        raise RefusedEntryError("A built-in server has this name. Choose another name.")
    for name in reserved_names:
        if skeleton(entry.name) == skeleton(name) or looks_like_tool_of(entry.name, name):
            raise RefusedEntryError(
                f"Its name looks like that of the built-in server {name}. Choose another name."
            )


def _parse(entry: ServerEntry, kind: type[T]) -> T:
    try:
        return msgspec.convert(entry.value, kind)
    except msgspec.ValidationError as error:
        raise RefusedEntryError(
            f"{_describe(error, kind)} Correct it in {display_path(entry.origin)}."
        ) from None


def _describe(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> str:
    problem, _, path = str(error).partition(" - at ")
    key = path.strip("`").removeprefix("$.")
    if problem.startswith("Invalid enum value"):  # do not quote the value: it may be a secret, or long
        problem = f"This value is not allowed{_allowed_values(key, kind)}"
    explanation = f" {ASKS_HELP}" if key.startswith("asks") else ""
    return f"{key or 'The entry'}: {problem}.{explanation}"


def _allowed_values(key: str, kind: type[msgspec.Struct]) -> str:
    """The values that a key may have, to follow the text of an error. Empty if `ASKS_HELP` says it, or there is no list."""
    for field in msgspec.structs.fields(kind):
        if field.encode_name == key and key != "asks":
            options = [field.type, *get_args(field.type)]
            values = [str(one) for option in options for one in _values_of(option)]
            more = " or a list" if any(get_origin(option) is list for option in options) else ""
            return f"; it must be {' or '.join(map(repr, values))}{more}" if values else ""
    return ""


def _values_of(option: object) -> Iterable[object]:
    if isinstance(option, type) and issubclass(option, StrEnum):
        return option
    return get_args(option) if get_origin(option) is Literal else ()


def _make_server(entry: ServerEntry, fields: EntryFields) -> ServerSpec:
    server = _from_entry_fields(entry, fields)
    return _add_app_fields(entry, server) if entry.source is Source.APP else server


def _from_entry_fields(entry: ServerEntry, fields: EntryFields) -> ServerSpec:
    if fields.disabled:
        raise RefusedEntryError(
            f'It is disabled in {display_path(entry.origin)}. Remove "disabled" there to use it.'
        )
    is_trusted = entry.source in TRUSTED_SOURCES
    server = ServerSpec(
        name=entry.name,
        source=entry.source,
        origin=entry.origin,
        digest=entry.digest,
        transport=_transport(entry, fields),
        min_trust=_min_trust(fields) if is_trusted else Trust.DIRECT,
        always_confined=fields.confined,
        lifetime=fields.lifetime if is_trusted else Lifetime.SESSION,
        pins_tools=fields.pin_tools or not is_trusted,
        tools=_allowlist(fields.tools),
        folders=_folders(fields.folders) if is_trusted else (),
        allowed_requests=_allowlist(fields.asks) if is_trusted else ALLOW_NONE,
        era=fields.era or "",
    )
    server = replace(server, identity=server_identity(server))
    if not find_variables(server):  # otherwise `expand_servers` checks the expanded values
        check_transport(server.transport)
    check_no_kernel_paths(server)
    return server


def _add_app_fields(entry: ServerEntry, server: ServerSpec) -> ServerSpec:
    fields = _parse(entry, AppFields)
    if fields.warm and (not isinstance(server.transport, Stdio) or server.lifetime is Lifetime.HOST):
        raise RefusedEntryError(
            '"warm" works only for a server that has a "command" and is not shared (no "lifetime": "host"). Remove it, or change that.'
        )
    return replace(
        server,
        is_lazy=fields.lazy,
        warm=fields.warm,
        pins_tools=fields.pin_tools,
        call_seconds=fields.timeout,
    )


def _in_process(entry: ServerEntry, fields: EntryFields) -> InProcess:
    """The transport of a toolbox. It runs in the application's process, so it cannot be started elsewhere or confined."""
    given = entry.value if isinstance(entry.value, dict) else {}
    if fields.confined or fields.lifetime is Lifetime.HOST:
        key = "confined" if fields.confined else "lifetime"
        raise RefusedEntryError(
            f'It is a toolbox, which runs in the application\'s process: "{key}" is for servers that are started. Remove it, '
            "or start the toolbox as a program."
        )
    if unusable := [key for key in _NOT_FOR_TOOLBOXES if key in given]:
        raise RefusedEntryError(
            f'It is a toolbox, which runs in the application\'s process: "{unusable[0]}" has no effect. Remove it.'
        )
    return InProcess(service=app_service(entry.name))


def _transport(entry: ServerEntry, fields: EntryFields) -> Transport:
    if entry.is_in_process:
        return _in_process(entry, fields)
    if fields.command is not None and fields.url is not None:
        raise RefusedEntryError('It has both "command" and "url". Keep one.')
    if fields.command is not None:
        if fields.kind not in (None, "stdio"):
            raise RefusedEntryError(
                f'"type" must be stdio for a server with a "command", not {fields.kind}. Correct or remove it.'
            )
        return _stdio(entry, fields, fields.command)
    if fields.url is not None:
        if fields.kind == "stdio":
            raise RefusedEntryError(
                '"type" must be http or sse for a server with a "url", not stdio. Correct or remove it.'
            )
        kind = Sse if fields.kind == "sse" else Http
        return kind(url=fields.url, headers=fields.headers)
    raise RefusedEntryError('It has neither a "command" nor a "url". Add one of them.')


def _stdio(entry: ServerEntry, fields: EntryFields, command: str) -> Stdio:
    for name, value in fields.env.items():
        if not _VARIABLE.fullmatch(name):
            raise RefusedEntryError(
                f"env: {quote_name(name)} is not a valid variable name. Use letters, digits and _."
            )
        if why := _why_variable_refused(entry, name, value):
            raise RefusedEntryError(
                f"env: {name} may not come from {display_path(entry.origin)}: {why}. Remove it there, or {COPY_HELP}."
            )
    for index, host in enumerate(fields.network):
        if "*" in host:
            raise RefusedEntryError(
                f"network[{index}] contains a *, but a grant names one host. List each host: api.example.org, example.org:443."
            )
        if not is_network_grant(host):
            raise RefusedEntryError(
                f"network[{index}] is not a host name. Write example.org or example.org:443."
            )
    is_trusted = entry.source in TRUSTED_SOURCES
    # A project may request access to hosts and paths. It gets the access only after the user's approval.
    may_request_access = is_trusted or entry.source is Source.PROJECT
    return Stdio(
        command=command,
        args=tuple(fields.args),
        env=fields.env,
        network=tuple(fields.network) if may_request_access else (),
        readable=tuple(fields.readable) if may_request_access else (),
        writable=tuple(fields.writable) if is_trusted else (),
        cwd=fields.cwd if is_trusted else "",
        module_folders=module_folders(fields.env) if entry.source is Source.PROJECT else (),
    )


def _why_variable_refused(entry: ServerEntry, name: str, value: str) -> str | None:
    """Why the entry may not set the variable. In sandboxed sessions, `admit` refuses further variables of projects and clients."""
    if entry.source is Source.PROJECT:
        reason = project_variable_reason(name)
        if reason is None or is_covered_by_approval(name, value, os.path.dirname(entry.origin)):  # noqa: PTH120 - a text, not a `Path`
            return None
        return reason + what_approval_covers(name)
    return loader_variable_reason(name) if entry.source is Source.CLIENT else None


def _min_trust(fields: EntryFields) -> Trust:
    """The lowest trust of a session that may use the server. Without `trust_level`, a confined server may be used by all."""
    if fields.trust_level is None:
        return Trust.SANDBOXED if fields.confined else Trust.DIRECT
    try:
        return parse_trust(fields.trust_level)
    except HoldfastError as error:
        raise RefusedEntryError(f"trust_level: {error.message}") from None


def _folders(folders: list[str]) -> tuple[str, ...]:
    if any(not folder.startswith("/") for folder in folders):
        raise RefusedEntryError('"folders" has a path that is not absolute. Write absolute paths.')
    return tuple(os.path.normpath(folder) for folder in folders)


def _allowlist(names: Any) -> Allowlist:
    match names:
        case "all":
            return ALLOW_ALL
        case "none":
            return ALLOW_NONE
        case _:
            return Allowlist(frozenset(names))


def _warnings(entry: ServerEntry, fields: EntryFields) -> list[SessionWarning]:
    if entry.source in TRUSTED_SOURCES:
        return []
    defaults = EntryFields()
    kept = APPROVED_KEYS if entry.source is Source.PROJECT else ()
    ignored = [
        key
        for key in TRUSTED_SOURCE_KEYS
        if key not in kept and getattr(fields, key) != getattr(defaults, key)
    ]
    if not ignored:
        return []
    text = (
        f"These keys have no effect in {display_path(entry.origin)}: {', '.join(ignored)}. "
        "Only the operator's list, your own list and `Host(servers=…)` can set them."
    )
    return [SessionWarning(server=entry.name, stage=Stage.VALIDATE, text=text)]
