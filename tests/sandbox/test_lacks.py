"""What a platform cannot give is said in sentences."""

import sys

import pytest

from holdfast.sandbox.lacks import lacks


@pytest.mark.promise("LNK-11")
def test_a_platform_without_wardens_says_what_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    assert lacks() == (
        "Servers run in process groups: one that leaves its group outlives its session.",
        "Servers outlive a host that is killed (SIGKILL): nothing here can adopt and end them.",
        "There is no sandbox of the system's own: confined servers need a container engine.",
    )
