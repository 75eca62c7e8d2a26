"""Prepares the upgrade of a file: checks that no process holds one of its sessions, and backs it up."""

from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.store.clock import from_microseconds
from holdfast.store.lease import is_expired
from holdfast.store.owner import Owner
from holdfast.store.sqlite.database import Database, connect_readonly
from holdfast.store.sqlite.errors import translate_errors
from holdfast.store.sqlite.maintenance import copy_store
from holdfast.store.types import Lease


def prepare_upgrade(path: Path, version: int) -> Path:
    """Back up a file that has this schema version, and return the path of the backup. Raise if a process holds a session."""
    with closing(connect_readonly(path)) as db:
        _check_unused(db, path)
        try:
            return _back_up(db, path, version)
        except HoldfastError as error:
            raise HoldfastError(
                error.code,
                f"'{path}' was written by an earlier version of Holdfast and has to be upgraded, but the backup before "
                f"that failed, so nothing was changed: {error.message}",
                **error.details,
            ) from error


def _check_unused(db: Database, path: Path) -> None:
    now = datetime.now(UTC)
    for session_id, holder, until, *owner in db.execute(
        "SELECT s.session_id, l.holder, l.until, l.machine, l.boot, l.namespace, l.pid, l.started "
        "FROM leases l JOIN sessions s ON s.n = l.session_n"
    ):
        machine, boot, namespace, pid, started = owner
        lease = Lease(
            session_id=SessionId(session_id),
            epoch=0,
            holder_id=holder,
            owner=Owner(machine=machine, boot=boot, namespace=namespace, pid=pid, started=started),
            expires_at=from_microseconds(until),
        )
        if not is_expired(lease, now):
            raise HoldfastError(
                codes.STORE_BUSY,
                f"'{path}' has to be upgraded, but an earlier version of Holdfast is using it: {lease.owner}. "
                "Nothing was changed.",
                hint="End that process, then try again.",
            )


def _back_up(db: Database, path: Path, version: int) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    for number in count(1):
        suffix = "" if number == 1 else f"-{number}"
        copy = path.with_name(f"{path.name}.v{version}-{stamp}{suffix}.bak")
        if not copy.exists():
            with translate_errors(copy):
                copy_store(db, path, copy)
            return copy
    raise AssertionError("There is always a free name.")
