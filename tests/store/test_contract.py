"""Every store of ours does what every store must do."""

from pathlib import Path

import pytest

from holdfast.store.memory import MemoryStore, Shelf
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.store_contract import Opener, StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: SqliteStore(tmp_path / "holdfast.db")


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        shelf = Shelf()
        return lambda: MemoryStore(shelf)
