"""What a person is shown before agreeing to a server, and under which name the answer is kept."""

import json
from dataclasses import dataclass

from holdfast.model.json import Json
from holdfast.resolve.entry import Entry
from holdfast.resolve.expand import variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An entry to the letter, but for the values of its variables and headers."""

    name: str
    origin: str
    command: tuple[str, ...] = ()
    url: str = ""
    env_names: tuple[str, ...] = ()
    header_names: tuple[str, ...] = ()
    fills_in: tuple[str, ...] = ()
    """The variables of the host's own environment that the entry would be given."""


OF_SERVERS = '["server", '
"""How the subjects of all servers begin."""


def subject(entry: Entry) -> str:
    """What an approval of this entry is kept under; its content is kept as the digest."""
    return json.dumps(["server", entry.origin, entry.name])


def show(entry: Entry) -> Shown:
    """What there is to see before saying yes."""
    value = entry.value if isinstance(entry.value, dict) else {}
    command, args, url = value.get("command"), value.get("args"), value.get("url")
    words = [str(word) for word in (command, *(args if isinstance(args, list) else ())) if word is not None]
    return Shown(
        name=entry.name,
        origin=entry.origin,
        command=tuple(words),
        url=str(url or ""),
        env_names=_names(value.get("env")),
        header_names=_names(value.get("headers")),
        fills_in=tuple(sorted({name for text in _texts(value) for name in variables(text)})),
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
