"""Approvals that cover later edits of a program: when they can be given, what they cover, and when they end.

With such an approval, the program runs with the user's rights after any edit. So no confined server may be able to edit it:
before a confined server is started that can write in the project's folder, the approval ends for good. Edits of files outside
of the project's folder are never covered.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePath

import msgspec

from holdfast.audit.approvals import REVOKED, approval_record
from holdfast.audit.audit import Audit
from holdfast.model.confined_folders import can_confined_server_change
from holdfast.model.mounts import is_within, read_mounts, with_bind_mounts
from holdfast.model.real_path import real_path
from holdfast.model.server import ServerSpec
from holdfast.model.visible_text import display_path
from holdfast.resolve.approval_store import end_edit_approval, read_edit_approvals
from holdfast.resolve.program import Program, quote_path
from holdfast.resolve.unconfined_paths import UnconfinedPaths
from holdfast.store.store import Store, Tx
from holdfast.store.types import Approval


def why_not_to_follow(name: str, folder: str, program: Program) -> str:
    """Why an approval of this server cannot cover later edits now; empty if it can. Blocks."""
    try:
        parents = (real_path(str(Path(folder, path).parent)) for path in program.files)
        folders = {real_path(folder), *parents}
    except OSError:
        return (
            f"Later edits of {name!r} cannot be approved in advance: a symbolic link in {display_path(folder)} cannot be resolved. "
            "Approve it without --follow-edits."
        )
    if not any(map(can_confined_server_change, folders)):
        return ""
    return (
        f"Later edits of {name!r} cannot be approved in advance now: a confined server runs in {display_path(folder)}, and may be able to change its program. "
        "Close the sessions in this folder, or approve the server without --follow-edits."
    )


def why_edits_need_approval(program: Program, folder: str, approved: Mapping[str, Collection[str]]) -> str:
    """Why a changed program needs approval, although later edits are approved; empty if it needs none. Blocks.

    `approved` has the approved hashes of each file. A changed file outside of the project's folder, or with a second hard link,
    needs approval, because a confined server may be able to write to it.
    """
    for path, content in program.files.items():
        if content not in approved.get(path, ()) and not _is_only_in(folder, Path(folder, path)):
            return (
                f"Its program has changed, and {quote_path(path)} is outside of the project's folder (perhaps through a link), or has a "
                "second hard link: each edit of such a file needs approval. To review it, run: holdfast servers approve"
            )
    return ""


def _is_only_in(folder: str, path: Path) -> bool:
    """Whether a file is in the folder, and has no second hard link. False if that cannot be found out."""
    try:
        return is_within(real_path(str(path)), real_path(folder)) and path.stat().st_nlink == 1
    except OSError:
        return False


async def revoke_edit_approvals_in_writable_roots(store: Store, audit: Audit, spec: ServerSpec) -> ServerSpec:
    """Revoke the approvals of later edits in each folder that this confined server can write to. Call this before it is started.

    Return the spec unchanged.
    """
    if spec.confinement is None:
        return spec
    if followed := await store.read(read_edit_approvals):
        await revoke_edit_approvals(store, audit, followed, spec)
    return spec


async def revoke_edit_approvals(
    store: Store, audit: Audit, followed: Iterable[Approval], spec: ServerSpec
) -> None:
    """Revoke those of the approvals in `followed` whose folder overlaps with a root that this confined server can write to."""
    confinement = spec.confinement
    if confinement is None:
        return
    roots = tuple(root for root in confinement.roots if root not in confinement.read_only)
    if not roots:
        return
    mounts = read_mounts()

    def overlaps(approval: Approval) -> bool:
        folder = str(PurePath(json.loads(approval.key)[1]).parent)
        return bool(
            UnconfinedPaths(approved_folders=frozenset(with_bind_mounts([folder], mounts))).read_only_roots(
                roots
            )
        )

    revoked = [approval for approval in followed if overlaps(approval)]
    if not revoked:
        return
    now, by = store.now(), f"the start of {spec.name!r}"

    def end(tx: Tx) -> None:
        for approval in revoked:
            for removed in end_edit_approval(tx, approval, spec.name, by=by, at=now):
                audit.append(tx, msgspec.structs.replace(approval_record(removed, REVOKED, by=by), at=now))

    await store.write(end)
