"""A killed process loses no event that its editor received. `make soak-kill` runs more cycles."""

from pathlib import Path

import pytest

from tests.journeys.soak import SoakResult, soak


@pytest.mark.promise("STO-01", "STO-02", "STO-03")
def test_kill_during_a_turn_loses_no_published_event(home: Path):
    result = soak(home, cycles=4)

    assert result == SoakResult(
        cycles=4,
        published=result.published,
        lost=0,
        unpublished=result.unpublished,
        interrupted=3,
        problems=[],
    )
    assert result.published > 100


@pytest.mark.slow
def test_control_publishing_before_storing_loses_events(home: Path):
    assert soak(home, cycles=30, publish_first=True).lost > 0
