"""`holdfast sessions move` and `delete`."""

import sys
from pathlib import Path

import click

from holdfast import settings
from holdfast.audit.audit import Audit
from holdfast.audit.recovery import recover_session
from holdfast.cli.find_session import find_session
from holdfast.cli.open_store import path_option, run_reading, run_writing
from holdfast.cli.output import confirm, print_line
from holdfast.cli.sessions.describe import SHORT_ID
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.resolve.protected import is_protected, paths_closed_to_tools
from holdfast.store.store import Store, Tx
from holdfast.store.types import SessionChange, StoredSession


@click.command()
@click.argument("session", metavar="ID")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@path_option
def move(*, session: str, folder: Path, path: Path | None) -> None:
    """Change the folder of a session, after its project was moved.

    The session can then be resumed in FOLDER. No files are moved.

    \b
    Example:
      holdfast sessions move 3f2a ~/projects/blog
    """
    cwd = str(folder.resolve())
    if is_protected(cwd, paths_closed_to_tools(settings.load())):
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"'{cwd}' belongs to Holdfast, and no session may use it.",
            hint="Choose another folder.",
        )
    stored = run_reading(path, lambda store: find_session(store, session))
    session_id = stored.context.session_id
    roots = (cwd, *stored.context.roots[1:])

    def change(tx: Tx, audit: Audit) -> StoredSession:
        recover_session(tx, audit, session_id)  # raises if the session is in use
        return tx.change(session_id, SessionChange(cwd=cwd, roots=roots))

    moved = run_writing(path, lambda store, audit: store.write(lambda tx: change(tx, audit)))
    print_line(f"{moved.context.session_id[:SHORT_ID]} is now in {moved.context.cwd}.")


@click.command()
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@path_option
def delete(*, sessions: tuple[str, ...], yes: bool, path: Path | None) -> None:
    """Delete sessions; their audit records are kept.

    \b
    Example:
      holdfast sessions delete 3f2a 9c41
    """

    async def find(store: Store) -> list[StoredSession]:
        return [await find_session(store, session) for session in sessions]

    found = {stored.context.session_id: stored for stored in run_reading(path, find)}
    for session_id, stored in found.items():
        print_line(f"{session_id[:SHORT_ID]}  {stored.title or '(no prompts)'}")
    if not yes:
        _confirm(
            f"Delete {'this session' if len(found) == 1 else f'these {len(found)} sessions'} permanently?"
        )

    async def delete_all(store: Store, audit: Audit) -> None:
        for session_id in found:
            await store.write(lambda tx, session_id=session_id: _delete(tx, audit, session_id))

    run_writing(path, delete_all)
    print_line(f"Deleted {len(found)} session{'s' * (len(found) != 1)}.")


def _confirm(question: str) -> None:
    try:
        agreed = confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        print_line(err=True)
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            "Cannot ask for confirmation without a terminal.",
            hint="Add --yes to delete without confirmation.",
        ) from None
    if not agreed:
        raise click.Abort


def _delete(tx: Tx, audit: Audit, session_id: SessionId) -> None:
    # Raises if the session is in use. Audits interrupted calls, whose events are deleted below.
    recover_session(tx, audit, session_id)
    tx.delete(session_id)
