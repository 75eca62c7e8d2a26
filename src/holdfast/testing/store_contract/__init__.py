"""Tests that every store must pass: inherit `StoreContract` and override `open_store`."""

from pathlib import Path

import pytest

from holdfast.testing.store_contract.events import EventTests
from holdfast.testing.store_contract.factories import OpenStore
from holdfast.testing.store_contract.holds import HoldTests
from holdfast.testing.store_contract.inbox import InboxTests
from holdfast.testing.store_contract.queries import QueryTests
from holdfast.testing.store_contract.sessions import SessionTests
from holdfast.testing.store_contract.transactions import TransactionTests

__all__ = ["OpenStore", "StoreContract"]


class StoreContract(SessionTests, EventTests, TransactionTests, QueryTests, HoldTests, InboxTests):
    """Inherit from this in a class whose name starts with `Test`, and override `open_store`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        """Run the tests on asyncio."""
        return "asyncio"

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        """Return a function that opens a store, as `OpenStore` describes."""
        raise NotImplementedError("Override the fixture `open_store` to open the store under test.")
