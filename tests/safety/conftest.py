"""What the attacks on the sandbox share with its own tests."""

from tests.sandbox.conftest import bwrap, keeper, root

__all__ = ["bwrap", "keeper", "root"]
