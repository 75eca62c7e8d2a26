"""Which store a command works on, and how it ends when that cannot be read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.failure import tell
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

FILE = "holdfast.db"
CANNOT_READ = 3

F = TypeVar("F", bound=Callable[..., Any])


def path_option(command: F) -> F:
    """The option that names another store than the settings do."""
    return click.option(
        "--path",
        type=click.Path(path_type=Path),
        help="The store's file; otherwise the one in `data_dir`.",
    )(command)


def database(path: Path | None) -> Path:
    """The store's file."""
    if path is not None:
        return _named(path)
    from holdfast import settings
    from holdfast.store.database import told

    file = settings.load().data_dir / FILE
    with told(file):
        checked(file.parent)
    return file


def checked(data_dir: Path) -> Path:
    """The folder that everything is kept in, if it is one or can be made."""
    there = next((part for part in (data_dir, *data_dir.parents) if part.exists()), None)
    if there is not None and not there.is_dir():
        raise HoldfastError(
            codes.STORE_UNREADABLE,
            f"`data_dir` is '{data_dir}', and '{there}' is not a folder. Set it to a folder's path.",
        )
    return data_dir


def _named(path: Path) -> Path:
    if not path.name:
        raise HoldfastError(
            codes.STORE_UNREADABLE, f"'{path}' is a folder, not a store. Name the store's file."
        )
    return path


@contextmanager
def exit_code(code: int = CANNOT_READ) -> Iterator[None]:
    """End with this code where the store cannot be read or found, told like every failure."""
    try:
        yield
    except HoldfastError as error:
        if not error.code.name.startswith("STORE_") and error.code is not codes.BAD_SETTINGS:
            raise
        tell(error)
        raise click.exceptions.Exit(code) from None
