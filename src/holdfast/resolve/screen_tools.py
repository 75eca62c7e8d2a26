"""Screen a server's tools before they are offered to a model.

Invalid tools are withheld, and the texts of the others are cleaned. `ApprovedTools` says which definitions are offered: a tool
with another definition is withheld until a person approves it. `ApprovedTools` also says which definitions keep their hints and
title.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.model.json import Json
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.visible_text import display_name, strip_invisible
from holdfast.wire.loop_throttle import LoopThrottle, run_steps, run_steps_in_slices
from holdfast.wire.mcp.definition_text import clean_text
from holdfast.wire.mcp.tools import Tool
from holdfast.wire.strict_json import StrictJsonError, check_json, decode_json

MAX_SCHEMA_BYTES = 256 * 1024
_MAX_CACHED, _MAX_CACHED_BYTES = 1024, 4 * 1024
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_HINTS = {
    name.casefold(): name
    for name in ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
}
_Examined: TypeAlias = tuple[Tool, tuple[str, ...], str]
"""A cleaned tool, notes on what was removed from it, and the fingerprint of the tool as it was sent."""
_examined: dict[bytes, _Examined | str] = {}
"""A cache of what `_examine` returned for the last tools, by their JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldTool:
    """A tool that is not offered, and why: it awaits approval, or it is invalid."""

    name: str
    reason: str
    definition: Tool | None = field(default=None, repr=False)
    """The definition to approve, with cleaned texts; None if the tool is invalid."""
    fingerprint: str = ""
    """The hash of the definition as the server sent it."""

    @property
    def is_approvable(self) -> bool:
        return self.definition is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolWithoutHints:
    """A tool that is offered without its hints and its title, until a person approves its definition."""

    name: str
    definition: Tool
    """The definition with its hints and title, so that a person can approve it."""
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedTools:
    """Which definitions of tools are approved: the fingerprints, by tool name. None stands for all definitions."""

    offered: Mapping[str, frozenset[str]] | None = None
    """The definitions that may be offered; None on the first use of a server."""
    hints_accepted: Mapping[str, frozenset[str]] | None = None
    """The definitions whose hints and titles count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedTools:
    """The tools to offer, with cleaned texts, and those that are withheld."""

    offered: tuple[Tool, ...] = ()
    withheld: tuple[WithheldTool, ...] = ()
    offered_without_hints: tuple[ToolWithoutHints, ...] = ()
    """The offered tools whose hints or title were removed."""
    cleanup_notes: tuple[str, ...] = ()
    """What was removed from the texts of the offered tools."""
    fingerprints: Mapping[str, str] = field(default_factory=dict[str, str])
    """The fingerprints of the offered tools, by name."""

    @property
    def awaiting_approval(self) -> tuple[WithheldTool, ...]:
        """The withheld tools that a person can approve."""
        return tuple(tool for tool in self.withheld if tool.is_approvable)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to tell the user: which tools are invalid, and what was removed from the others."""
        invalid = (
            f"The tool {tool.name!r} is not offered. {tool.reason}"
            for tool in self.withheld
            if not tool.is_approvable
        )
        return (*invalid, *self.cleanup_notes)


def approve_command(server: str) -> str:
    """The command that reviews and approves the tools of a server."""
    return shlex.join(["holdfast", "servers", "approve", server])


def describe_hints_awaiting_approval(server: str) -> str:
    """The message that a server's hints about its tools do not count yet, with the command that shows and approves them."""
    return (
        f"Hints about tools of {display_name(server)} await approval. Until then, Holdfast asks you even before tools that claim to be"
        f" read-only. To review them, run: {approve_command(server)}"
    )


def screen_tools(tools: Sequence[Tool], approved: ApprovedTools) -> ScreenedTools:
    """Offer the valid tools that are approved, without the hints and titles that are not accepted."""
    return run_steps(_screening_steps(tools, approved))


async def screen_tools_async(
    tools: Sequence[Tool], approved: ApprovedTools, throttle: LoopThrottle | None = None
) -> ScreenedTools:
    """Screen the tools like `screen_tools`, but with pauses, so that other tasks can run."""
    return await run_steps_in_slices(_screening_steps(tools, approved), throttle)


def _screening_steps(tools: Sequence[Tool], approved: ApprovedTools) -> Generator[None, None, ScreenedTools]:
    offered: dict[str, Tool] = {}
    withheld: list[WithheldTool] = []
    offered_without_hints: list[ToolWithoutHints] = []
    taken: set[str] = set()  # the names of the offered tools in lower case
    cleanup_notes: list[str] = []
    fingerprints: dict[str, str] = {}
    for tool in tools:
        yield
        examined = _why_bad_name(tool, offered, taken) or _examine(tool)
        if isinstance(examined, str):
            withheld.append(WithheldTool(name=strip_invisible(tool.name[:256])[:128], reason=examined))
            continue
        clean, notes, digest = examined
        if not _is_listed(approved.offered, tool.name, digest):
            reason = _why_unapproved(approved.offered, tool.name)
            withheld.append(WithheldTool(name=tool.name, reason=reason, definition=clean, fingerprint=digest))
            continue
        if not _is_listed(approved.hints_accepted, tool.name, digest):
            without_hints = _without_hints(clean)
            if without_hints != clean:
                offered_without_hints.append(
                    ToolWithoutHints(name=tool.name, definition=clean, fingerprint=digest)
                )
            clean = without_hints
        offered[tool.name] = clean
        taken.add(tool.name.lower())
        fingerprints[tool.name] = digest
        cleanup_notes += [f"{tool.name}: {note}" for note in notes]
    return ScreenedTools(
        offered=tuple(offered.values()),
        withheld=tuple(withheld),
        offered_without_hints=tuple(offered_without_hints),
        cleanup_notes=tuple(cleanup_notes),
        fingerprints=fingerprints,
    )


def _examine(tool: Tool) -> _Examined | str:
    """The cleaned tool with its notes and fingerprint; or why the tool is invalid.

    The results are cached, because sessions that use the same server examine the same tools.
    """
    encoded = msgspec.json.encode(tool)
    examined = _examined.get(encoded)
    if examined is not None:
        return examined
    is_cached = len(encoded) <= _MAX_CACHED_BYTES
    if is_cached:
        # A copy, because the tool itself keeps the server's whole message in memory.
        tool = msgspec.json.decode(encoded, type=Tool)
    examined = _why_unreadable(tool) or (*clean_tool(tool), fingerprint(tool))
    if is_cached:
        if len(_examined) >= _MAX_CACHED:
            _examined.clear()
        _examined[encoded] = examined
    return examined


def fingerprint(tool: Tool) -> str:
    """A hash of a tool's whole definition. It does not depend on the order of keys."""
    text = json.dumps(_as_dict(tool), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def clean_tool(tool: Tool) -> tuple[Tool, tuple[str, ...]]:
    """Remove invisible characters from a tool's texts and shorten long ones. Return the tool and notes on what was done."""
    notes: set[str] = set()
    fields: dict[str, Any] = {
        "title": _clean_text(tool.title, "its title", notes),
        "description": _clean_text(tool.description, "its description", notes),
        "input_schema": _clean_json(tool.input_schema, "its input schema", notes),
        "output_schema": _clean_json(tool.output_schema, "its output schema", notes),
        "annotations": _clean_json(
            _without_misspelled_hints(tool.annotations, notes), "its annotations", notes
        ),
    }
    return msgspec.structs.replace(tool, **fields), tuple(sorted(notes))


def _why_bad_name(tool: Tool, offered: Mapping[str, Tool], taken: Collection[str]) -> str:
    if not _NAME.fullmatch(tool.name):
        return "Its name must have 1 to 128 letters, digits or _ . / - characters."
    if tool.name in offered:
        return "Another tool of this server has the same name."
    if tool.name.lower() in taken:
        return "Another tool of this server has a name that differs only in upper and lower case."
    return ""


def _why_unreadable(tool: Tool) -> str:
    for part, raw in (
        ("input schema", tool.input_schema),
        ("output schema", tool.output_schema),
        ("annotations", tool.annotations),
    ):
        if isinstance(raw, UnsetType):
            continue
        if len(raw) > MAX_SCHEMA_BYTES:
            return f"The size of its {part} is {len(raw)} bytes; the maximum is {MAX_SCHEMA_BYTES}."
        try:
            check_json(raw, DEFAULT_LIMITS)
        except StrictJsonError as error:
            return f"Its {part} cannot be read: {error}."
        if _has_invisible_key(raw):
            return f"A name in its {part} contains invisible characters."
    return ""


def _has_invisible_key(raw: Raw) -> bool:
    """Whether a key contains an invisible character. A key cannot be cleaned: the server expects it unchanged."""
    text = bytes(raw)
    if text.isascii() and b"\\" not in text:
        return False
    values: list[Json] = [decode_json(text)]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            if any(not key.isprintable() or strip_invisible(key) != key for key in value):
                return True
            values += value.values()
        elif isinstance(value, list):
            values += value
    return False


def _is_listed(approved: Mapping[str, frozenset[str]] | None, tool: str, digest: str) -> bool:
    return approved is None or digest in approved.get(tool, ())


def _without_hints(tool: Tool) -> Tool:
    """The tool without its title and hints. By MCP's defaults, such a tool may change and destroy things."""
    return msgspec.structs.replace(tool, title=None, annotations=UNSET)


def _why_unapproved(approved: Mapping[str, frozenset[str]] | None, tool: str) -> str:
    if approved is None or tool not in approved:
        return "It was added after this server was first used or approved."
    return "It has changed since it was first used or approved."


def _as_dict(tool: Tool) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(tool))


def _clean_text(text: str | None, part: str, notes: set[str]) -> str | None:
    return None if text is None else clean_text(text, part, notes)


def _clean_json(raw: Raw | UnsetType, part: str, notes: set[str]) -> Raw | UnsetType:
    if isinstance(raw, UnsetType):
        return UNSET
    value = decode_json(raw)
    clean = _clean_strings(value, part, notes)
    return raw if clean == value else Raw(msgspec.json.encode(clean))


def _without_misspelled_hints(annotations: Raw | UnsetType, notes: set[str]) -> Raw | UnsetType:
    """Annotations without hints such as `ReadOnlyHint`: Holdfast ignores other spellings than `readOnlyHint`, but some clients do not."""
    members = UNSET if isinstance(annotations, UnsetType) else decode_json(annotations)
    if not isinstance(members, dict):
        return annotations
    kept = {name: value for name, value in members.items() if _HINTS.get(name.casefold(), name) == name}
    if len(kept) == len(members):
        return annotations
    notes.add("hints whose names were not spelled as MCP spells them were removed")
    return Raw(msgspec.json.encode(kept))


def _clean_strings(value: Any, part: str, notes: set[str]) -> Any:
    """Clean every string, at any depth: the description of a parameter or an example may hide instructions too."""
    match value:
        case str():
            return clean_text(value, part, notes)
        case list():
            return [_clean_strings(inner, part, notes) for inner in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {key: _clean_strings(inner, part, notes) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
