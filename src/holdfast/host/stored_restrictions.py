"""The servers and tools that a client's token allows are stored with its session, and apply again when it is resumed."""

from dataclasses import replace

import msgspec

from holdfast.host.open_options import OpenOptions
from holdfast.model.allowlist import ALLOW_ALL, Allowlist
from holdfast.model.json import JsonObject
from holdfast.model.tool_pattern import parse_tool_patterns
from holdfast.resolve.select import Restriction

_KEY = "restrictions"


class _StoredRestriction(msgspec.Struct, omit_defaults=True):
    imposed_by: str
    servers: list[str] | None = None
    """None if all are allowed."""
    tools: list[str] | None = None
    """Patterns; None if all tools are allowed."""


def restrictions_to_store(options: OpenOptions) -> JsonObject:
    """The restrictions that are stored with a new session."""
    stored = [
        _StoredRestriction(
            imposed_by=restriction.imposed_by,
            servers=None if restriction.servers.names is None else sorted(restriction.servers.names),
            tools=None if restriction.patterns is None else [*map(str, restriction.patterns)],
        )
        for restriction in options.restrictions
        if restriction.is_stored and (restriction.servers, restriction.patterns) != (ALLOW_ALL, None)
    ]
    return {_KEY: msgspec.to_builtins(stored)} if stored else {}


def with_stored_restrictions(options: OpenOptions, settings: JsonObject) -> OpenOptions:
    """The options of resuming a session, with the restrictions that it was opened with. A restriction that cannot be read allows nothing."""
    stored = settings.get(_KEY, [])
    restrictions = map(_read, stored if isinstance(stored, list) else [stored])
    return replace(options, restrictions=tuple(dict.fromkeys((*restrictions, *options.restrictions))))


def _read(stored: object) -> Restriction:
    try:
        fields = msgspec.convert(stored, _StoredRestriction)
        return Restriction(
            imposed_by=fields.imposed_by,
            servers=ALLOW_ALL if fields.servers is None else Allowlist(frozenset(fields.servers)),
            patterns=None if fields.tools is None else parse_tool_patterns(fields.tools),
            is_stored=True,
        )
    except (msgspec.ValidationError, ValueError):
        return Restriction(imposed_by="the stored session", servers=Allowlist(frozenset()), is_stored=True)
