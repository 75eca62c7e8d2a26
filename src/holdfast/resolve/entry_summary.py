"""What the user is shown of an entry before approving it."""

from dataclasses import dataclass

from holdfast.model.json import Json
from holdfast.resolve.expand import referenced_variables
from holdfast.resolve.server_entry import ServerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySummary:
    """An entry without the values of its variables and headers, which may be secrets."""

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
    command, args, url = value.get("command"), value.get("args"), value.get("url")
    words = [str(word) for word in (command, *(args if isinstance(args, list) else ())) if word is not None]
    return EntrySummary(
        name=entry.name,
        origin=entry.origin,
        command=tuple(words),
        url=str(url or ""),
        env_names=_names(value.get("env")),
        header_names=_names(value.get("headers")),
        host_variables=tuple(sorted({name for text in _texts(value) for name in referenced_variables(text)})),
    )


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
