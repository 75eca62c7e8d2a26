"""Find what manifests name: the scripts, programs and entry points of a package.json or pyproject.toml, the commands of a task file."""

import re
from collections.abc import Iterator

import msgspec

from holdfast.model.json import Json, JsonObject
from holdfast.resolve.command_words import package_name

_TABLE = re.compile(r"[ \t]*\[+([\w.\"' \t-]{1,300})\]+[ \t\r]*(?:#.*)?$")
_KEY = re.compile(r"([ \t]*)([\w.\"'-]{1,300})[ \t]*=")
_TEXT = re.compile(r"[^\"'\[\]{},\r]+")
_TASK_SEPARATORS = re.compile(r"[\s;&|()<>\"'`,\[\]{}=]+")


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


def toml_scripts(manifest: bytes) -> dict[str, list[str]]:
    """The texts in a TOML file, a setup.cfg or a setup.py, by the key and by the table that contains them.

    Among them are the commands and entry points of all scripts: in `[project.scripts]`, in `[tool.pdm.scripts.serve]` and so on.
    They are found by patterns, too many rather than too few.
    """
    found: dict[str, list[str]] = {}
    table, outer_key, key = "", "", ""
    for line in manifest.decode(errors="replace").split("\n"):
        rest = line
        if header := _TABLE.match(line):
            table, outer_key, key = _last_part(header[1]), "", ""
            continue
        if pair := _KEY.match(line):
            key, rest = _last_part(pair[2]), line[pair.end() :]
            outer_key = outer_key if pair[1] else key
        for text in _TEXT.findall(rest):
            for name in {table, outer_key, key}:
                found.setdefault(name, []).append(text)
            inner, equals, value = text.partition("=")
            if equals:
                found.setdefault(inner.strip(), []).append(value)
    return found


def _last_part(key: str) -> str:
    return key.rpartition(".")[2].strip("\"' \t")


def task_words(text: bytes) -> list[str]:
    """The words of a task file, such as a Makefile, without the characters that surround commands in it."""
    return [word.lstrip("@+") for word in _TASK_SEPARATORS.split(text.decode(errors="replace")) if word]


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
