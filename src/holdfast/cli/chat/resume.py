"""Which session a chat goes on with."""

from dataclasses import replace
from pathlib import Path

from holdfast.cli.chat.chat import Plan
from holdfast.cli.named import find_session
from holdfast.cli.place import FILE
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store.query import OPERATOR, SessionQuery
from holdfast.store.rows import StoredSession
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store


async def resumed(plan: Plan, named: str, *, keep_folder: bool) -> Plan:
    """The plan to go on with the session of this id, in its own folder; or with the latest of the plan's folder."""
    async with SqliteStore(plan.settings.data_dir / FILE) as store:
        stored = await find_session(store, named) if named else await _latest(store, plan)
    opening = plan.opening
    if not keep_folder:
        opening = replace(opening, cwd=stored.context.cwd)
    if opening.cwd == stored.context.cwd:
        opening = replace(opening, roots=stored.context.roots[1:])
    return replace(plan, opening=opening, resume=stored.context.session_id, title=stored.title)


async def _latest(store: Store, plan: Plan) -> StoredSession:
    folder = _real(plan)
    page = await store.sessions(SessionQuery(reach=OPERATOR, cwd=folder))
    for stored in page.items:
        if stored.title:  # something was said in it
            return stored
    raise HoldfastError(
        codes.UNKNOWN_SESSION, f"There is no session in {folder} to go on with. Start one: holdfast chat"
    )


def _real(plan: Plan) -> str:
    return str(Path(plan.opening.cwd).resolve())
