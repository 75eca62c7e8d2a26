"""`make peers` runs every test with other people's clients and servers; `make test` leaves out those marked `matrix`."""

import os

import pytest

IS_WHOLE = os.environ.get("HOLDFAST_PEERS") == "all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [] if IS_WHOLE else [item for item in items if item.get_closest_marker("matrix")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
