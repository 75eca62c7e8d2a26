"""Checks, backs up, vacuums and reads a store in a file, without opening it for sessions."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.anchor import Anchor
from holdfast.store.open_store import sqlite_file
from holdfast.store.store import ReadTx


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """How much a store contains, and its problems."""

    schema: int
    sessions: int
    events: int
    bytes: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """The size of a store before and after it was rewritten, in bytes."""

    before: int
    after: int
    is_in_use: bool
    """Whether another process was reading the store. The rewritten part is then still in the write-ahead log next to the file."""


@contextmanager
def open_for_reading(url: str | Path) -> Iterator[ReadTx]:
    """Read a store of this or an earlier version, without changing it. Raise if it is missing or empty."""
    from holdfast.store.sqlite import maintenance

    with maintenance.open_for_reading(_file(url)) as tx:
        yield tx


def anchor_of(url: str | Path) -> Anchor:
    """The anchor of the store in this file, which need not be open."""
    from holdfast.store.sqlite.anchor import FileAnchor

    return FileAnchor.for_database(_file(url))


def check(url: str | Path) -> CheckReport:
    """Read everything, and report problems. Nothing is changed."""
    from holdfast.store.sqlite import maintenance

    return maintenance.check(_file(url))


def check_quickly(url: str | Path, seconds: float) -> None:
    """Raise if damaged pages are found within these seconds."""
    from holdfast.store.sqlite import maintenance

    maintenance.check_quickly(_file(url), seconds)


def backup(url: str | Path, copy: Path) -> None:
    """Copy a snapshot of the store and its anchor, even while it is in use. Never overwrite a file or leave a partial copy."""
    from holdfast.store.sqlite import maintenance

    maintenance.backup(_file(url), copy)


def vacuum(url: str | Path) -> VacuumReport:
    """Rewrite the file without unused space."""
    from holdfast.store.sqlite import maintenance

    return maintenance.vacuum(_file(url))


def _file(url: str | Path) -> Path:
    file = sqlite_file(url)
    if file is None:
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"The store {str(url)!r} is not in a file. Give the path of a store, or sqlite:///PATH.",
        )
    return file
