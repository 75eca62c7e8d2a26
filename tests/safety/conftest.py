"""Fixtures shared with the sandbox's own tests."""

from tests.sandbox.conftest import bwrap, keeper, open_folder, root

__all__ = ["bwrap", "keeper", "open_folder", "root"]
