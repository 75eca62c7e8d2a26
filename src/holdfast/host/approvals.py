"""Approvals of servers (by their configuration and their program) and of tools (by their definition)."""

import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from holdfast.audit.approvals import REVOKED, approval_record, needs_record
from holdfast.audit.audit import Audit
from holdfast.host.edit_approvals import why_edits_need_approval, why_not_to_follow
from holdfast.masking import MASKED
from holdfast.masking.configured_secrets import secrets_in_spec
from holdfast.masking.mask import Mask
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.resolution import Resolution, Stage
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.worker_threads import WorkerThreads
from holdfast.resolve.admit import ServerAnswers
from holdfast.resolve.approval_store import (
    ApprovedProgram,
    ServerApproval,
    ToolPins,
    covers_later_edits,
    definition_approvals,
    is_entry_approved,
    read_approved_program,
    read_edit_approvals,
    read_last_answer,
    read_last_definition,
    read_server_answers,
    read_server_that_ended_edits,
    read_shown_entry,
    read_tool_pins,
    remove_other_answers,
    remove_server_approval,
    store_declined,
    store_server_approval,
    store_tool_approvals,
)
from holdfast.resolve.file_hashes import FileHashes
from holdfast.resolve.grant import ConfinedGrant
from holdfast.resolve.program import Program, describe_change, quote_path
from holdfast.resolve.read_program import read_program
from holdfast.resolve.screen_tools import ApprovedTools, ScreenedTools, screen_tools_async
from holdfast.resolve.server_entry import ServerEntry
from holdfast.store.store import ReadTx, Store, Tx
from holdfast.store.types import APPROVED_ON_FIRST_USE, Approval
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.mcp.tools import Tool

T = TypeVar("T")
_THREADS = WorkerThreads("definitions", threads=2)
_MAX_ROWS = 100
"""The maximum number of rows in one transaction. Between two transactions, other sessions can write."""
_READ_SECONDS = 20.0
"""How long reading a program may take: enough for the largest program on a slow disk."""
_REVIEW = "To review it, run: holdfast servers approve"
_NO_LONGER_APPROVED = (
    "Since this session was opened, the approval of this server was revoked, or replaced by one with other rights. To use the "
    "server, open a new session; if it is refused there, run: holdfast servers approve"
)


async def _do_nothing() -> None:
    pass


class Approvals:
    """Stores approvals, checks programs, and screens tools against them."""

    def __init__(self, store: Store, audit: Audit, *, pin_tools: str) -> None:
        self._store = store
        self._audit = audit
        self._pin_tools = pin_tools
        self.on_change: Callable[[], Awaitable[None]] = _do_nothing
        """Called after a server was approved or revoked: running servers may have to end."""

    async def approve_server(
        self,
        entry: ServerEntry,
        *,
        by: str,
        program: Program | None = None,
        grant: ConfinedGrant | None = None,
        follow_edits: bool = False,
        shown: str = "",
    ) -> None:
        """Approve a server with its current configuration, and with its program as it was read.

        With a `grant`, the server may only run confined; without one, it gets the user's rights. The earlier answers that this
        replaces are removed. With `follow_edits`, later edits of the program are also approved, until a confined server can write
        in the project's folder. `shown` is the entry as the user saw it, with secrets masked, to show later what changed.
        """
        if program is not None and (problem := program.problem_with_bytecode):
            raise HoldfastError(codes.NOT_APPROVED, f"{entry.name!r} is not approved: {problem}.")
        if follow_edits:
            why = await self._why_not_to_follow(entry, program, grant)
            if why:
                raise HoldfastError(codes.NOT_APPROVED, why)
        now = self._store.now()
        answer = ServerApproval(program=program, grant=grant, covers_later_edits=follow_edits, shown=shown)

        def store(tx: Tx) -> None:
            self._record_revoked(tx, remove_other_answers(tx, entry, grant), by=by, at=now)
            self._record(tx, store_server_approval(tx, entry, answer, by=by, at=now))

        await self._store.write(store)
        await self.on_change()

    async def _why_not_to_follow(
        self, entry: ServerEntry, program: Program | None, grant: ConfinedGrant | None
    ) -> str:
        if grant is not None or program is None or not program.files:
            return (
                "--follow-edits works only for a server that runs with your rights, and whose program is in the project. "
                f"Approve {entry.name!r} without it."
            )
        folder = os.path.dirname(entry.origin)  # noqa: PTH120 - a text, not a `Path`
        return await run_with_file_timeout(why_not_to_follow, entry.name, folder, program, path=folder)

    async def entries_with_followed_edits(self) -> frozenset[str]:
        """The digests of the project entries for which later edits of their program are approved."""
        approvals = await self._store.read(read_edit_approvals)
        return frozenset(approval.content_hash for approval in approvals)

    async def decline_server(self, entry: ServerEntry, *, by: str) -> None:
        """Remember that the user declined a server with its current configuration. Only `approve_server` changes that."""
        now = self._store.now()
        await self._store.write(lambda tx: store_declined(tx, entry, by=by, at=now))

    async def answers(self) -> ServerAnswers:
        """The user's answers about projects' servers."""
        return await self._store.read(read_server_answers)

    async def last_answer(self, entry: ServerEntry) -> ServerApproval | None:
        """How the server was approved last, under this name in its file, with this or another entry; None if it was not."""
        return await self._store.read(lambda tx: read_last_answer(tx, entry.origin, entry.name))

    async def shown_entry(self, entry: ServerEntry) -> tuple[str, str] | None:
        """The entry that was approved last under this name, as it was shown, and its digest; None if it is not known."""
        return await self._store.read(lambda tx: read_shown_entry(tx, entry.origin, entry.name))

    async def revoke_server(self, origin: str, name: str, *, by: str) -> bool:
        """Revoke every approval of a server that this project file configures. Return whether there was one.

        The approvals of its tools stay: on their own, they let nothing run.
        """
        now = self._store.now()

        def remove(tx: Tx) -> bool:
            removed = remove_server_approval(tx, origin, name)
            self._record_revoked(tx, removed, by=by, at=now)
            return bool(removed)

        was_approved = await self._store.write(remove)
        await self.on_change()
        return was_approved

    def _record_revoked(self, tx: Tx, removed: Iterable[Approval], *, by: str, at: datetime) -> None:
        for approval in filter(needs_record, removed):
            record = msgspec.structs.replace(approval_record(approval, REVOKED, by=by), at=at)
            self._audit.append(tx, record)

    def _record(self, tx: Tx, approvals: Iterable[Approval]) -> None:
        """Append the audit records of these approvals, in their transaction."""
        for approval in filter(needs_record, approvals):
            self._audit.append(tx, approval_record(approval))

    async def read_program(
        self, command: Sequence[str], folder: str, module_folders: Sequence[str] = ()
    ) -> Program:
        """Read the program that a command runs in a project's folder. `module_folders` are those that its `PYTHONPATH` names."""
        return await self._read_program(command, folder, module_folders=module_folders)

    async def _read_program(self, command: Sequence[str], folder: str, **options: Any) -> Program:
        work = partial(read_program, command, folder, os.environ.get("PATH", ""), **options)
        return await run_with_file_timeout(work, path=folder, seconds=_READ_SECONDS)

    async def is_program_approved(self, entry: ServerEntry, program: Program) -> bool:
        """Whether this program, or later edits of it, were approved together with the current configuration of its server."""
        key = entry.origin, entry.name, entry.digest
        approved, is_followed = await self._store.read(
            lambda tx: (read_approved_program(tx, *key), covers_later_edits(tx, *key))
        )
        if program.problem:
            return False
        if not program.problem_with_bytecode and _is_as_approved(program, approved):
            return True
        folder = os.path.dirname(entry.origin)  # noqa: PTH120 - a text, not a `Path`
        return is_followed and not await run_with_file_timeout(
            why_edits_need_approval, program, folder, approved.all_hashes, path=folder
        )

    async def check_program(
        self, spec: ServerSpec, folder: str, hashes: FileHashes | None = None
    ) -> Program | None:
        """Return the program of a project's server; raise NOT_APPROVED if the server or its program is not as it was approved.

        Return None for other servers, and for a project's remote servers, which have no program. `hashes` shares the hashes of
        files between several checks.
        """
        if spec.source is not Source.PROJECT:
            return None
        if not await self._store.read(lambda tx: is_entry_approved(tx, spec)):
            raise HoldfastError(codes.NOT_APPROVED, _NO_LONGER_APPROVED)
        if not isinstance(spec.transport, Stdio):
            return None
        stdio = spec.transport
        argv = (stdio.command, *stdio.args)

        def read_approval(tx: ReadTx) -> tuple[ApprovedProgram, bool, str]:
            key = spec.origin, spec.name
            approved = read_approved_program(tx, *key, spec.digest)
            return approved, covers_later_edits(tx, *key, spec.digest), read_server_that_ended_edits(tx, *key)

        approved, is_followed, ended_by = await self._store.read(read_approval)
        read_files = partial(self._read_program, argv, folder, module_folders=stdio.module_folders)
        program = await read_files(hashes=hashes, approved=approved.all_hashes)
        why = _why_not_approved(program, approved)
        if why and is_followed and not program.problem and spec.confinement is None and not spec.grant:
            # Read the whole program: with `approved`, reading stops at the first part that is not approved.
            program = await read_files(hashes=hashes)
            why = _why_uncheckable(program) or await run_with_file_timeout(
                why_edits_need_approval, program, folder, approved.all_hashes, path=folder
            )
        if why:
            raise HoldfastError(codes.NOT_APPROVED, why + _why_no_longer_followed(ended_by))
        return program

    async def check_program_files(
        self, spec: ServerSpec, session_folder: str
    ) -> frozenset[tuple[str, int, int]]:
        """Check a program like `check_program`. Return a stamp of each of its files, which changes with the file."""
        program = await self.check_program(spec, session_folder)
        return program.stamps if program is not None else frozenset()

    async def refuse_changed_programs(self, resolution: Resolution, folder: str) -> Resolution:
        """Refuse each project server whose program is not as it was approved."""
        reasons: dict[str, str] = {}
        hashes = FileHashes()
        for spec in resolution.servers:
            try:
                await self.check_program(spec, folder, hashes)
            except HoldfastError as error:
                reasons[spec.name] = error.message
        return resolution.refuse_if(lambda spec: reasons.get(spec.name), stage=Stage.ADMIT)

    async def describe_program_change(self, entry: ServerEntry, program: Program) -> str:
        """How the program differs from the one that was approved last; empty if none was, or if it does not differ."""
        key = entry.origin, entry.name
        approved, ended_by = await self._store.read(
            lambda tx: (read_approved_program(tx, *key, entry.digest), read_server_that_ended_edits(tx, *key))
        )
        if not approved.last_parts:
            return ""
        change = describe_change(approved.last_parts, program)
        return f"{change}.{_why_no_longer_followed(ended_by)}" if change and ended_by else change

    async def approve_tools(
        self,
        spec: ServerSpec,
        fingerprints: Mapping[str, str],
        *,
        by: str,
        user_id: str = "",
        definitions: Sequence[Tool] = (),
        mask: Mask | None = None,
    ) -> None:
        """Approve tools with their current definitions, given as fingerprints by tool name, for one user's sessions.

        `definitions` are kept to show what changed when the tools need approval again. Pass the session's `mask`, because
        a server may repeat the secrets of other servers. By default, only this server's secrets are masked.
        """
        now = self._store.now()
        mask = mask or Mask.of(secrets_in_spec(spec))

        def prepare() -> tuple[dict[str, str], list[Approval]]:
            pins = {_stored_name(tool, mask): fingerprint for tool, fingerprint in fingerprints.items()}
            if spec.source is Source.CLIENT:  # a client can supply any number of servers
                return pins, []
            masked = [mask_definition(definition, mask) for definition in definitions]
            return pins, definition_approvals(pins, masked, by=by, at=now)

        def store(tx: Tx, pins: Mapping[str, str]) -> None:
            self._record(tx, store_tool_approvals(tx, spec, pins, user_id=user_id, by=by, at=now))

        def store_definitions(tx: Tx, rows: Iterable[Approval]) -> None:
            for row in rows:
                tx.approve(row)

        pins, definition_rows = await _THREADS.run(prepare, owner=user_id)
        if by == APPROVED_ON_FIRST_USE:  # these pins are stored in one row
            await self._store.write(partial(store, pins=pins))
        else:
            for batch in _batches([*pins.items()]):
                await self._store.write(partial(store, pins=dict(batch)))
        for rows in _batches(definition_rows):
            await self._store.write(partial(store_definitions, rows=rows))

    async def last_definition(
        self, spec: ServerSpec, tool: str, *, user_id: str = "", mask: Mask | None = None
    ) -> Tool | None:
        """A tool's definition that was approved last, or that was there on first use, with secrets masked."""
        name = _stored_name(tool, mask or Mask.of(secrets_in_spec(spec)))
        return await self._store.read(lambda tx: read_last_definition(tx, spec, user_id, name))

    async def pinned_tools(self, spec: ServerSpec, *, user_id: str = "") -> list[Tool]:
        """The tools that are pinned for one user, as they were last approved or first used. Empty if none are."""

        def read(tx: ReadTx) -> list[Tool]:
            names = read_tool_pins(tx, spec, user_id).all
            definitions = (read_last_definition(tx, spec, user_id, name) for name in names)
            return [definition for definition in definitions if definition is not None]

        return await self._store.read(read)

    async def screen(
        self,
        spec: ServerSpec,
        tools: Sequence[Tool],
        *,
        user_id: str = "",
        mask: Mask | None = None,
        throttle: LoopThrottle | None = None,
    ) -> ScreenedTools:
        """Decide which tools of a server are offered, and with which annotations (hints and titles).

        - A built-in server, and one of the application unless it has `"pin_tools": true`: all, with annotations.
        - Any other server with `"pin_tools": false`: all, without annotations.
        - Other servers: the tools whose definition is as at first use or as a person approved it; with annotations if the
          server is the operator's, the user's or the application's, or if a person approved the definition. With the setting
          `servers.pin_tools = "project"`, changed tools of the operator's and the user's servers are offered too, without
          annotations.

        `mask` is the same as in `approve_tools`.
        """
        if spec.source is Source.BUILTIN or (spec.source is Source.APP and not spec.pins_tools):
            return await screen_tools_async(tools, ApprovedTools(), throttle)
        if not spec.pins_tools:
            screened = await screen_tools_async(tools, ApprovedTools(hints_accepted={}), throttle)
            return replace(screened, offered_without_hints=())  # there is nothing to approve
        pins = await self._store.read(lambda tx: read_tool_pins(tx, spec, user_id))
        pins = _with_names_of(tools, pins)
        is_first_use = not pins.all
        if spec.source in (Source.OPERATOR, Source.USER):
            known = None if is_first_use else pins.all
            approved = ApprovedTools(
                offered=None if self._pin_tools == "project" else known, hints_accepted=known
            )
        elif spec.source is Source.APP:
            known = None if is_first_use else pins.all
            approved = ApprovedTools(offered=known, hints_accepted=known)
        else:
            approved = ApprovedTools(
                offered=None if is_first_use else pins.all, hints_accepted=pins.by_person
            )
        screened = await screen_tools_async(tools, approved, throttle)
        if is_first_use:
            full = {tool.name: tool.definition for tool in screened.offered_without_hints}
            await self.approve_tools(
                spec,
                screened.fingerprints,
                by=APPROVED_ON_FIRST_USE,
                user_id=user_id,
                definitions=[full.get(tool.name, tool) for tool in screened.offered],
                mask=mask,
            )
        return screened


def mask_definition(definition: Tool, mask: Mask) -> Tool:
    """A tool's definition as it is stored, with secrets masked."""
    text = msgspec.json.encode(definition)
    if not mask.contains(text.decode()):
        return definition
    masked = msgspec.json.encode(mask.mask_known_in_json(msgspec.json.decode(text)))
    return msgspec.structs.replace(
        msgspec.json.decode(masked, type=Tool), name=_stored_name(definition.name, mask)
    )


def _batches(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """The rows in batches, one for each transaction."""
    return (rows[start : start + _MAX_ROWS] for start in range(0, len(rows), _MAX_ROWS))


def _stored_name(tool: str, mask: Mask) -> str:
    """The name of a tool in the store. If it contains a secret, it is masked, and a hash tells it from other names."""
    masked = mask.mask_known(tool)
    return tool if masked == tool else f"{masked} {_name_hash(tool)}"


def _name_hash(tool: str) -> str:
    return hashlib.sha256(tool.encode()).hexdigest()[:16]


def _with_names_of(tools: Sequence[Tool], pins: ToolPins) -> ToolPins:
    """The pins, also under the real names of these tools if the store has only their masked names."""
    masked = {name.rpartition(" ")[2]: name for name in pins.all if MASKED in name}
    if not masked:
        return pins
    stored = {tool.name: masked[digest] for tool in tools if (digest := _name_hash(tool.name)) in masked}
    return ToolPins(all=_add_names(pins.all, stored), by_person=_add_names(pins.by_person, stored))


def _add_names(pins: Mapping[str, frozenset[str]], stored: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """The pins, also under real names. `stored` has the name in the store for each real name."""
    return {**pins, **{name: pins[masked] for name, masked in stored.items() if masked in pins}}


def _why_no_longer_followed(ended_by: str) -> str:
    """A sentence that names the confined server whose start ended the approval of later edits; empty if there is none."""
    if not ended_by:
        return ""
    return (
        f" The approval followed your edits until the confined server {ended_by!r} could write in this folder: "
        "read the program before you approve it."
    )


def _why_uncheckable(program: Program) -> str:
    if not program.problem:
        return ""
    return (
        f"Its program cannot be checked: {program.problem}. Correct that, "
        "or move the server to your own servers file (the setting servers.user_file)."
    )


def _why_not_approved(program: Program, approved: ApprovedProgram) -> str:
    """Why a program may not run; empty if it is as it was approved."""
    if why := _why_uncheckable(program):
        return why
    if problem := program.problem_with_bytecode:
        return f"Its program cannot be checked: {problem}."
    if not program.unapproved_part and _is_as_approved(program, approved):
        return ""
    if not approved.last_parts:
        return (
            f"Its program is not approved yet: {', '.join(map(quote_path, [*program.parts][:5]))}. {_REVIEW}"
        )
    return (
        f"Its program is not as it was approved: {describe_change(approved.last_parts, program)}. {_REVIEW}"
    )


def _is_as_approved(program: Program, approved: ApprovedProgram) -> bool:
    """Whether the program has the same parts as when it was approved. It may have had none then, and have none now."""
    if not program.parts and not approved.digests:
        return True
    return program.digest in approved.digests
