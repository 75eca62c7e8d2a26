"""Missing protections are listed as sentences."""

import sys

import pytest

from holdfast.sandbox.missing import missing_protections


@pytest.mark.promise("LNK-11")
def test_platform_without_supervisors_lists_missing_protections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    assert missing_protections() == (
        "Servers run in process groups: a server that leaves its group outlives its session.",
        "Servers outlive a host that is killed (SIGKILL): no process here can adopt and end them.",
        "This system has no sandbox of its own: confined servers need a container engine.",
    )
