"""`holdfast store`: check, back up and shrink the file in which sessions are stored."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType

import click

from holdfast.audit.verify_file import verify_file
from holdfast.cli.click_groups import FullHelpGroup
from holdfast.cli.open_store import exit_if_unreadable, store_file
from holdfast.cli.options import json_option, path_option
from holdfast.cli.output import check_parent_folder, print_json, print_line
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.plural import count
from holdfast.store import maintenance


@click.group(cls=FullHelpGroup)
def store() -> None:
    """Check, back up and shrink the file in which sessions are stored.

    \b
    Examples:
      holdfast store check
      holdfast store backup ~/holdfast-backup.db
    """


@store.command()
@json_option
@path_option
def check(*, as_json: bool, path: Path | None) -> None:
    """Read the whole store and report problems, without changing anything.

    Exit codes: 0 intact, 1 damaged or tampered with, 2 invalid usage, 3 the store cannot be read.

    \b
    Example:
      holdfast store check
    """
    with exit_if_unreadable():
        file = store_file(path)
        report = maintenance.check(file)
        try:
            verdict = verify_file(file)
        except HoldfastError:
            if not report.problems:
                raise
            verdict = None
    if verdict is not None and not verdict.is_intact:
        report = replace(report, problems=(*report.problems, verdict.summary))
    if as_json:
        print_json(asdict(report))
    else:
        print_line(
            f"{count(report.sessions, 'session')}, {count(report.events, 'event')}, {report.bytes} bytes, schema {report.schema}: "
            + ("no problems found." if not report.problems else "problems found:")
        )
        for problem in report.problems:
            print_line(f"- {problem}")
    if report.problems:
        raise click.exceptions.Exit(1)


@store.command()
@click.argument("copy", metavar="FILE", type=click.Path(path_type=Path))
@path_option
def backup(*, copy: Path, path: Path | None) -> None:
    """Copy the store to a new file, even while it is in use.

    FILE must not exist. The audit's anchor is copied too, so that the copy can be verified on its own.

    \b
    Example:
      holdfast store backup ~/holdfast-backup.db
    """
    if not copy.name:
        raise HoldfastError(codes.FILE_ERROR, f"'{copy}' is a folder.", hint="Give the path of a new file.")
    check_parent_folder(copy)
    with exit_if_unreadable(), _exit_on_signals():
        maintenance.backup(store_file(path), copy)
    print_line(f"Copied to {copy}.")


@store.command()
@path_option
def vacuum(*, path: Path | None) -> None:
    """Rewrite the store to free the space that deleted sessions used.

    If another process is reading the store, the space is freed when no process has the store open.

    \b
    Example:
      holdfast store vacuum
    """
    with exit_if_unreadable():
        report = maintenance.vacuum(store_file(path))
    print_line(f"{report.before} bytes before, {report.after} bytes after.")
    if report.is_in_use:
        print_line(
            "Another process was reading the store, so the new content is still in a second file next to it."
            " The space is freed when no process has the store open."
        )


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that an unfinished copy is removed."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
