"""Which store a command works on, and how it ends when that cannot be read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

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
        return path
    from holdfast import settings

    return settings.load().data_dir / FILE


@contextmanager
def exit_code(code: int = CANNOT_READ) -> Iterator[None]:
    """End with this code where the store cannot be read, told like every failure."""
    try:
        yield
    except HoldfastError as error:
        click.echo(f"Error: {error}", err=True)
        click.echo(f"Hint: {error.code.hint}", err=True)
        raise click.exceptions.Exit(code) from None
