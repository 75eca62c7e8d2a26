"""Summarize an entry for the user, who approves it or lists it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast.masking import MASKED
from holdfast.masking.configured_secrets import mask_command, secrets_in_mapping
from holdfast.masking.likely_secrets import mask_listing
from holdfast.masking.secret_shapes import is_reference
from holdfast.model.json import Json
from holdfast.model.server import TRUSTED_SOURCES, Source
from holdfast.resolve.expand import Expander, ExpandError, referenced_variables
from holdfast.resolve.server_entry import ServerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySummary:
    """An entry as written. `${VAR}` stays a reference."""

    name: str
    origin: str
    command: tuple[str, ...] = ()
    cwd: str = ""
    """The folder to start the server in; empty if the entry names none, or may not name one."""
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    host_variables: tuple[str, ...] = ()
    """The variables of the host's environment that the entry refers to."""
    network: tuple[str, ...] = ()
    """The hosts that it may reach while it is confined."""
    readable: tuple[str, ...] = ()
    """The paths that it may read while it is confined."""
    writable: tuple[str, ...] = ()
    """The guarded names that the user lets it change while it is confined. A project's entry cannot ask for that."""
    is_confined: bool = False
    """Whether the entry says that the server always runs confined."""


def summarize(entry: ServerEntry) -> EntrySummary:
    """Summarize an entry as it is written, valid or not.

    Secrets are masked, except in a project's entry: it contains none of the user's secrets, and its author must not be able to
    hide a part of it.
    """
    whole = summarize_unmasked(entry)
    if entry.source is Source.PROJECT:
        return whole
    return mask_summary(whole)


def mask_summary(whole: EntrySummary) -> EntrySummary:
    """The summary with its secrets masked, and with all values of variables and headers masked, except references such as `${TOKEN}`."""
    return replace(
        whole,
        command=mask_command(whole.command),
        url=mask_listing(whole.url),
        env=_mask_values(whole.env),
        headers=_mask_values(whole.headers),
    )


def mask_secrets(whole: EntrySummary) -> EntrySummary:
    """The summary with only its secrets masked, so that it can be stored and compared with a later one."""
    return replace(
        whole,
        command=mask_command(whole.command),
        url=mask_listing(whole.url),
        env=_mask_secret_values(whole.env),
        headers=_mask_secret_values(whole.headers),
    )


def summarize_unmasked(entry: ServerEntry) -> EntrySummary:
    """Summarize an entry without masking anything, for a person who decides whether it may run."""
    value = entry.value if isinstance(entry.value, dict) else {}
    return EntrySummary(
        name=entry.name,
        origin=entry.origin,
        command=tuple(entry_command(entry)),
        cwd=str(value.get("cwd") or "") if entry.source in TRUSTED_SOURCES else "",
        url=str(value.get("url") or ""),
        env=_mapping(value.get("env")),
        headers=_mapping(value.get("headers")),
        host_variables=tuple(sorted({name for text in _texts(value) for name in referenced_variables(text)})),
        network=_words(value.get("network")) if entry.source is not Source.CLIENT else (),
        readable=_words(value.get("readable")) if entry.source is not Source.CLIENT else (),
        is_confined=value.get("confined") is True,
    )


def entry_command(entry: ServerEntry) -> list[str]:
    """The command and the arguments of an entry, as written. Secrets are not masked."""
    value = entry.value if isinstance(entry.value, dict) else {}
    command, args = value.get("command"), value.get("args")
    return [str(word) for word in (command, *(args if isinstance(args, list) else ())) if word is not None]


def expand_command(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Expand the variables in a command. If one cannot be expanded, return the command as written."""
    try:
        expander = Expander(environ)
        return [expander.expand(word) for word in words]
    except ExpandError:
        return [*words]


def _words(value: Json) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _mapping(value: Json) -> dict[str, str]:
    return {name: str(inner) for name, inner in value.items()} if isinstance(value, dict) else {}


def _mask_values(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value if is_reference(value) else MASKED for name, value in values.items()}


def _mask_secret_values(values: Mapping[str, str]) -> dict[str, str]:
    return {
        name: MASKED if not is_reference(value) and any(secrets_in_mapping({name: value})) else value
        for name, value in values.items()
    }


def _texts(value: Json) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for inner in value for text in _texts(inner)]
        case dict():
            return [text for inner in value.values() for text in _texts(inner)]
        case _:
            return []
