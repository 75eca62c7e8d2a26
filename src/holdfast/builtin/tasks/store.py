"""Tasks in SQLite. Every statement selects one workspace, so no workspace sees the tasks of another."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast.model.private_files import make_private_database

_COLUMNS = "number, title, body, status, created_at, updated_at, created_by"
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_MAX_LISTED = 1000
_MAX_LISTED_CHARS = 256 * 1024
_BUSY_SECONDS = 5.0  # how long to wait for another process's transaction


class Status(StrEnum):
    """The status of a task."""

    OPEN = "open"
    STARTED = "started"
    DONE = "done"
    DROPPED = "dropped"

    @property
    def next(self) -> "tuple[Status, ...]":
        """The statuses that a task can change to."""
        match self:
            case Status.OPEN:
                return (Status.STARTED, Status.DROPPED)
            case Status.STARTED:
                return (Status.DONE, Status.OPEN, Status.DROPPED)
            case Status.DONE | Status.DROPPED:
                return (Status.OPEN,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task of a workspace."""

    id: str
    """The workspace's slug and the task's number in it, such as `blog-3`. It is unique in the store."""
    number: int
    title: str
    body: str
    status: Status
    created_at: str
    updated_at: str
    created_by: str
    """The id of the session that added it, `client NAME` for a client without a session, or a command such as `holdfast tasks`; empty if
    none of them is known."""


def task_number(id: str, workspace: str) -> int | None:
    """Return the number in a task's id, such as 3 for `blog-3` or `3`; None if it is not an id in this workspace."""
    slug, _, number = id.strip().rpartition("-")
    return int(number) if slug in ("", workspace) and _NUMBER.fullmatch(number) else None


class TaskStore:
    """The database of tasks, which several processes can share. Each method runs one transaction."""

    def __init__(self, path: Callable[[], Path]) -> None:
        self._path = path
        self._ready = False

    def add(self, workspace: str, title: str, body: str, created_by: str) -> Task:
        """Add a task with the next number of its workspace."""
        now = _now()
        with self._transaction() as db:
            (last,) = db.execute("SELECT max(number) FROM tasks WHERE workspace = ?", (workspace,)).fetchone()
            number = (last or 0) + 1
            db.execute(
                f"INSERT INTO tasks (workspace, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (workspace, number, title, body, Status.OPEN, now, now, created_by),
            )
        return Task(
            id=f"{workspace}-{number}",
            number=number,
            title=title,
            body=body,
            status=Status.OPEN,
            created_at=now,
            updated_at=now,
            created_by=created_by,
        )

    def list(self, workspace: str, status: Status | None, first_number: int = 1) -> tuple[list[Task], int]:
        """Return a workspace's tasks, oldest first, and the number of the first task that did not fit into the list; 0 if all did."""
        tasks: list[Task] = []
        size = 0
        with self._transaction() as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM tasks WHERE workspace = ? AND number >= ? AND (? IS NULL OR status = ?)"
                " ORDER BY number",
                (workspace, first_number, status, status),
            )
            for task in (_task(workspace, row) for row in rows):
                size += len(task.title) + len(task.body)
                if size > _MAX_LISTED_CHARS or len(tasks) == _MAX_LISTED:
                    return tasks, task.number
                tasks.append(task)
        return tasks, 0

    def get(self, workspace: str, number: int) -> Task | None:
        with self._transaction() as db:
            return _get(db, workspace, number)

    def change(self, workspace: str, number: int, change: Callable[[Task], Task]) -> Task | None:
        """Apply `change` to a task in one transaction. `change` may raise to prevent the change. Returns None if there is no such task."""
        with self._transaction() as db:
            task = _get(db, workspace, number)
            if task is None:
                return None
            changed = change(task)
            if changed == task:
                return task
            now = _now()
            db.execute(
                "UPDATE tasks SET title = ?, body = ?, status = ?, updated_at = ? WHERE workspace = ? AND number = ?",
                (changed.title, changed.body, changed.status, now, workspace, number),
            )
            return _get(db, workspace, number)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        path = self._path()
        if not self._ready:
            make_private_database(path)
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            if not self._ready:
                db.executescript(
                    files("holdfast.builtin.tasks").joinpath("schema.sql").read_text(encoding="utf-8")
                )
                self._ready = True
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")


def _get(db: sqlite3.Connection, workspace: str, number: int) -> Task | None:
    row = db.execute(
        f"SELECT {_COLUMNS} FROM tasks WHERE workspace = ? AND number = ?", (workspace, number)
    ).fetchone()
    return None if row is None else _task(workspace, row)


def _task(workspace: str, row: tuple[Any, ...]) -> Task:
    number, title, body, status, created_at, updated_at, created_by = row
    return Task(
        id=f"{workspace}-{number}",
        number=number,
        title=title,
        body=body,
        status=Status(status),
        created_at=created_at,
        updated_at=updated_at,
        created_by=created_by,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
