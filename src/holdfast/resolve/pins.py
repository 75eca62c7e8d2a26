"""A server's tools as they were first offered: whatever differs later is held back until a person agrees."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.model.limits import DEFAULT
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.strict import Unreadable, check

DESCRIPTION_LENGTH = 8 * 1024
SCHEMA_BYTES = 256 * 1024
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)?", re.DOTALL)
_HIDDEN = {"Cc", "Cf", "Co", "Cs", "Cn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A tool that is not offered: why, and the fingerprint to approve if that would help."""

    name: str
    reason: str
    fingerprint: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """The tools on offer, those held back, what was taken out of them, and fingerprints to keep."""

    offered: tuple[Tool, ...] = ()
    held: tuple[Held, ...] = ()
    flags: tuple[str, ...] = ()
    fingerprints: Mapping[str, str] = field(default_factory=dict[str, str])


def sift(tools: Sequence[Tool], pinned: Mapping[str, frozenset[str]] | None) -> Sifted:
    """Offer what is as it was approved. `pinned` holds approved fingerprints by tool; None on a server's first use."""
    steps = sifting(tools, pinned)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def sifting(
    tools: Sequence[Tool], pinned: Mapping[str, frozenset[str]] | None
) -> Generator[None, None, Sifted]:
    """The same, tool by tool, for whoever has others to attend to meanwhile."""
    offered: dict[str, Tool] = {}
    held: list[Held] = []
    flags: list[str] = []
    fingerprints: dict[str, str] = {}
    for tool in tools:
        yield
        reason = _objection(tool, offered)
        if reason is not None:
            held.append(Held(name=visible(tool.name)[:128], reason=reason))
            continue
        mark = fingerprint(tool)
        approved = None if pinned is None else pinned.get(tool.name, frozenset[str]())
        if approved is not None and mark not in approved:
            description = cleaned(tool)[0].description or ""
            held.append(
                Held(
                    name=tool.name, reason=_what_changed(approved), fingerprint=mark, description=description
                )
            )
            continue
        clean, found = cleaned(tool)
        offered[tool.name] = clean
        fingerprints[tool.name] = mark
        flags += [f"{tool.name}: {flag}" for flag in found]
    return Sifted(
        offered=tuple(offered.values()), held=tuple(held), flags=tuple(flags), fingerprints=fingerprints
    )


def fingerprint(tool: Tool) -> str:
    """A hash of all that a model is told about a tool, whatever the order it is told in."""
    told = json.dumps(_plain(tool), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


def cleaned(tool: Tool) -> tuple[Tool, tuple[str, ...]]:
    """The tool without hidden or endless words, and what was found."""
    flags: set[str] = set()
    fields: dict[str, Any] = {
        "title": _text(tool.title, flags),
        "description": _text(tool.description, flags),
        "input_schema": _schema(tool.input_schema, flags),
        "output_schema": _schema(tool.output_schema, flags),
        "annotations": _schema(tool.annotations, flags),
    }
    return msgspec.structs.replace(tool, **fields), tuple(sorted(flags))


def visible(text: str) -> str:
    """The text without control sequences and characters that nobody sees."""
    if text.isascii() and text.isprintable():
        return text
    bare = _ANSI.sub("", text)
    return "".join(
        letter for letter in bare if letter in "\n\t" or unicodedata.category(letter) not in _HIDDEN
    )


def _objection(tool: Tool, offered: Mapping[str, Tool]) -> str | None:
    if not _NAME.fullmatch(tool.name):
        return "Its name has other characters than letters, digits and _ . / -, or more than 128."
    if tool.name in offered:
        return "Another tool of this server has the same name."
    for what, schema in (
        ("input", tool.input_schema),
        ("output", tool.output_schema),
        ("annotations", tool.annotations),
    ):
        if isinstance(schema, UnsetType):
            continue
        if len(schema) > SCHEMA_BYTES:
            return f"Its {what} schema has {len(schema)} bytes; {SCHEMA_BYTES} is the most."
        try:
            check(schema, DEFAULT)
        except Unreadable as error:
            return f"Its {what} schema cannot be read: {error}."
    return None


def _what_changed(approved: frozenset[str]) -> str:
    if not approved:
        return "It is new since this server was approved. Look at it and decide: holdfast servers approve"
    return "It has changed since it was approved. Look at it and decide: holdfast servers approve"


def _plain(tool: Tool) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(tool))


def _text(text: str | None, flags: set[str]) -> str | None:
    if text is None:
        return None
    shown = visible(text)
    if shown != text:
        flags.add("hidden characters were taken out of its description")
    if len(shown) > DESCRIPTION_LENGTH:
        flags.add(f"its description of {len(shown)} characters was cut")
        shown = shown[:DESCRIPTION_LENGTH] + "…"
    return shown


def _schema(schema: Raw | UnsetType, flags: set[str]) -> Raw | UnsetType:
    if isinstance(schema, UnsetType):
        return UNSET
    plain = msgspec.json.decode(schema)
    clean = _cleaned_words(plain, flags)
    return schema if clean == plain else Raw(msgspec.json.encode(clean))


def _cleaned_words(value: Any, flags: set[str]) -> Any:
    """Words for a model may hide at any depth: in the description of a parameter, in an example."""
    match value:
        case str():
            return _text(value, flags)
        case list():
            return [_cleaned_words(inner, flags) for inner in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {key: _cleaned_words(inner, flags) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
