"""Screen a server's tools: a definition that is new or has changed is not offered until a person approves it."""

import asyncio
import hashlib
import json
import re
import time
import unicodedata
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.strict_json import StrictJsonError, check_json

DESCRIPTION_LENGTH = 8 * 1024
SCHEMA_BYTES = 256 * 1024
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)?", re.DOTALL)
_INVISIBLE = {"Cc", "Cf", "Co", "Cs", "Cn"}
_SLICE_SECONDS = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class UnapprovedTool:
    """A tool that is not offered, and why. The fingerprint is empty if approval would not help."""

    name: str
    reason: str
    fingerprint: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedTools:
    """The tools to offer, cleaned, and those that are not approved."""

    offered: tuple[Tool, ...] = ()
    unapproved: tuple[UnapprovedTool, ...] = ()
    flags: tuple[str, ...] = ()
    """What was removed from the offered tools."""
    fingerprints: Mapping[str, str] = field(default_factory=dict[str, str])


def screen_tools(tools: Sequence[Tool], approved: Mapping[str, frozenset[str]] | None) -> ScreenedTools:
    """Offer the tools whose definition is approved.

    `approved` holds the approved fingerprints by tool name. It is None on the first use of a server: then every valid
    tool is offered.
    """
    steps = _screening_steps(tools, approved)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


async def screen_tools_async(
    tools: Sequence[Tool], approved: Mapping[str, frozenset[str]] | None
) -> ScreenedTools:
    """The same as `screen_tools`, but sleep for a millisecond after every millisecond of work.

    `asyncio.sleep(0)` would let other tasks run, but not other threads: the store's writer thread, which every session
    waits for, would have to request the GIL again and again, at 5 ms each time.
    """
    steps = _screening_steps(tools, approved)
    until = time.monotonic() + _SLICE_SECONDS
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        if time.monotonic() > until:
            await asyncio.sleep(_SLICE_SECONDS)
            until = time.monotonic() + _SLICE_SECONDS


def _screening_steps(
    tools: Sequence[Tool], approved: Mapping[str, frozenset[str]] | None
) -> Generator[None, None, ScreenedTools]:
    offered: dict[str, Tool] = {}
    unapproved: list[UnapprovedTool] = []
    flags: list[str] = []
    fingerprints: dict[str, str] = {}
    for tool in tools:
        yield
        reason = _why_invalid(tool, offered)
        if reason is not None:
            unapproved.append(UnapprovedTool(name=strip_invisible(tool.name)[:128], reason=reason))
            continue
        clean, found = clean_tool(tool)
        digest = fingerprint(tool)
        known = None if approved is None else approved.get(tool.name, frozenset[str]())
        if known is not None and digest not in known:
            unapproved.append(
                UnapprovedTool(
                    name=tool.name,
                    reason=_why_unapproved(known),
                    fingerprint=digest,
                    description=clean.description or "",
                )
            )
            continue
        offered[tool.name] = clean
        fingerprints[tool.name] = digest
        flags += [f"{tool.name}: {flag}" for flag in found]
    return ScreenedTools(
        offered=tuple(offered.values()),
        unapproved=tuple(unapproved),
        flags=tuple(flags),
        fingerprints=fingerprints,
    )


def fingerprint(tool: Tool) -> str:
    """A hash of the whole definition of a tool; the order of keys does not matter."""
    text = json.dumps(_as_dict(tool), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def clean_tool(tool: Tool) -> tuple[Tool, tuple[str, ...]]:
    """The tool without invisible characters and overlong texts, and what was removed."""
    flags: set[str] = set()
    fields: dict[str, Any] = {
        "title": _clean_text(tool.title, flags),
        "description": _clean_text(tool.description, flags),
        "input_schema": _clean_schema(tool.input_schema, flags),
        "output_schema": _clean_schema(tool.output_schema, flags),
        "annotations": _clean_schema(tool.annotations, flags),
    }
    return msgspec.structs.replace(tool, **fields), tuple(sorted(flags))


def strip_invisible(text: str) -> str:
    """The text without control sequences and invisible characters."""
    if text.isascii() and text.isprintable():
        return text
    bare = _ANSI.sub("", text)
    return "".join(char for char in bare if char in "\n\t" or unicodedata.category(char) not in _INVISIBLE)


def _why_invalid(tool: Tool, offered: Mapping[str, Tool]) -> str | None:
    if not _NAME.fullmatch(tool.name):
        return "Its name must have 1 to 128 letters, digits or _ . / - characters."
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
            return f"Its {what} schema has {len(schema)} bytes; the maximum is {SCHEMA_BYTES}."
        try:
            check_json(schema, DEFAULT_LIMITS)
        except StrictJsonError as error:
            return f"Its {what} schema cannot be read: {error}."
    return None


def _why_unapproved(approved: frozenset[str]) -> str:
    if not approved:
        return "It is new since this server was approved. To review it, run: holdfast servers approve"
    return "It has changed since it was approved. To review it, run: holdfast servers approve"


def _as_dict(tool: Tool) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(tool))


def _clean_text(text: str | None, flags: set[str]) -> str | None:
    if text is None:
        return None
    shown = strip_invisible(text)
    if shown != text:
        flags.add("invisible characters were removed from its description")
    if len(shown) > DESCRIPTION_LENGTH:
        flags.add(f"its description of {len(shown)} characters was shortened")
        shown = shown[:DESCRIPTION_LENGTH] + "…"
    return shown


def _clean_schema(schema: Raw | UnsetType, flags: set[str]) -> Raw | UnsetType:
    if isinstance(schema, UnsetType):
        return UNSET
    plain = msgspec.json.decode(schema)
    clean = _clean_strings(plain, flags)
    return schema if clean == plain else Raw(msgspec.json.encode(clean))


def _clean_strings(value: Any, flags: set[str]) -> Any:
    """Clean every string, at any depth: instructions may hide in the description of a parameter or in an example."""
    match value:
        case str():
            return _clean_text(value, flags)
        case list():
            return [_clean_strings(inner, flags) for inner in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {key: _clean_strings(inner, flags) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
