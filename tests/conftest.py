"""Fixtures for all tests."""

import pytest

pytest.register_assert_rewrite("holdfast.testing.store_contract")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
