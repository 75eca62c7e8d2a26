"""What the user is shown of an entry before approving it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.model.json import Json
from holdfast.model.secret_text import mask_listing
from holdfast.model.secrets import mask_command
from holdfast.resolve.expand import Expander, ExpandError, referenced_variables
from holdfast.resolve.server_entry import ServerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySummary:
    """An entry as written, without the values of its variables and headers, and with secrets masked in the rest."""

    name: str
    origin: str
    command: tuple[str, ...] = ()
    url: str = ""
    env_names: tuple[str, ...] = ()
    header_names: tuple[str, ...] = ()
    host_variables: tuple[str, ...] = ()
    """The variables of the host's environment that the entry refers to."""


def summarize(entry: ServerEntry) -> EntrySummary:
    """Summarize an entry as it is written, valid or not."""
    value = entry.value if isinstance(entry.value, dict) else {}
    url = value.get("url")
    return EntrySummary(
        name=entry.name,
        origin=entry.origin,
        command=mask_command(command_words(entry)),
        url=mask_listing(str(url or "")),
        env_names=_names(value.get("env")),
        header_names=_names(value.get("headers")),
        host_variables=tuple(sorted({name for text in _texts(value) for name in referenced_variables(text)})),
    )


def command_words(entry: ServerEntry) -> list[str]:
    """The command and the arguments of an entry, as written. Secrets are not masked."""
    value = entry.value if isinstance(entry.value, dict) else {}
    command, args = value.get("command"), value.get("args")
    return [str(word) for word in (command, *(args if isinstance(args, list) else ())) if word is not None]


def expand_command(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The words of a command with their variables filled in; as written if that is not possible."""
    try:
        expander = Expander(environ)
        return [expander.expand(word) for word in words]
    except ExpandError:
        return [*words]


def _names(mapping: Json) -> tuple[str, ...]:
    return tuple(mapping) if isinstance(mapping, dict) else ()


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
