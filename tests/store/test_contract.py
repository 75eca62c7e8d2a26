"""The contract tests, for every store."""

from functools import partial
from pathlib import Path

import pytest

from holdfast.store.memory import MemoryDatabase, MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.store_contract import OpenStore, StoreContract


@pytest.mark.promise("SES-07")
class TestSqliteStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return partial(SqliteStore, tmp_path / "holdfast.db")


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return partial(MemoryStore, MemoryDatabase())


class TestMemoryStoreThatRunsEveryWriteTwice(StoreContract):
    """Every function that is passed to `write` may run twice, including those of the store's own modules, such as the appender."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return partial(MemoryStore, MemoryDatabase(), run_twice=True)
