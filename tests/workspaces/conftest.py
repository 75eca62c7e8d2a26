"""A registry and folders to register."""

from pathlib import Path

import pytest

from holdfast.workspaces import Registry


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def registry(data: Path) -> Registry:
    return Registry(data / "workspaces")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "My Project"
    folder.mkdir()
    return folder
