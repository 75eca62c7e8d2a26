"""Approvals of servers and tools: what the user is shown, and the keys under which the store keeps the answers."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.model.json import Json
from holdfast.model.server import ServerSpec
from holdfast.resolve.expand import referenced_variables
from holdfast.resolve.load import ServerEntry
from holdfast.store.rows import Approval
from holdfast.store.store import Tx

FIRST_USE = "first use"
SERVER_SUBJECT_PREFIX = '["server", '
"""The subjects of all servers begin with this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySummary:
    """An entry as written, without the values of its variables and headers."""

    name: str
    origin: str
    command: tuple[str, ...] = ()
    url: str = ""
    env_names: tuple[str, ...] = ()
    header_names: tuple[str, ...] = ()
    host_variables: tuple[str, ...] = ()
    """The variables of the host's environment that the entry refers to."""


def server_subject(entry: ServerEntry) -> str:
    """The key of an approval of this entry. The approved content is stored as the entry's digest."""
    return json.dumps(["server", entry.origin, entry.name])


def summarize(entry: ServerEntry) -> EntrySummary:
    """What to show the user before approval."""
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


def tool_subject(spec: ServerSpec, tool: str) -> str:
    """The key of an approval of a tool. The approved content is stored as the tool's fingerprint."""
    return json.dumps(["tool", spec.origin, spec.name, tool])


def tool_subject_prefix(spec: ServerSpec) -> str:
    """The subjects of all tools of a server begin with this."""
    return json.dumps(["tool", spec.origin, spec.name])[:-1] + ", "


def approved_fingerprints(
    spec: ServerSpec, approvals: Iterable[Approval]
) -> Mapping[str, frozenset[str]] | None:
    """The approved fingerprints by tool name; None if the server was never used."""
    prefix = tool_subject_prefix(spec)
    fingerprints: dict[str, frozenset[str]] = {}
    for approval in approvals:
        if approval.what.startswith(prefix):
            tool = json.loads(approval.what)[-1]
            fingerprints[tool] = fingerprints.get(tool, frozenset[str]()) | {approval.content_hash}
    return fingerprints or None


def approve_tools(
    tx: Tx, spec: ServerSpec, fingerprints: Mapping[str, str], *, by: str, at: datetime
) -> None:
    """Store fingerprints as approved."""
    for tool, fingerprint in fingerprints.items():
        tx.approve(Approval(what=tool_subject(spec, tool), content_hash=fingerprint, by=by, at=at))
