"""`holdfast sessions move`, `delete`, `prune` and `tag`."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import click

from holdfast import settings
from holdfast.audit.audit import Audit
from holdfast.audit.delete_sessions import delete_session, delete_unused, find_unused
from holdfast.audit.recovery import acquire_and_close
from holdfast.cli.find_session import find_session, short_id
from holdfast.cli.open_store import run_with_read_only_store, run_with_writable_store, store_file
from holdfast.cli.options import path_option
from holdfast.cli.output import confirm_or_abort, print_line
from holdfast.cli.sessions.describe import time_ago, with_titles
from holdfast.connect.log_files import LOG_FOLDER, remove_session_logs
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.plural import count
from holdfast.resolve.protected_paths import is_protected, paths_closed_to_tools
from holdfast.sandbox.container.kept_containers import find_kept_containers
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
        hold = acquire_and_close(tx, audit, session_id)  # raises if the session is in use
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
        return await with_titles(store, [await find_session(store, session) for session in sessions])

    found = {stored.context.session_id: stored for stored in run_with_read_only_store(path, find)}
    for session_id, stored in found.items():
        print_line(f"{short_id(session_id)}  {stored.title or '(no title)'}")
    if not yes:
        which = "this session" if len(found) == 1 else f"these {len(found)} sessions"
        confirm_or_abort(f"Delete {which} permanently?", action="delete")

    logs = store_file(path).parent / LOG_FOLDER

    async def delete_all(store: Store, audit: Audit) -> None:
        for session_id in found:
            await delete_session(store, audit, session_id)
            remove_session_logs(logs, session_id)

    run_with_writable_store(path, delete_all)
    _remove_containers(found, path)
    print_line(f"Deleted {count(len(found), 'session')}.")


@click.command()
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(0),
    metavar="DAYS",
    help="Delete sessions that were not used for this many days; 0: all closed sessions. Default: the setting sessions.keep_days.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@path_option
def prune(*, days: int | None, dry_run: bool, yes: bool, path: Path | None) -> None:
    """Delete sessions that were not used for a long time. Their audit records are kept.

    Open sessions are never deleted. To delete old sessions whenever Holdfast starts, set sessions.keep_days.

    \b
    Examples:
      holdfast sessions prune --older-than 90 --dry-run
      holdfast sessions prune --older-than 90
    """
    is_given = days is not None
    days = settings.load().sessions.keep_days if days is None else days
    if not days and not is_given:
        raise click.UsageError(
            "Say after how many days sessions are deleted: add --older-than, or set sessions.keep_days."
        )
    age = timedelta(days=days)

    async def find(store: Store) -> list[StoredSession]:
        return await with_titles(store, await find_unused(store, age))

    found = run_with_read_only_store(path, find)
    for stored in found:
        print_line(
            f"{short_id(stored.context.session_id)}  {time_ago(stored.updated)}  {stored.title or '(no title)'}"
        )
    if not found:
        print_line(f"Nothing to delete: no closed session was last used more than {days} days ago.", err=True)
        return
    if dry_run:
        print_line(f"Without --dry-run, {count(len(found), 'session')} would be deleted.", err=True)
        return
    if not yes:
        confirm_or_abort(f"Delete {count(len(found), 'session')} permanently?", action="delete")
    deleted = run_with_writable_store(path, lambda store, audit: delete_unused(store, audit, age))
    for session_id in deleted:
        remove_session_logs(store_file(path).parent / LOG_FOLDER, session_id)
    _remove_containers(deleted, path)
    print_line(f"Deleted {count(len(deleted), 'session')}.")


@click.command()
@click.argument("session", metavar="ID")
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Remove this tag. Can be repeated.")
@path_option
def tag(*, session: str, tags: tuple[str, ...], remove: tuple[str, ...], path: Path | None) -> None:
    """Add tags to a session, and remove tags. Without any, print its tags.

    \b
    Examples:
      holdfast sessions tag 3f2a release urgent
      holdfast sessions tag 3f2a --remove urgent
      holdfast sessions list --tag release
    """
    stored = run_with_read_only_store(path, lambda store: find_session(store, session))
    missing = sorted(set(remove) - {*stored.tags, *tags})
    if missing:
        raise click.UsageError(f"{short_id(stored.context.session_id)} has no tag {missing[0][:80]!r}.")
    if any(not name.strip() for name in tags):
        raise click.UsageError("A tag must not be empty.")
    if tags or remove:

        def change(tx: Tx, audit: Audit) -> StoredSession:
            hold = acquire_and_close(tx, audit, stored.context.session_id)  # raises if the session is in use
            before = tx.session(hold.session_id)
            assert before is not None
            kept = ({*before.tags} | {*tags}) - {*remove}
            changed = tx.change(hold, SessionChange(tags=tuple(sorted(kept))))
            tx.release(hold)
            return changed

        stored = run_with_writable_store(path, lambda store, audit: store.write(lambda tx: change(tx, audit)))
    print_line(f"{short_id(stored.context.session_id)}: {', '.join(stored.tags) or 'no tags'}")


def _remove_containers(session_ids: Iterable[str], path: Path | None) -> None:
    """Remove the containers that were kept for deleted sessions."""
    containers = find_kept_containers(settings.load().sandbox.engine, store_file(path).parent)
    if containers is not None and (problem := asyncio.run(containers.remove(session_ids))):
        print_line(f"Containers of deleted sessions could not be removed: {problem}", err=True)
