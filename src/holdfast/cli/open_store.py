"""Opens the store for a command, to read or to change it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast import settings
from holdfast.audit.argument_hash import ArgumentHasher
from holdfast.audit.audit import Audit
from holdfast.cli.output import print_error
from holdfast.host.data_folder import DATABASE_FILE, KEYS_FOLDER, check_data_folder
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.errors import translate_file_errors
from holdfast.store.open_store import open_read_only, open_store
from holdfast.store.store import Store

_EXIT_UNREADABLE = 3

T = TypeVar("T")


def store_file(path: Path | None) -> Path:
    """Return the store's file: `path` or, if it is None, the file in `data_dir`."""
    if path is not None:
        if not path.name:
            raise HoldfastError(
                codes.STORE_UNREADABLE,
                f"'{path}' is a folder, not a store.",
                hint="Give the path of the store's file.",
            )
        return path
    file = settings.load().data_dir / DATABASE_FILE
    with translate_file_errors(file):
        check_data_folder(file.parent)
    return file


@contextmanager
def exit_if_unreadable() -> Iterator[None]:
    """If the store or the settings cannot be read, print the error and exit with the code 3."""
    try:
        yield
    except HoldfastError as error:
        if not error.code.name.startswith("STORE_") and error.code is not codes.BAD_SETTINGS:
            raise
        print_error(error)
        raise click.exceptions.Exit(_EXIT_UNREADABLE) from None


def run_with_writable_store(
    path: Path | None, work: Callable[[Store, Audit], Coroutine[Any, Any, T]], *, create: bool = False
) -> T:
    """Open the store and its audit, and run a function that changes them. With `create`, a missing store is created."""
    file = store_file(path)
    if not create and not file.is_file():
        raise HoldfastError(codes.STORE_UNREADABLE, f"There is no store at '{file}'.")

    async def run() -> T:
        hasher = ArgumentHasher(file.parent / KEYS_FOLDER)
        async with open_store(file) as store, Audit(store, hash_arguments=hasher) as audit:
            return await work(store, audit)

    return asyncio.run(run())


def run_with_read_only_store(path: Path | None, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Open the store for reading, and run a function with it. A file that the user names with `--path` is never changed."""
    file = store_file(path)

    async def run() -> T:
        is_given = path is not None
        async with open_read_only(file, must_exist=is_given, keep_unchanged=is_given) as store:
            return await work(store)

    return asyncio.run(run())
