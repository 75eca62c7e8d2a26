"""What the tests of the toolkit share."""

from collections.abc import Iterator

import pytest

from tests.toolkit.clients import WAYS, Client, Era, client


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def notes(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of the notes server, over each transport in each era; nobody vouches for it."""
    way: tuple[str, Era] = request.param
    with client(way, "tests.toolkit.notes_server") as connected:
        yield connected
