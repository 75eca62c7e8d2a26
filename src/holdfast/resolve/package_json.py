"""Find what a package.json names: its scripts, programs and entry points, and the files that it maps names to."""

from collections.abc import Iterator

import msgspec

from holdfast.model.json import Json, JsonObject
from holdfast.resolve.command_words import package_name


def package_scripts(package: bytes, name: str) -> Iterator[str]:
    """The programs and entry points of a package; with a name, only the script and the program with this name."""
    content = _decode(package)
    programs = content.get("bin")
    if isinstance(programs, str):
        if not name or package_name(str(content.get("name"))).endswith(name):
            yield programs
    else:
        yield from _texts(programs, name)
    if name:
        for prefix in ("pre", "", "post"):
            yield from _texts(content.get("scripts"), f"{prefix}{name}")
    else:
        for key in ("main", "module", "exports"):
            yield from _texts(content, key)


def mapped_files(package: bytes) -> Iterator[str]:
    """The files that a package.json maps names to (`imports`, `exports`), under any condition."""
    content = _decode(package)
    pending = [content.get("imports"), content.get("exports")]
    while pending:
        match pending.pop():
            case str() as target:
                yield target
            case dict() as inner:
                pending += inner.values()
            case list() as inner:
                pending += inner
            case _:
                pass


def _decode(package: bytes) -> JsonObject:
    try:
        content: Json = msgspec.json.decode(package) if package else None
    except (msgspec.DecodeError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _texts(named: Json, name: str) -> Iterator[str]:
    """The texts in an object; with a name, only the text under this name."""
    for key, value in named.items() if isinstance(named, dict) else ():
        if isinstance(value, str) and (not name or key == name):
            yield value
