"""Finds the session that a chat resumes."""

from dataclasses import replace
from pathlib import Path

from holdfast.cli.chat.own_chat import ChatOptions
from holdfast.cli.find_session import find_session, short_id
from holdfast.host.data_folder import DATABASE_FILE
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.lease import is_expired
from holdfast.store.open_store import open_read_only
from holdfast.store.query import SessionQuery, Visibility
from holdfast.store.store import Store
from holdfast.store.types import StoredSession


async def load_resume_options(options: ChatOptions, typed_id: str | None, *, keep_cwd: bool) -> ChatOptions:
    """Complete the options of a chat that resumes a session: the one with this id or, without an id, the latest of the folder.

    The folder is replaced with the session's own, unless `keep_cwd` is true or another process has the session open.
    """
    folder = str(Path(options.open_options.cwd).resolve())  # noqa: ASYNC240  the loop has nothing else to do
    async with open_read_only(options.settings.data_dir / DATABASE_FILE) as store:
        stored = (
            await find_session(store, typed_id)
            if typed_id
            else await _find_latest(store, folder, options.open_options.user_id or "")
        )
        lease = None if stored.lease is None or is_expired(stored.lease, store.now()) else stored.lease
    open_options = options.open_options
    if not keep_cwd and lease is None:
        _check_folder_exists(stored)
        open_options = replace(open_options, cwd=stored.context.cwd)
    return replace(
        options,
        open_options=open_options,
        resume=stored.context.session_id,
        title=stored.title,
        stored_roots=stored.context.roots[1:],
        lease=lease,
    )


def _check_folder_exists(stored: StoredSession) -> None:
    context = stored.context
    if not Path(context.cwd).is_dir():
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"The session's folder {context.cwd!r} no longer exists.",
            hint=f"If it was moved or renamed: holdfast sessions move {short_id(context.session_id)} FOLDER",
        )


async def _find_latest(store: Store, folder: str, user_id: str) -> StoredSession:
    query = SessionQuery(visibility=Visibility(user_id=user_id), cwd=folder)
    while True:
        page = await store.sessions(query)
        for stored in page.items:
            # Skip sessions without a prompt, which have no title, and sessions that an agent created.
            if stored.title and not stored.context.parent_session_id:
                return stored
        if page.cursor is None:
            raise HoldfastError(
                codes.UNKNOWN_SESSION,
                f"There is no session in {folder} to resume.",
                hint="Start one: holdfast chat",
            )
        query = replace(query, cursor=page.cursor)
