"""The contract tests, for both stores."""

from pathlib import Path

import pytest

from holdfast.store.memory import MemoryDatabase, MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.store_contract import OpenStore, StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda: SqliteStore(tmp_path / "holdfast.db")


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        database = MemoryDatabase()
        return lambda: MemoryStore(database)
