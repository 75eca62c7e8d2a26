"""`holdfast sessions move` and `delete`."""

from pathlib import Path

import click

from holdfast import settings
from holdfast.audit.audit import Audit
from holdfast.audit.recovery import recover_session
from holdfast.cli.find_session import find_session, short_id
from holdfast.cli.open_store import run_with_read_only_store, run_with_writable_store
from holdfast.cli.options import path_option
from holdfast.cli.output import confirm_or_abort, print_line
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.resolve.protected_paths import is_protected, paths_closed_to_tools
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
    stored = run_with_read_only_store(path, lambda store: find_session(store, session))
    session_id = stored.context.session_id
    roots = (cwd, *stored.context.roots[1:])

    def change(tx: Tx, audit: Audit) -> StoredSession:
        hold = recover_session(tx, audit, session_id)  # raises if the session is in use
        changed = tx.change(hold, SessionChange(cwd=cwd, roots=roots))
        tx.release(hold)
        return changed

    moved = run_with_writable_store(path, lambda store, audit: store.write(lambda tx: change(tx, audit)))
    print_line(f"{short_id(moved.context.session_id)} is now in {moved.context.cwd}.")


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

    found = {stored.context.session_id: stored for stored in run_with_read_only_store(path, find)}
    for session_id, stored in found.items():
        print_line(f"{short_id(session_id)}  {stored.title or '(no prompts)'}")
    if not yes:
        count = "this session" if len(found) == 1 else f"these {len(found)} sessions"
        confirm_or_abort(f"Delete {count} permanently?", action="delete")

    async def delete_all(store: Store, audit: Audit) -> None:
        for session_id in found:
            await store.write(lambda tx, session_id=session_id: _delete(tx, audit, session_id))

    run_with_writable_store(path, delete_all)
    print_line(f"Deleted {len(found)} session{'s' * (len(found) != 1)}.")


def _delete(tx: Tx, audit: Audit, session_id: SessionId) -> None:
    # This raises if the session is in use. It audits the interrupted calls before their events are deleted.
    tx.delete(recover_session(tx, audit, session_id))
