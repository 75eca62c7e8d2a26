"""Change what is kept about sessions."""

import sys
from pathlib import Path

import click

from holdfast import settings
from holdfast.audit.abandoned import settle
from holdfast.audit.audit import Audit
from holdfast.cli.named import find_session
from holdfast.cli.place import path_option
from holdfast.cli.reading import with_reading
from holdfast.cli.sessions.work import SHORT, with_store
from holdfast.cli.table import plain
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.resolve.own import is_own, own_places
from holdfast.store.rows import SessionChange, StoredSession
from holdfast.store.store import Store, Tx


@click.command()
@click.argument("session", metavar="ID")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@path_option
def move(*, session: str, folder: Path, path: Path | None) -> None:
    """Say that a session's folder is elsewhere now.

    For a project that was moved or renamed: the session is taken up again in FOLDER. No file is touched.
    """
    cwd = str(folder.resolve())
    if is_own(cwd, own_places(settings.load())):
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"'{cwd}' is Holdfast's own, and no session works in it. Name another folder."
        )
    stored = with_reading(path, lambda store: find_session(store, session))
    session_id = stored.context.session_id
    roots = (cwd, *stored.context.roots[1:])

    def changed(tx: Tx, audit: Audit) -> StoredSession:
        settle(tx, audit, session_id)  # not while somebody works in it
        return tx.change(session_id, SessionChange(cwd=cwd, roots=roots))

    moved = with_store(path, lambda store, audit: store.write(lambda tx: changed(tx, audit)))
    click.echo(f"{moved.context.session_id[:SHORT]} is in {moved.context.cwd} now.")


@click.command()
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@path_option
def delete(*, sessions: tuple[str, ...], yes: bool, path: Path | None) -> None:
    """Forget sessions; the audit of what they did stays."""

    async def find(store: Store) -> list[StoredSession]:
        return [await find_session(store, session) for session in sessions]

    found = {stored.context.session_id: stored for stored in with_reading(path, find)}
    for session_id, stored in found.items():
        click.echo(f"{session_id[:SHORT]}  {plain(stored.title) or '(nothing was said)'}")
    if not yes:
        _confirm(f"Forget {'it' if len(found) == 1 else f'these {len(found)}'} for good?")

    async def forget(store: Store, audit: Audit) -> None:
        for session_id in found:
            await store.write(lambda tx, session_id=session_id: _forget(tx, audit, session_id))

    with_store(path, forget)
    click.echo(f"Forgotten: {len(found)}.")


def _confirm(question: str) -> None:
    try:
        agreed = click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise HoldfastError(
            codes.BAD_ARGUMENT, "Nobody is here to be asked. To forget without being asked, add --yes."
        ) from None
    if not agreed:
        raise click.Abort


def _forget(tx: Tx, audit: Audit, session_id: SessionId) -> None:
    settle(
        tx, audit, session_id
    )  # not while somebody works in it; with its events would go what is known of it
    tx.delete(session_id)
