"""A home for Holdfast's data, and a folder to work in."""

from pathlib import Path

import pytest

from tests.sandbox.conftest import bwrap

__all__ = ["bwrap"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder.resolve()
