"""What every test may use."""

import pytest

pytest.register_assert_rewrite("holdfast.testing.contract")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
