"""Find the session that a chat resumes."""

from dataclasses import replace
from pathlib import Path

from holdfast.cli.chat.chat import ChatOptions
from holdfast.cli.find_session import find_session
from holdfast.cli.open_store import STORE_FILE, open_read_only
from holdfast.cli.sessions.describe import SHORT_ID
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.session.permission import stored_mode
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.store import Store
from holdfast.store.types import StoredSession


async def load_resume_options(options: ChatOptions, session_id: str, *, keep_folder: bool) -> ChatOptions:
    """The options to resume the session with this id or, if the id is empty, the latest session of this folder.

    The chat runs in the session's folder or, with `keep_folder`, in that of `options`.
    """
    folder = str(Path(options.open_options.cwd).resolve())  # noqa: ASYNC240  the loop has nothing else to do
    async with open_read_only(options.settings.data_dir / STORE_FILE) as store:
        stored = await find_session(store, session_id) if session_id else await _latest(store, folder)
    open_options = options.open_options
    if not keep_folder:
        _check_folder(stored)
        open_options = replace(open_options, cwd=stored.context.cwd)
    return replace(
        options,
        open_options=open_options,
        stored_mode=stored_mode(stored.settings),
        resume=stored.context.session_id,
        title=stored.title,
        stored_roots=stored.context.roots[1:],
    )


def _check_folder(stored: StoredSession) -> None:
    context = stored.context
    if not Path(context.cwd).is_dir():
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"The session's folder {context.cwd!r} no longer exists.",
            hint=f"If it was moved or renamed: holdfast sessions move {context.session_id[:SHORT_ID]} FOLDER",
        )


async def _latest(store: Store, folder: str) -> StoredSession:
    query = SessionQuery(visibility=ALL_SESSIONS, cwd=folder)
    while True:
        page = await store.sessions(query)
        for stored in page.items:
            if stored.title:  # a session has no title before its first prompt
                return stored
        if page.cursor is None:
            raise HoldfastError(
                codes.UNKNOWN_SESSION,
                f"There is no session in {folder} to resume.",
                hint="Start one: holdfast chat",
            )
        query = replace(query, cursor=page.cursor)
