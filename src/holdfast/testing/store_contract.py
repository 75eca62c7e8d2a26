"""What every store must do, as tests to inherit: give `opener`, and pytest runs them on your store."""

from pathlib import Path

import pytest

from holdfast.testing.contract.events import Events
from holdfast.testing.contract.finding import Finding
from holdfast.testing.contract.given import Opener
from holdfast.testing.contract.holding import Holding
from holdfast.testing.contract.sessions import Sessions
from holdfast.testing.contract.writing import Writing

__all__ = ["Opener", "StoreContract"]


class StoreContract(Sessions, Events, Writing, Finding, Holding):
    """Inherit from this in a class whose name begins with `Test`, and override `opener`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        """The tests run on asyncio."""
        return "asyncio"

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        """Opens a store; each call opens one more on the same data, as another process would."""
        raise NotImplementedError("Override the fixture `opener` to give the store under test.")
