"""Tests that need the Node packages of `peers/` are skipped if `make setup` could not install them; in CI they fail."""

import os
from pathlib import Path

PACKAGES = Path(__file__).parent.parent / "peers" / "node_modules"
STAMP = PACKAGES / ".setup.stamp"
CI_VARIABLE = "HOLDFAST_CI"
REASON = "the Node packages of peers/ are missing (make setup says why)"


def why_skipped(failure: str, *, is_installed: bool, is_ci: bool) -> str | None:
    """Why a test that failed counts as skipped: it needed a Node package, and there is none. None if it counts as failed."""
    is_about_peers = "peers/node_modules" in failure or "Node peers are missing" in failure
    return REASON if is_about_peers and not is_installed and not is_ci else None


def why_skipped_here(failure: str) -> str | None:
    """As `why_skipped`, for this checkout."""
    return why_skipped(failure, is_installed=STAMP.exists(), is_ci=bool(os.environ.get(CI_VARIABLE)))
