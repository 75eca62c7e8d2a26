"""Protections that a machine cannot provide are listed as sentences."""

import sys

import pytest

from holdfast.sandbox.limitations import list_limitations


@pytest.mark.promise("LNK-11")
def test_platform_without_subreapers_lists_its_limitations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    assert list_limitations() == (
        "Servers run in process groups: a server that leaves its group outlives its session.",
        "Servers outlive a host that is killed (SIGKILL): this platform has no child subreapers.",
        "Bubblewrap needs Linux: on this platform, confined servers need a container engine.",
    )
