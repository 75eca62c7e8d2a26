"""Store and read the approvals of servers and tools.

The key of a row names what is approved, and the `content_hash` says which version of it. A row that is "not an approval" keeps
another answer of the user, or data that is needed later.

A key is a JSON list that begins with its kind. An *origin* is the file of a server's entry, a *pin* is the stored fingerprint of a
tool's definition, and an *identity* is what `server_identity` returns:

- `["server", origin, name]`: an entry, to run with the user's rights.
- `["program", origin, name, entry digest]`: all parts of a program, together with its entry.
- `["program file", origin, name, path]`: one part of a program.
- `["confined server", origin, name, grant]`, `["confined program", …]`, `["confined program file", …]`: the same for a server
  that may run only while confined.
- `["edits", origin, name]`: later edits of the program of an entry that has the user's rights. The hash is the entry's.
- `["ended edits", origin, name, confined server]`: later edits are no longer approved, because this confined server could write in the
  project's folder. Not an approval.
- `["declined server", origin, name]`: an entry that the user declined. Not an approval.
- `["entry", origin, name, text]`: an approved entry, to show later what changed. Not an approval.
- `["pins", user_id, server, identity, {tool: fingerprint, …}]`: the definitions of all tools at the first use of a server, for one
  user. All tools share one row, because all sessions share the writer, so a write must be short.
- `["pin", user_id, server, identity, tool]`: a tool's definition, for one user. It was approved by a person or, in stores of earlier
  Holdfast versions, at the first use.
- `["client", user_id, server, identity]`: a server that a client brought and that has pins. Not an approval.
- `["definition", fingerprint, text]`: a tool's definition, to show later what changed. Not an approval.
- `["agent", file, name]`: a project's definition of an agent.
- `["instructions", folder, file, user_id]`: a project's instructions for its agents, for one user.
- `["tool", origin, server, tool]`: a pin of an earlier Holdfast version, in which all users shared the pins.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePosixPath

import msgspec

from holdfast.model.server import ServerSpec, Source
from holdfast.resolve.admit import ServerAnswers
from holdfast.resolve.grant import ConfinedGrant, decode_grant
from holdfast.resolve.program import Program
from holdfast.resolve.server_entry import ServerEntry, server_identity
from holdfast.store.store import ReadTx, Tx
from holdfast.store.types import APPROVED_ON_FIRST_USE, Approval
from holdfast.wire.mcp.tools import Tool

MAX_CLIENT_SERVERS = 100
"""For each user, the pins of this many servers that clients brought are kept."""
_MAX_DEFINITION_BYTES = 16 * 1024
_MAX_STORED_BYTES = 1024 * 1024  # how large all stored definitions that are approved together may be
_MAX_ENTRY_BYTES = 64 * 1024  # a larger entry is not stored
_DIRECT_KINDS = ("server", "program", "program file")
_CONFINED_KINDS = ("confined server", "confined program", "confined program file")
_EDITS = "edits"
_ENDED_EDITS = "ended edits"
_DECLINED = "declined server"
_ENTRY = "entry"
_FIRST_USE_PINS = "pins"
_TOOL_PIN = "pin"


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

    digests: frozenset[str]
    """The digest of each version of the program that was approved together with the current entry."""
    last_parts: Mapping[str, str]
    """The parts of the version that was approved last, as hashes by path."""
    all_hashes: Mapping[str, frozenset[str]]
    """The hashes of each part in all approved versions, by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerApproval:
    """The approval of a project's server: its program, and what it may use if it is confined."""

    program: Program | None = None
    grant: ConfinedGrant | None = None
    """None if the server gets the user's rights."""
    covers_later_edits: bool = False
    """Whether later edits of the program are also approved. Only for a server with the user's rights."""
    shown: str = ""
    """The entry as it was shown, with secrets masked."""


def store_server_approval(
    tx: Tx, entry: ServerEntry, answer: ServerApproval, *, by: str, at: datetime
) -> tuple[Approval, ...]:
    """Approve a server's entry, and its program if it has one. Return the approvals."""

    def approval(what: str, *more: str, content_hash: str) -> Approval:
        key = json.dumps([what, entry.origin, entry.name, *more])
        return Approval(key=key, content_hash=content_hash, by=by, at=at)

    server, program, program_file = _DIRECT_KINDS if answer.grant is None else _CONFINED_KINDS
    details = () if answer.grant is None else (answer.grant.encode(),)
    approvals = [approval(server, *details, content_hash=entry.digest)]
    if answer.program is not None:
        parts = answer.program.parts.items()
        approvals.append(approval(program, entry.digest, content_hash=answer.program.digest))
        approvals += (approval(program_file, path, content_hash=digest) for path, digest in parts)
    if answer.covers_later_edits and answer.grant is None:
        approvals.append(approval(_EDITS, content_hash=entry.digest))
    for each in approvals:
        tx.approve(each)
    _remove(tx, _ENTRY, entry.origin, entry.name)
    if len(answer.shown.encode()) <= _MAX_ENTRY_BYTES:
        tx.approve(approval(_ENTRY, answer.shown, content_hash=entry.digest))
    return tuple(approvals)


def remove_other_answers(tx: Tx, entry: ServerEntry, grant: ConfinedGrant | None) -> tuple[Approval, ...]:
    """Remove the earlier answers that a new answer replaces. Return the removed approvals.

    An approval as confined ends the approvals of all versions of the server with the user's rights, and the other way round.
    """
    _remove(tx, _DECLINED, entry.origin, entry.name)
    _remove(tx, _ENDED_EDITS, entry.origin, entry.name)
    removed = _remove(tx, _EDITS, entry.origin, entry.name)
    for what in _CONFINED_KINDS if grant is None else _DIRECT_KINDS:
        removed += _remove(tx, what, entry.origin, entry.name)
    if grant is not None:  # an earlier grant for the same entry
        prefix = json.dumps([_CONFINED_KINDS[0], entry.origin, entry.name])[:-1] + ", "
        removed += (old for old in tx.approvals(prefix) if old.content_hash == entry.digest)
        for old in removed:
            tx.remove_approvals(old.key)
    return tuple(removed)


def store_declined(tx: Tx, entry: ServerEntry, *, by: str, at: datetime) -> None:
    """Remember that the user declined this version of a server."""
    key = json.dumps([_DECLINED, entry.origin, entry.name])
    _remove(tx, _DECLINED, entry.origin, entry.name)
    tx.approve(Approval(key=key, content_hash=entry.digest, by=by, at=at))


def remove_server_approval(tx: Tx, origin: str, name: str) -> tuple[Approval, ...]:
    """Remove every approval of a project's server and of its program. Return the removed approvals."""
    _remove(tx, _ENDED_EDITS, origin, name)
    kinds = (*_DIRECT_KINDS, *_CONFINED_KINDS, _EDITS)
    return tuple(removed for what in kinds for removed in _remove(tx, what, origin, name))


def read_edit_approvals(tx: ReadTx) -> tuple[Approval, ...]:
    """The approvals of later edits, of all projects' servers."""
    return tuple(tx.approvals(f'["{_EDITS}", '))


def covers_later_edits(tx: ReadTx, origin: str, name: str, entry_digest: str) -> bool:
    """Whether later edits of the program are approved, for a server with its current entry."""
    found = tx.approvals(json.dumps([_EDITS, origin, name]))
    return any(approval.content_hash == entry_digest for approval in found)


def end_edit_approval(tx: Tx, edits: Approval, server: str, *, by: str, at: datetime) -> tuple[Approval, ...]:
    """End an approval of later edits, because this confined server can write in the folder. Return what was removed."""
    _, origin, name = json.loads(edits.key)
    removed = _remove(tx, _EDITS, origin, name)
    if removed:
        key = json.dumps([_ENDED_EDITS, origin, name, server])
        tx.approve(Approval(key=key, content_hash=edits.content_hash, by=by, at=at))
    return tuple(removed)


def read_server_that_ended_edits(tx: ReadTx, origin: str, name: str) -> str:
    """The name of the confined server that ended the approval of later edits; empty if there is none."""
    for ended in tx.approvals(json.dumps([_ENDED_EDITS, origin, name])[:-1] + ", "):
        return json.loads(ended.key)[-1]
    return ""


def _remove(tx: Tx, what: str, origin: str, name: str) -> list[Approval]:
    key = json.dumps([what, origin, name])
    removed: list[Approval] = []
    for prefix in (key, key[:-1] + ", "):
        removed += tx.approvals(prefix)
        tx.remove_approvals(prefix)
    return removed


def read_server_answers(tx: ReadTx) -> ServerAnswers:
    """The user's answers about all projects' servers."""
    direct, confined, declined = (
        tx.approvals(f'["{what}", ') for what in (_DIRECT_KINDS[0], _CONFINED_KINDS[0], _DECLINED)
    )
    return ServerAnswers(
        direct=frozenset(approval.content_hash for approval in direct),
        confined={
            approval.content_hash: decode_grant(json.loads(approval.key)[-1])
            for approval in sorted(confined, key=lambda approval: approval.at)
        },
        declined=frozenset(approval.content_hash for approval in declined),
    )


def answers_digest(tx: ReadTx) -> str:
    """A digest of all answers that a person gave about servers and tools. It changes with every new or revoked one."""
    kinds = (*_DIRECT_KINDS, *_CONFINED_KINDS, _EDITS, _DECLINED, _TOOL_PIN)
    rows = [(row.key, row.content_hash) for kind in kinds for row in tx.approvals(f'["{kind}", ')]
    return hashlib.sha256(msgspec.json.encode(sorted(rows))).hexdigest()


def is_entry_approved(tx: ReadTx, spec: ServerSpec) -> bool:
    """Whether a project's server is still approved as this session got it: with the user's rights, or with the same grant."""
    kind = _CONFINED_KINDS[0] if spec.grant else _DIRECT_KINDS[0]
    prefix = json.dumps([kind, spec.origin, spec.name])[:-1]
    return any(
        approval.content_hash == spec.digest
        and (not spec.grant or decode_grant(json.loads(approval.key)[-1]).encode() == spec.grant)
        for approval in tx.approvals(prefix + (", " if spec.grant else "]"))
    )


def read_last_answer(tx: ReadTx, origin: str, name: str) -> ServerApproval | None:
    """The last approval of any version of a project's server; None if it was never approved. Only `grant` is set in the result."""
    key = json.dumps([_DIRECT_KINDS[0], origin, name])
    confined_prefix = json.dumps([_CONFINED_KINDS[0], origin, name])[:-1] + ", "
    last = max((*tx.approvals(key), *tx.approvals(confined_prefix)), key=lambda one: one.at, default=None)
    if last is None:
        return None
    return ServerApproval(grant=None if last.key == key else decode_grant(json.loads(last.key)[-1]))


def read_shown_entry(tx: ReadTx, origin: str, name: str) -> tuple[str, str] | None:
    """The entry that was approved last, as it was shown, and its digest; None if it is not known, or was too large to be kept."""
    for stored in tx.approvals(json.dumps([_ENTRY, origin, name])[:-1] + ", "):
        return json.loads(stored.key)[-1], stored.content_hash
    return None


def read_approved_program(tx: ReadTx, origin: str, name: str, entry_digest: str) -> ApprovedProgram:
    """The program that was approved for a server, with the user's rights or as confined."""
    versions: list[Approval] = []
    files: list[Approval] = []
    for _, program, program_file in (_DIRECT_KINDS, _CONFINED_KINDS):
        versions += tx.approvals(json.dumps([program, origin, name, entry_digest]))
        files += tx.approvals(json.dumps([program_file, origin, name])[:-1] + ", ")
    last = max((file.at for file in files), default=None)
    return ApprovedProgram(
        digests=frozenset(version.content_hash for version in versions),
        last_parts={json.loads(file.key)[-1]: file.content_hash for file in files if file.at == last},
        all_hashes=_hashes_by_name(files),
    )


def approved_program_folders(tx: ReadTx) -> frozenset[str]:
    """The folders of all projects with a local server that has the user's rights, and other folders with files of its program."""
    found: set[str] = set()
    for approval in tx.approvals('["program", '):
        found.add(str(PurePosixPath(json.loads(approval.key)[1]).parent))
    for approval in tx.approvals('["program file", '):
        _, origin, _, path = json.loads(approval.key)
        project = PurePosixPath(origin).parent
        found.add(str(project))
        if path.startswith("../"):
            place = os.path.normpath(project / path)
            found.add(place if path.endswith("/") else os.path.dirname(place))  # noqa: PTH120 - a name, not a path yet
    return frozenset(found)


def read_tool_pins(tx: ReadTx, spec: ServerSpec, user_id: str) -> ToolPins:
    """The pins of a server for one user. If there are none, the pins of earlier Holdfast versions, which all users shared."""
    first_use = tx.approvals(_first_use_prefix(spec, user_id))
    approvals = tx.approvals(_tool_key_prefix(spec, user_id))
    # Not for a client's server: in earlier versions, the servers of all clients shared the pins if they had the same name.
    if not first_use and not approvals and spec.source is not Source.CLIENT:
        approvals = tx.approvals(_old_tool_key_prefix(spec))
    found = _hashes_by_name(approvals)
    for pins in first_use:
        for tool, fingerprint in _read_first_use(pins).items():
            found[tool] = found.get(tool, frozenset[str]()) | {fingerprint}
    by_person = (approval for approval in approvals if approval.by != APPROVED_ON_FIRST_USE)
    return ToolPins(all=found, by_person=_hashes_by_name(by_person))


def store_tool_approvals(
    tx: Tx, spec: ServerSpec, fingerprints: Mapping[str, str], *, user_id: str, by: str, at: datetime
) -> tuple[Approval, ...]:
    """Approve tools for one user: for each tool name, the definition with this fingerprint. Return the approvals."""
    prefix = _tool_key_prefix(spec, user_id)
    is_first_use = not tx.approvals(_first_use_prefix(spec, user_id)) and not tx.approvals(prefix)
    if by == APPROVED_ON_FIRST_USE and not is_first_use:  # another session has used the server first
        return ()
    if is_first_use and spec.source is Source.CLIENT:
        _register_client_server_and_drop_oldest(tx, spec, user_id, by=by, at=at)
    if is_first_use and spec.source is not Source.CLIENT:
        for old in tx.approvals(_old_tool_key_prefix(spec)):
            tool = json.loads(old.key)[-1]
            tx.approve(
                Approval(key=_tool_key(prefix, tool), content_hash=old.content_hash, by=old.by, at=old.at)
            )
    if by == APPROVED_ON_FIRST_USE:
        approvals = (
            (_first_use(_first_use_prefix(spec, user_id), fingerprints, at=at),) if fingerprints else ()
        )
    else:
        approvals = tuple(
            Approval(key=_tool_key(prefix, tool), content_hash=fingerprint, by=by, at=at)
            for tool, fingerprint in fingerprints.items()
        )
    for approval in approvals:
        tx.approve(approval)
    return approvals


def _first_use(prefix: str, fingerprints: Mapping[str, str], *, at: datetime) -> Approval:
    text = msgspec.json.encode(fingerprints).decode()
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Approval(key=f"{prefix}{text}]", content_hash=digest, by=APPROVED_ON_FIRST_USE, at=at)


def _read_first_use(pins: Approval) -> dict[str, str]:
    _, _, _, _, fingerprints = msgspec.json.decode(pins.key, type=tuple[str, str, str, str, dict[str, str]])
    return fingerprints


def _register_client_server_and_drop_oldest(
    tx: Tx, spec: ServerSpec, user_id: str, *, by: str, at: datetime
) -> None:
    """Register a server that a client brought. If a user has too many such servers, remove the oldest, with their pins."""
    identity = server_identity(spec)
    key = json.dumps(["client", user_id, spec.name, identity])
    tx.approve(Approval(key=key, content_hash=identity, by=by, at=at))
    servers = sorted(tx.approvals(json.dumps(["client", user_id])[:-1] + ", "), key=lambda server: server.at)
    for oldest in servers[:-MAX_CLIENT_SERVERS]:
        _, _, name, identity = json.loads(oldest.key)
        for what in (_FIRST_USE_PINS, _TOOL_PIN):
            tx.remove_approvals(json.dumps([what, user_id, name, identity])[:-1] + ", ")
        tx.remove_approvals(oldest.key)


def definition_approvals(
    fingerprints: Mapping[str, str], definitions: Iterable[Tool], *, by: str, at: datetime
) -> list[Approval]:
    """The rows to store with the definitions of approved tools, to show later what changed. Large definitions are left out."""
    approvals: list[Approval] = []
    left = _MAX_STORED_BYTES
    for definition in definitions:
        text = msgspec.json.encode(definition).decode()
        if definition.name in fingerprints and len(text) <= min(left, _MAX_DEFINITION_BYTES):
            left -= len(text)
            fingerprint = fingerprints[definition.name]
            key = json.dumps(["definition", fingerprint, text])
            approvals.append(Approval(key=key, content_hash=fingerprint, by=by, at=at))
    return approvals


def read_last_definition(tx: ReadTx, spec: ServerSpec, user_id: str, tool: str) -> Tool | None:
    """The definition of a tool that was approved last, if it is known."""
    approvals = [*tx.approvals(_tool_key(_tool_key_prefix(spec, user_id), tool))]
    for pins in tx.approvals(_first_use_prefix(spec, user_id)):
        if fingerprint := _read_first_use(pins).get(tool):
            approvals.append(replace(pins, content_hash=fingerprint))
    last = max(approvals, key=lambda approval: approval.at, default=None)
    if last is None:
        return None
    for stored in tx.approvals(json.dumps(["definition", last.content_hash])[:-1] + ", "):
        return msgspec.json.decode(json.loads(stored.key)[-1], type=Tool)
    return None


def _tool_key(prefix: str, tool: str) -> str:
    return f"{prefix}{json.dumps(tool)}]"


def _tool_key_prefix(spec: ServerSpec, user_id: str) -> str:
    """The approval keys of all tools of a server begin with this: the user, the server's name and its identity."""
    return json.dumps([_TOOL_PIN, user_id, spec.name, server_identity(spec)])[:-1] + ", "


def _first_use_prefix(spec: ServerSpec, user_id: str) -> str:
    return json.dumps([_FIRST_USE_PINS, user_id, spec.name, server_identity(spec)])[:-1] + ", "


def _old_tool_key_prefix(spec: ServerSpec) -> str:
    return json.dumps(["tool", spec.origin, spec.name])[:-1] + ", "


def _hashes_by_name(approvals: Iterable[Approval]) -> dict[str, frozenset[str]]:
    """The approved hashes, by tool name or by file path: the last part of each key."""
    found: dict[str, frozenset[str]] = {}
    for approval in approvals:
        name = json.loads(approval.key)[-1]
        found[name] = found.get(name, frozenset[str]()) | {approval.content_hash}
    return found
