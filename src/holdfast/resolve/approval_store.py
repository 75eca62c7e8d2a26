"""Store and read the approvals of servers and tools.

The key of an approval names the server or tool. Its `content_hash` says which version of it is approved. A key is a JSON
list that begins with its kind:

- `["server", origin, name]`: an entry.
- `["program", origin, name, entry digest]`: all parts of a program, together with its entry.
- `["program file", origin, name, path]`: one part of a program.
- `["pin", owner, server, identity, tool]`: a tool's definition, for one user.
- `["client", owner, server, identity]`: a server that a client brought and that has pins. Not an approval.
- `["definition", fingerprint, text]`: a tool's definition, to show later what changed. Not an approval.
- `["tool", origin, server, tool]`: a pin of an earlier Holdfast version, which had no owner.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

import msgspec

from holdfast.model.server import ServerSpec, Source
from holdfast.resolve.program import Program
from holdfast.resolve.server_entry import ServerEntry, server_identity
from holdfast.store.store import ReadTx, Tx
from holdfast.store.types import APPROVED_ON_FIRST_USE, Approval
from holdfast.wire.mcp.tools import Tool

MAX_CLIENT_SERVERS = 100
"""For each user, the pins of this many servers that clients brought are kept."""
_MAX_DEFINITION_BYTES = 16 * 1024
_MAX_STORED_BYTES = 1024 * 1024  # of all definitions that are approved together
SERVER_KEY_PREFIX = '["server", '
"""The approval keys of all servers begin with this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPins:
    """The stored fingerprints of a server's tools, by tool name."""

    all: Mapping[str, frozenset[str]]
    """The fingerprints of the first use, and those that a person approved."""
    by_person: Mapping[str, frozenset[str]]
    """Only the fingerprints that a person approved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedProgram:
    """The program of a project server, as it was approved."""

    is_entry_approved: bool
    """Whether the current entry is approved."""
    digests: frozenset[str]
    """The digest of each version of the program that was approved together with the current entry."""
    last_parts: Mapping[str, str]
    """The parts of the version that was approved last, as hashes by path."""
    all_hashes: Mapping[str, frozenset[str]]
    """The hashes of each part in all approved versions, by path."""


def store_server_approval(
    tx: Tx, entry: ServerEntry, program: Program | None, *, by: str, at: datetime
) -> tuple[Approval, ...]:
    """Approve a server's entry, and its program if it has one. Return the approvals."""

    def approval(what: str, *more: str, content_hash: str) -> Approval:
        key = json.dumps([what, entry.origin, entry.name, *more])
        return Approval(key=key, content_hash=content_hash, by=by, at=at)

    approvals = [approval("server", content_hash=entry.digest)]
    if program is not None:
        approvals.append(approval("program", entry.digest, content_hash=program.digest))
        approvals += (
            approval("program file", path, content_hash=digest) for path, digest in program.parts.items()
        )
    for each in approvals:
        tx.approve(each)
    return tuple(approvals)


def remove_server_approval(tx: Tx, origin: str, name: str) -> tuple[Approval, ...]:
    """Remove every approval of a project's server and of its program. Return the removed approvals."""
    removed: list[Approval] = []
    for what in ("server", "program", "program file"):
        key = json.dumps([what, origin, name])
        for prefix in (key, key[:-1] + ", "):
            removed += tx.approvals(prefix)
            tx.remove_approvals(prefix)
    return tuple(removed)


def read_approved_program(tx: ReadTx, origin: str, name: str, entry_digest: str) -> ApprovedProgram:
    """The program that was approved for a server."""
    entries = tx.approvals(json.dumps(["server", origin, name]))
    versions = tx.approvals(json.dumps(["program", origin, name, entry_digest]))
    files = tx.approvals(json.dumps(["program file", origin, name])[:-1] + ", ")
    last = max((file.at for file in files), default=None)
    return ApprovedProgram(
        is_entry_approved=any(entry.content_hash == entry_digest for entry in entries),
        digests=frozenset(version.content_hash for version in versions),
        last_parts={json.loads(file.key)[-1]: file.content_hash for file in files if file.at == last},
        all_hashes=_hashes_by_name(files),
    )


def approved_program_folders(tx: ReadTx) -> frozenset[str]:
    """The folders of all projects with an approved local server, and other folders that contain files of its program."""
    found: set[str] = set()
    for approval in tx.approvals('["program", '):
        found.add(str(PurePosixPath(json.loads(approval.key)[1]).parent))
    for approval in tx.approvals('["program file", '):
        _, origin, _, path = json.loads(approval.key)
        project = PurePosixPath(origin).parent
        found.add(str(project))
        if path.startswith("../"):
            found.add(os.path.normpath((project / path).parent))
    return frozenset(found)


def read_tool_pins(tx: ReadTx, spec: ServerSpec, owner: str) -> ToolPins:
    """The pins of a server for one user. If there are none, the pins of earlier Holdfast versions, which had no owner."""
    approvals = tx.approvals(_tool_key_prefix(spec, owner))
    # In those versions, clients' servers with the same name shared their pins, so those pins are not used.
    if not approvals and spec.source is not Source.CLIENT:
        approvals = tx.approvals(_old_tool_key_prefix(spec))
    by_person = (approval for approval in approvals if approval.by != APPROVED_ON_FIRST_USE)
    return ToolPins(all=_hashes_by_name(approvals), by_person=_hashes_by_name(by_person))


def store_tool_approvals(
    tx: Tx, spec: ServerSpec, fingerprints: Mapping[str, str], *, owner: str, by: str, at: datetime
) -> tuple[Approval, ...]:
    """Approve the tools with these fingerprints, given by tool name, for one user. Return the approvals."""
    prefix = _tool_key_prefix(spec, owner)
    is_first_use = not tx.approvals(prefix)
    if by == APPROVED_ON_FIRST_USE and not is_first_use:  # another session has used the server first
        return ()
    if is_first_use and spec.source is Source.CLIENT:
        _register_client_server_and_drop_oldest(tx, spec, owner, by=by, at=at)
    if is_first_use and spec.source is not Source.CLIENT:
        for old in tx.approvals(_old_tool_key_prefix(spec)):
            tool = json.loads(old.key)[-1]
            tx.approve(
                Approval(key=_tool_key(prefix, tool), content_hash=old.content_hash, by=old.by, at=old.at)
            )
    approvals = tuple(
        Approval(key=_tool_key(prefix, tool), content_hash=fingerprint, by=by, at=at)
        for tool, fingerprint in fingerprints.items()
    )
    for approval in approvals:
        tx.approve(approval)
    return approvals


def _register_client_server_and_drop_oldest(
    tx: Tx, spec: ServerSpec, owner: str, *, by: str, at: datetime
) -> None:
    """Register a server that a client brought. If a user has too many of them, remove the oldest with their pins."""
    identity = server_identity(spec)
    key = json.dumps(["client", owner, spec.name, identity])
    tx.approve(Approval(key=key, content_hash=identity, by=by, at=at))
    servers = sorted(tx.approvals(json.dumps(["client", owner])[:-1] + ", "), key=lambda server: server.at)
    for oldest in servers[:-MAX_CLIENT_SERVERS]:
        _, _, name, identity = json.loads(oldest.key)
        tx.remove_approvals(json.dumps(["pin", owner, name, identity])[:-1] + ", ")
        tx.remove_approvals(oldest.key)


def store_definitions(
    tx: Tx, fingerprints: Mapping[str, str], definitions: Iterable[Tool], *, by: str, at: datetime
) -> None:
    """Store the definitions of approved tools, to show later what changed. Large ones are left out."""
    left = _MAX_STORED_BYTES
    for definition in definitions:
        text = msgspec.json.encode(definition).decode()
        if definition.name in fingerprints and len(text) <= min(left, _MAX_DEFINITION_BYTES):
            left -= len(text)
            fingerprint = fingerprints[definition.name]
            key = json.dumps(["definition", fingerprint, text])
            tx.approve(Approval(key=key, content_hash=fingerprint, by=by, at=at))


def read_last_definition(tx: ReadTx, spec: ServerSpec, owner: str, tool: str) -> Tool | None:
    """The definition of a tool that was approved last, if it is known."""
    approvals = tx.approvals(_tool_key(_tool_key_prefix(spec, owner), tool))
    last = max(approvals, key=lambda approval: approval.at, default=None)
    if last is None:
        return None
    for stored in tx.approvals(json.dumps(["definition", last.content_hash])[:-1] + ", "):
        return msgspec.json.decode(json.loads(stored.key)[-1], type=Tool)
    return None


def _tool_key(prefix: str, tool: str) -> str:
    return f"{prefix}{json.dumps(tool)}]"


def _tool_key_prefix(spec: ServerSpec, owner: str) -> str:
    """The approval keys of all tools of a server begin with this: the user, the server's name and its identity."""
    return json.dumps(["pin", owner, spec.name, server_identity(spec)])[:-1] + ", "


def _old_tool_key_prefix(spec: ServerSpec) -> str:
    return json.dumps(["tool", spec.origin, spec.name])[:-1] + ", "


def _hashes_by_name(approvals: Iterable[Approval]) -> dict[str, frozenset[str]]:
    """The approved hashes, by tool name or by file path: the last part of each key."""
    found: dict[str, frozenset[str]] = {}
    for approval in approvals:
        name = json.loads(approval.key)[-1]
        found[name] = found.get(name, frozenset[str]()) | {approval.content_hash}
    return found
