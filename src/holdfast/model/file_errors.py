"""Puts the path of a file into errors of the operating system."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def name_file_in_errors(file: Path) -> Iterator[None]:
    """Name this file in each `OSError` of the block: the error of a write names no file, and other errors may name a temporary file."""
    try:
        yield
    except OSError as error:
        error.filename = str(file)
        raise
