"""`holdfast store`: look after the file in which sessions are kept."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import click

from holdfast.audit.backup import backup as copy_store
from holdfast.audit.verify import verify_file
from holdfast.cli.group import Group
from holdfast.cli.leaving import terminated_gently
from holdfast.cli.output import check_folder
from holdfast.cli.place import database, exit_code, path_option
from holdfast.cli.table import plain
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store import upkeep


@click.group(cls=Group)
def store() -> None:
    """Check, copy and shrink the file in which sessions are kept."""


@store.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@path_option
def check(*, as_json: bool, path: Path | None) -> None:
    """Read the whole store and say what is wrong with it; nothing is changed.

    Exits with 0 when all is well, 1 when it is not, 2 when called wrongly, 3 when the store cannot be read.
    """
    with exit_code():
        file = database(path)
        report = upkeep.check(file)
        verdict = verify_file(file)
    if verdict is not None and not verdict.good:
        tampered = f"The audit was tampered with: {verdict.problem}"
        report = replace(report, problems=(*report.problems, tampered))
    if as_json:
        click.echo(json.dumps(asdict(report)))
    else:
        click.echo(
            f"{report.sessions} sessions, {report.events} events, {report.bytes} bytes, schema {report.schema}: "
            + ("all is well." if not report.problems else "damaged.")
        )
        for problem in report.problems:
            click.echo(f"- {plain(problem)}")
    if report.problems:
        raise click.exceptions.Exit(1)


@store.command()
@click.argument("copy", type=click.Path(path_type=Path))
@path_option
def backup(*, copy: Path, path: Path | None) -> None:
    """Copy the store to COPY, while it is in use; COPY must not exist.

    The audit's anchor is copied beside it, so that the copy can be verified on its own.
    """
    if not copy.name:
        raise HoldfastError(codes.FILE_TROUBLE, f"'{copy}' is a folder. Name the file to make.")
    check_folder(copy)
    with exit_code(), terminated_gently():
        copy_store(database(path), copy)
    click.echo(f"Copied to {copy}.")


@store.command()
@path_option
def vacuum(*, path: Path | None) -> None:
    """Write the store anew without the space that deleted sessions left."""
    with exit_code():
        before, after = upkeep.vacuum(database(path))
    click.echo(f"{before} bytes before, {after} bytes now.")
