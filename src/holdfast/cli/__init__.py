"""The commands of `holdfast`, each imported when it is called."""

from holdfast.cli.app import main

__all__ = ["main"]
