"""The store in an SQLite file. Other packages open it with `holdfast.store.open_store`, and import nothing from here."""

from holdfast.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
