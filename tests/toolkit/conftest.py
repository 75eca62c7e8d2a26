"""Fixtures for the toolkit's tests."""

from collections.abc import Iterator

import pytest

from tests.toolkit.clients import TRANSPORTS_AND_ERAS, Client, Era, connect_client


@pytest.fixture(scope="module", params=TRANSPORTS_AND_ERAS, ids="-".join)
def notes(request: pytest.FixtureRequest) -> Iterator[Client]:
    """An anonymous client of the notes server, over each transport in each era."""
    transport_and_era: tuple[str, Era] = request.param
    with connect_client(transport_and_era, "tests.toolkit.notes_server") as connected:
        yield connected
