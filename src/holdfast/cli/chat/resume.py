"""Which session a chat goes on with."""

from dataclasses import replace
from pathlib import Path

from holdfast.acp.modes import stored_mode
from holdfast.cli.chat.chat import Plan
from holdfast.cli.named import find_session
from holdfast.cli.place import FILE
from holdfast.cli.reading import opened_to_read
from holdfast.cli.sessions.work import SHORT
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.query import OPERATOR, SessionQuery
from holdfast.store.rows import StoredSession
from holdfast.store.store import Store


async def resumed(plan: Plan, named: str, *, keep_folder: bool) -> Plan:
    """The plan to go on with the session of this id, in its own folder; or with the latest of the plan's folder."""
    async with opened_to_read(plan.settings.data_dir / FILE) as store:
        stored = await find_session(store, named) if named else await _latest(store, plan)
    opening = plan.opening
    if not keep_folder:
        _check_folder(stored)
        opening = replace(opening, cwd=stored.context.cwd)
    return replace(
        plan,
        opening=opening,
        left_in=stored_mode(stored.settings),
        resume=stored.context.session_id,
        title=stored.title,
        had=stored.context.roots[1:],
    )


def _check_folder(stored: StoredSession) -> None:
    context = stored.context
    if not Path(context.cwd).is_dir():
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"The session's folder {context.cwd!r} is not there any more. "
            f"If it was moved or renamed: holdfast sessions move {context.session_id[:SHORT]} FOLDER",
        )


async def _latest(store: Store, plan: Plan) -> StoredSession:
    folder = _real(plan)
    query = SessionQuery(reach=OPERATOR, cwd=folder)
    while True:
        page = await store.sessions(query)
        for stored in page.items:
            if stored.title:  # something was said in it
                return stored
        if page.cursor is None:
            raise HoldfastError(
                codes.UNKNOWN_SESSION,
                f"There is no session in {folder} to go on with. Start one: holdfast chat",
            )
        query = replace(query, cursor=page.cursor)


def _real(plan: Plan) -> str:
    return str(Path(plan.opening.cwd).resolve())
