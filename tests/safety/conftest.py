"""Fixtures shared with the sandbox's own tests."""

from tests.sandbox.conftest import bwrap, keeper, root

__all__ = ["bwrap", "keeper", "root"]
