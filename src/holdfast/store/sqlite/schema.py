"""Migrates a database file to the current version of the schema."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.sqlite.database import Database

# "HOLD" in the file's header marks it as a file of Holdfast.
APPLICATION_ID = 0x484F4C44
_SECTION = re.compile(r"^-- version (\d+)$", re.MULTILINE)


@cache
def migrations() -> tuple[str, ...]:
    """The SQL of every schema version, the first version first."""
    return split_migrations(files("holdfast.store.sqlite").joinpath("schema.sql").read_text(encoding="utf-8"))


def split_migrations(text: str) -> tuple[str, ...]:
    """The sections of a schema file, numbered from 1 without a gap."""
    _, *parts = _SECTION.split(text)
    numbers, bodies = [int(number) for number in parts[::2]], tuple(parts[1::2])
    if numbers != list(range(1, len(bodies) + 1)):
        raise ValueError(f"The sections of the schema must count from 1; they are {numbers}.")
    return bodies


def check_version(db: Database, path: str, supported: int) -> None:
    """Raise if another program or a newer version of Holdfast wrote the file."""
    application, version = _number(db, "application_id"), schema_version(db)
    is_foreign = application != APPLICATION_ID or version < 0
    if is_foreign and db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
        raise HoldfastError(
            codes.STORE_FOREIGN, f"'{path}' is a database of another program. Nothing was changed."
        )
    if version > supported:
        raise HoldfastError(
            codes.STORE_TOO_NEW,
            f"'{path}' was written by a newer version of Holdfast (schema {version}; this version supports {supported}). "
            "Nothing was changed.",
        )


def migrate(
    db: Database, path: str, steps: tuple[str, ...], before_upgrade: Callable[[int], object] | None = None
) -> None:
    """Run every section after the file's version, in one transaction.

    `before_upgrade` is called with the version of the file before anything is changed, unless the file is new. The file is
    locked then, so that no other process can upgrade it.
    """
    if schema_version(db) == len(steps):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have migrated the file: check again under the lock.
        check_version(db, path, len(steps))
        version = schema_version(db)
        if 0 < version < len(steps) and before_upgrade is not None:
            before_upgrade(version)
        for step in steps[version:]:
            for statement in _statements(step):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(steps)}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def schema_version(db: Database) -> int:
    """The version of the file's schema; 0 if the file is empty."""
    return _number(db, "user_version")


def _number(db: Database, pragma: str) -> int:
    row = db.execute(f"PRAGMA {pragma}").fetchone()
    return int(row[0]) if row else 0


def _statements(script: str) -> Iterator[str]:
    # Not executescript(): it commits the open transaction.
    *pieces, rest = script.split(";")
    statement = ""
    for piece in pieces:
        statement += f"{piece};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if any(line.strip() and not line.strip().startswith("--") for line in f"{statement}{rest}".splitlines()):
        raise ValueError(
            f"The schema ends in the middle of a statement: {(statement + rest).strip()[:80]!r}."
        )
