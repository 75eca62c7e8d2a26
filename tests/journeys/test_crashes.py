"""A killed process loses nothing that its editor was told. `make soak-kill` does more of it."""

from pathlib import Path

import pytest

from tests.journeys.soak import Toll, soak


@pytest.mark.promise("STO-01", "STO-02", "STO-03")
def test_killed_in_the_middle_of_turns_nothing_that_was_told_is_lost_and_the_session_loads(home: Path):
    toll = soak(home, cycles=10)

    assert toll == Toll(cycles=10, told=toll.told, lost=0, untold=toll.untold, interrupted=9, problems=[])
    assert toll.told > 1000


def test_control_a_record_that_tells_before_it_stores_loses(home: Path):
    assert soak(home, cycles=10, early=True).lost > 0
