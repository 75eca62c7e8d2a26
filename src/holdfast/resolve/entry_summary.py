"""Summarize an entry for the user, who approves it or lists it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.masking.configured_secrets import mask_command
from holdfast.masking.likely_secrets import MASKED, is_reference, mask_listing
from holdfast.model.json import Json
from holdfast.model.server import OWN_SOURCES, Source
from holdfast.resolve.expand import Expander, ExpandError, referenced_variables
from holdfast.resolve.server_entry import ServerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySummary:
    """An entry as written. `${VAR}` stays a reference."""

    name: str
    origin: str
    command: tuple[str, ...] = ()
    cwd: str = ""
    """The folder to start it in; empty if the entry has none, or if the key has no effect in it."""
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    host_variables: tuple[str, ...] = ()
    """The variables of the host's environment that the entry refers to."""


def summarize(entry: ServerEntry) -> EntrySummary:
    """Summarize an entry as it is written, valid or not.

    In entries of the application, the operator, the user and the client, secrets are masked. A project's entry is shown whole: it contains none
    of the user's secrets, and its author must not be able to hide a part of it.
    """
    whole = summarize_unmasked(entry)
    if entry.source is Source.PROJECT:
        return whole
    return EntrySummary(
        name=whole.name,
        origin=whole.origin,
        command=mask_command(whole.command),
        cwd=whole.cwd,
        url=mask_listing(whole.url),
        env=_mask_values(whole.env),
        headers=_mask_values(whole.headers),
        host_variables=whole.host_variables,
    )


def summarize_unmasked(entry: ServerEntry) -> EntrySummary:
    """Summarize an entry without masking anything, for a person who decides whether it may run."""
    value = entry.value if isinstance(entry.value, dict) else {}
    return EntrySummary(
        name=entry.name,
        origin=entry.origin,
        command=tuple(entry_command(entry)),
        cwd=str(value.get("cwd") or "") if entry.source in OWN_SOURCES else "",
        url=str(value.get("url") or ""),
        env=_mapping(value.get("env")),
        headers=_mapping(value.get("headers")),
        host_variables=tuple(sorted({name for text in _texts(value) for name in referenced_variables(text)})),
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


def _mapping(value: Json) -> dict[str, str]:
    return {name: str(inner) for name, inner in value.items()} if isinstance(value, dict) else {}


def _mask_values(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value if is_reference(value) else MASKED for name, value in values.items()}


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
