"""How long stored sessions are kept: deletes them, together with the logs and the kept containers of their servers."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from holdfast.audit.audit import Audit
from holdfast.audit.delete_sessions import delete_session, delete_unused
from holdfast.audit.recovery import close_abandoned_sessions
from holdfast.connect.server_log import ServerLogs
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId, parse_session_id
from holdfast.model.private_files import make_private_folder
from holdfast.model.visible_text import to_line
from holdfast.sandbox.container.kept_containers import KeptContainers
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.store import Store

log = logging.getLogger(__name__)

_POSTPONED_FILE = "deletion-postponed"
_POSTPONED_FOR = timedelta(days=1)


class Retention:
    """Deletes the stored sessions of one host."""

    def __init__(
        self,
        store: Store,
        audit: Audit,
        server_logs: ServerLogs,
        data_dir: Path,
        containers: KeptContainers | None = None,
    ) -> None:
        self._started_at = store.now()
        self._postponed_file = data_dir / _POSTPONED_FILE
        self._store = store
        self._audit = audit
        self._server_logs = server_logs
        self._containers = containers

    async def clean_up(self, keep_days: int) -> None:
        """Close the sessions of hosts that ended without closing them, and delete the sessions that were not used for `keep_days`.

        No session is deleted if `keep_days` is 0, or if the clock may be wrong (`_postpone_if_clock_may_be_wrong`).
        """
        await close_abandoned_sessions(self._store, self._audit)
        await self._remove_containers_of_deleted_sessions()
        if not keep_days or await self._postpone_if_clock_may_be_wrong(timedelta(days=keep_days)):
            return
        if deleted := await self.delete_unused(timedelta(days=keep_days)):
            log.info("unused sessions deleted", extra={"sessions": deleted, "keep_days": keep_days})

    async def _postpone_if_clock_may_be_wrong(self, age: timedelta) -> bool:
        """Postpone the deletion if all sessions would be deleted at once, because the clock may be wrong. Return whether it is postponed.

        When Holdfast starts a day later, the sessions are deleted, unless the clock has been set back.
        """
        now, since = self._started_at, _read_time(self._postponed_file)
        if since is not None and since <= now < since + _POSTPONED_FOR:
            return True
        with suppress(OSError):
            self._postponed_file.unlink(missing_ok=True)
        if since is not None and now >= since:
            return False
        query = SessionQuery(visibility=ALL_SESSIONS, updated_before=now, limit=1)
        newest = (await self._store.sessions(query)).items
        if not newest or newest[0].updated >= now - age:
            return False
        log.warning(
            "All stored sessions are older than sessions.keep_days (%d days). In case the clock is wrong, they are not deleted "
            "before tomorrow. To delete them now: holdfast sessions prune",
            age.days,
        )
        with suppress(OSError):  # if it cannot be written, the next start postpones again
            make_private_folder(self._postponed_file.parent)
            self._postponed_file.write_text(now.isoformat(), encoding="ascii")
        return True

    async def delete(self, session_id: SessionId) -> None:
        """Delete a session. Raises SESSION_HELD if it is open."""
        await delete_session(self._store, self._audit, session_id)
        await self._server_logs.remove(session_id)
        await self._remove_containers([session_id])

    async def delete_unused(self, age: timedelta) -> int:
        """Delete the sessions that were not used for this long. Return how many."""
        deleted = await delete_unused(self._store, self._audit, age)
        for session_id in deleted:
            await self._server_logs.remove(session_id)
        await self._remove_containers(deleted)
        return len(deleted)

    async def _remove_containers_of_deleted_sessions(self) -> None:
        """Remove the containers that could not be removed with their session, for example because the engine did not answer."""
        if self._containers is None:
            return
        try:
            # Listed before the store is read: the session of each listed container was stored earlier.
            with_containers = await self._containers.sessions()
        except OSError:  # includes TimeoutError
            return
        deleted = [
            session_id for session_id in sorted(with_containers) if not await self._is_stored(session_id)
        ]
        await self._remove_containers(deleted)

    async def _is_stored(self, session_id: str) -> bool:
        try:
            return await self._store.session(parse_session_id(session_id)) is not None
        except HoldfastError:
            return True  # the store cannot be read now: keep the session's containers

    async def _remove_containers(self, session_ids: Iterable[str]) -> None:
        if self._containers is not None and (problem := await self._containers.remove(session_ids)):
            log.warning("containers of deleted sessions could not be removed: %s", to_line(problem))


def _read_time(file: Path) -> datetime | None:
    try:
        moment = datetime.fromisoformat(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None
