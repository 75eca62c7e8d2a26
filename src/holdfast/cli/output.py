"""Where a command writes what it exports: standard output, or a file that it makes whole or not at all."""

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.model import codes
from holdfast.model.errors import HoldfastError

STANDARD = Path("-")

F = TypeVar("F", bound=Callable[..., Any])


def output_option(command: F) -> F:
    """The option that names a file to write to."""
    return click.option(
        "--output",
        type=click.Path(path_type=Path),
        help="A file to make; otherwise, or with -, standard output.",
    )(command)


def write_lines(output: Path | None, lines: Iterable[str]) -> None:
    """Write lines; a file that cannot be written to its end is not left behind."""
    if output is None or output == STANDARD:
        for line in lines:
            click.echo(line)
        return
    check_folder(output)
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise HoldfastError(codes.FILE_EXISTS, f"'{output}' exists already. Nothing was changed.") from None
    except OSError as error:
        raise _cannot_be_written(output, error) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        output.unlink(missing_ok=True)
        raise _cannot_be_written(output, error) from None
    except BaseException:
        output.unlink(missing_ok=True)
        raise


def check_folder(output: Path) -> None:
    """A file can be made only where there is a folder."""
    folder = output.parent
    if folder.is_dir():
        return
    what = f"'{folder}' is a file, not a folder" if folder.exists() else f"There is no folder '{folder}'"
    raise HoldfastError(
        codes.FILE_TROUBLE, f"{what}: '{output}' cannot be written. Make the folder, or name another one."
    )


def _cannot_be_written(output: Path, error: OSError) -> HoldfastError:
    reason = (error.strerror or type(error).__name__).lower()
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    fix = "Free some space, then try again." if full else "Name another file."
    return HoldfastError(
        codes.FILE_TROUBLE, f"'{output}' cannot be written: {reason}. Nothing was left behind. {fix}"
    )
