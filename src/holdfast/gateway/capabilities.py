"""What a gateway tells a client about itself: the capabilities and instructions of all servers together."""

import re
from collections.abc import Mapping

from holdfast import __version__
from holdfast.connect.connection import CONTEXT_EXTENSION
from holdfast.model.json import Json, JsonObject
from holdfast.wire.mcp.client import ServerInfo
from holdfast.wire.mcp.eras import Era, Implementation, OwnInfo

GATEWAY = Implementation("holdfast", __version__, "Holdfast")
_MERGED_CAPABILITIES = ("prompts", "resources", "completions", "logging")
_NOT_PASSED_ON = frozenset({CONTEXT_EXTENSION, "io.modelcontextprotocol/tasks"})
"""Extensions that are not passed on: the session context is Holdfast's own, and the gateway does not forward tasks."""
_MAX_INSTRUCTIONS = 16 * 1024  # characters
_HEADING = re.compile(r"^([^\S\n]*#)", re.MULTILINE)
_UNDERLINE = re.compile(r"^[^\S\n]*=+[^\S\n]*$", re.MULTILINE)  # makes a heading of the line above
INFO_BEFORE_START = OwnInfo(
    implementation=GATEWAY,
    capabilities={
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True},
        "completions": {},
        "logging": {},
    },
)
"""What a client is told if its servers have not started in time: all capabilities that servers may have, except extensions and
subscriptions to resources."""


def merge_infos(infos: Mapping[str, ServerInfo], era: Era) -> OwnInfo:
    """One description of all servers, for a client of this era. Tools are always offered, and may change."""
    capabilities: JsonObject = {"tools": {"listChanged": True}}
    for name in _MERGED_CAPABILITIES:
        declared = [info.capabilities[name] for info in infos.values() if name in info.capabilities]
        if declared:
            capabilities[name] = _union(declared)
    extensions = [
        extensions
        for info in infos.values()
        if info.era is era and isinstance(extensions := info.capabilities.get("extensions"), dict)
    ]
    merged = {name: value for name, value in _union([*extensions]).items() if name not in _NOT_PASSED_ON}
    if merged:
        capabilities["extensions"] = merged
    return OwnInfo(implementation=GATEWAY, capabilities=capabilities, instructions=_merge_instructions(infos))


def announced_lists(capabilities: JsonObject) -> frozenset[str]:
    """The lists whose changes these capabilities announce."""
    return frozenset(
        name
        for name in ("tools", "prompts", "resources")
        if isinstance(capability := capabilities.get(name), dict) and capability.get("listChanged") is True
    )


def capabilities_for_servers(capabilities: JsonObject) -> JsonObject:
    """The client's capabilities as the servers get them: without those that the gateway does not pass on."""
    kept = {name: value for name, value in capabilities.items() if name != "tasks"}
    extensions = kept.get("extensions")
    if isinstance(extensions, dict):
        kept["extensions"] = {name: value for name, value in extensions.items() if name not in _NOT_PASSED_ON}
    return kept


def _union(values: list[Json]) -> JsonObject:
    """All members of all objects. A flag is true if it is true for one of them."""
    merged: JsonObject = {}
    for value in values:
        for name, member in value.items() if isinstance(value, dict) else ():
            merged[name] = merged.get(name) or member
    return merged


def _merge_instructions(infos: Mapping[str, ServerInfo]) -> str:
    """The instructions of all servers. If there are several, each gets an equal share, below a heading with its name."""
    instructions = {name: info.instructions for name, info in infos.items() if info.instructions}
    if len(infos) == 1:
        return "".join(instructions.values())[:_MAX_INSTRUCTIONS]
    share = _MAX_INSTRUCTIONS // max(1, len(instructions))
    return "\n\n".join(f"# {name}\n{_below_heading(text)}"[:share] for name, text in instructions.items())


def _below_heading(text: str) -> str:
    """The text with its headings one level lower, and without the `=` under a heading, so that a server cannot pose as another one."""
    return _UNDERLINE.sub("", _HEADING.sub(r"\1#", text))
