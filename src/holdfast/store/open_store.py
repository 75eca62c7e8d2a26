"""Opens the store at a URL."""

import re
from pathlib import Path
from urllib.parse import unquote

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.lease import LEASE_SECONDS
from holdfast.store.memory import MemoryStore
from holdfast.store.owner import Owner
from holdfast.store.store import Store

MEMORY = "memory:"
_SQLITE = "sqlite:///"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def open_store(url: str | Path, *, lease_seconds: float = LEASE_SECONDS, owner: Owner | None = None) -> Store:
    """The store at this URL, as a context manager: `sqlite:///path`, a plain path, or `memory:`.

    A missing file is created. A file of an earlier version is backed up and upgraded. `memory:` is always a new
    store. `owner` is the process that the store's leases name; by default, this one. A process that cannot check whether the owner
    is alive may acquire a session `lease_seconds` after its lease was last renewed.
    """
    file = sqlite_file(url)
    if file is None:
        return MemoryStore(lease_seconds=lease_seconds, owner=owner)
    from holdfast.store.sqlite import SqliteStore

    return SqliteStore(file, lease_seconds=lease_seconds, owner=owner)


def open_read_only(url: str | Path, *, must_exist: bool = False, keep_unchanged: bool = False) -> Store:
    """The store at this URL, to read from, even on a full or read-only disk.

    A missing file counts as an empty store, unless it `must_exist`. A file of an earlier version is upgraded first, for which the
    disk must be writable. Use `keep_unchanged` for a file that another person may have made: it is checked and not changed; if it
    must be upgraded, a copy is read.
    """
    file = sqlite_file(url)
    if file is None:
        return MemoryStore()
    from holdfast.store.sqlite.maintenance import check_file
    from holdfast.store.sqlite.read_only import ReadOnlyStore
    from holdfast.store.sqlite.store import SqliteStore, is_empty, needs_upgrade

    if must_exist and not file.is_file():
        raise HoldfastError(
            codes.STORE_UNREADABLE, f"There is no store at '{file}': nothing was recorded there yet."
        )
    if is_empty(file):
        return MemoryStore()
    if keep_unchanged:
        check_file(file)
        return ReadOnlyStore(file, keep_unchanged=True)
    return SqliteStore(file) if needs_upgrade(file) else ReadOnlyStore(file)


def sqlite_file(url: str | Path) -> Path | None:
    """The file of the store at this URL; None for `memory:`."""
    if isinstance(url, Path):
        return url
    if url == MEMORY:
        return None
    if url.startswith(_SQLITE):
        # `sqlite:////a` means the same as `sqlite:///a`.
        return Path("/" + unquote(url.removeprefix(_SQLITE)).lstrip("/"))
    if _SCHEME.match(url):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"{url[:200]!r} is not the URL of a store.",
            hint="Use sqlite:///PATH, a plain path, or memory:",
        )
    return Path(url)
