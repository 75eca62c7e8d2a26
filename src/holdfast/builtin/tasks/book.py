"""Tasks on disk. Every statement names the workspace: no task can be seen from another one."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast.builtin.tasks.task import Status, Task

_COLUMNS = "number, title, body, status, created_at, updated_at, created_by"
_PATIENCE = 5.0  # seconds that one process waits for another's transaction


class Book:
    """A file of tasks that several processes may share. One method is one transaction, in one thread."""

    def __init__(self, path: Callable[[], Path]) -> None:
        self._path = path
        self._ready = False

    def add(self, workspace: str, title: str, body: str, created_by: str) -> Task:
        """A new task, under the next number of its workspace."""
        now = _now()
        with self._transaction() as db:
            (last,) = db.execute("SELECT max(number) FROM tasks WHERE workspace = ?", (workspace,)).fetchone()
            number = (last or 0) + 1
            db.execute(
                f"INSERT INTO tasks (workspace, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (workspace, number, title, body, Status.OPEN, now, now, created_by),
            )
        return Task(
            number=number,
            title=title,
            body=body,
            status=Status.OPEN,
            created_at=now,
            updated_at=now,
            created_by=created_by,
        )

    def list(self, workspace: str, status: Status | None) -> list[Task]:
        """The tasks of a workspace, oldest first."""
        with self._transaction() as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM tasks WHERE workspace = ? AND (? IS NULL OR status = ?) ORDER BY number",
                (workspace, status, status),
            ).fetchall()
        return [_task(row) for row in rows]

    def get(self, workspace: str, number: int) -> Task | None:
        """One task of a workspace."""
        with self._transaction() as db:
            return _found(db, workspace, number)

    def change(self, workspace: str, number: int, change: Callable[[Task], Task]) -> Task | None:
        """Replace a task by what becomes of it; nobody else changes it in between. The change may refuse by raising."""
        with self._transaction() as db:
            task = _found(db, workspace, number)
            if task is None:
                return None
            changed = change(task)
            now = _now()
            db.execute(
                "UPDATE tasks SET title = ?, body = ?, status = ?, updated_at = ? WHERE workspace = ? AND number = ?",
                (changed.title, changed.body, changed.status, now, workspace, number),
            )
            return _found(db, workspace, number)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        path = self._path()
        if not self._ready:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as db:
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


def _found(db: sqlite3.Connection, workspace: str, number: int) -> Task | None:
    row = db.execute(
        f"SELECT {_COLUMNS} FROM tasks WHERE workspace = ? AND number = ?", (workspace, number)
    ).fetchone()
    return None if row is None else _task(row)


def _task(row: tuple[Any, ...]) -> Task:
    number, title, body, status, created_at, updated_at, created_by = row
    return Task(
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
