"""Names the file in errors of the operating system."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def name_file_in_errors(file: Path) -> Iterator[None]:
    """Name this file in each `OSError` of the block. A failed write names none, and a temporary file means nothing to the user."""
    try:
        yield
    except OSError as error:
        error.filename = str(file)
        raise
