"""Apply changes of the configuration to live sessions of MCP clients: servers, logins, approvals, workspaces, permission rules.

Sessions of other front ends get the changes when they are opened again.
"""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from weakref import WeakKeyDictionary

from holdfast import settings as settings_module
from holdfast.connect.http.login_store import LOGIN_FOLDER
from holdfast.host.admission import Admission
from holdfast.host.join import lower_mode_for
from holdfast.host.live_sessions import LiveSessions
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.permission import DoorKind
from holdfast.model.trust import lowest_trust
from holdfast.resolve.approval_store import answers_digest
from holdfast.resolve.load import PROJECT_FILE
from holdfast.session.session import Session
from holdfast.settings import Settings
from holdfast.store.store import Store
from holdfast.workspaces.registry import WORKSPACES_FOLDER

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
_MAX_SHARED = 16

ConfigVersion = tuple[object, str]
"""The versions of the files, and a digest of the answers about servers and tools."""


class ConfigWatch:
    """Compares the configuration with the one that was last applied to each session."""

    def __init__(self, settings: Settings, admission: Admission, store: Store, live: LiveSessions) -> None:
        self._settings = settings
        self._admission = admission
        self._store = store
        self._live = live
        self._versions: WeakKeyDictionary[Session, ConfigVersion] = WeakKeyDictionary()
        self._warned: WeakKeyDictionary[Session, str] = WeakKeyDictionary()
        """What was last reported about a session: a failure that is tried again every second is reported once."""
        self._shared: dict[ConfigVersion, ConfigVersion] = {}
        """Equal versions of several sessions are one object, to save memory."""
        self._settings_version = _file_versions([settings.file])

    async def version(self, cwd: str | Path) -> ConfigVersion:
        """A value that changes whenever a file or an approval changes that affects sessions in this folder."""
        servers = self._settings.servers
        files = (
            servers.host_file,
            servers.user_file,
            Path(cwd) / PROJECT_FILE,
            self._settings.file,
            self._settings.data_dir / LOGIN_FOLDER,
        )
        answers = await self._store.read(answers_digest)
        workspaces = self._settings.data_dir / WORKSPACES_FOLDER
        return (await run_with_file_timeout(_versions_with, files, workspaces, path=str(cwd)), answers)

    def follow(self, session: Session, version: ConfigVersion) -> None:
        """Apply later changes to this session. `version` was read before the session's servers were resolved."""
        self._versions[session] = self._shared.setdefault(version, version)
        if len(self._shared) > _MAX_SHARED:
            del self._shared[next(iter(self._shared))]

    async def run(self) -> None:
        """Check until cancelled."""
        async with asyncio.TaskGroup() as updates:
            while True:
                await asyncio.sleep(CHECK_SECONDS)
                if self._versions:
                    await self._check(updates)

    async def _check(self, updates: asyncio.TaskGroup) -> None:
        """Start to apply what has changed to every session that it affects.

        No session waits for another one, because a server may be slow to start or to end.
        """
        versions: dict[str, ConfigVersion] = {}  # by folder
        for session, applied in [*self._versions.items()]:
            if session.is_closing:
                continue
            cwd = session.context.cwd
            try:
                if cwd not in versions:
                    versions[cwd] = await self.version(cwd)
            except HoldfastError as error:  # a busy store, or a folder that does not answer
                self._warn(session, error.message)
                continue
            version = versions[cwd]
            if version != applied:
                self.follow(session, version)
                updates.create_task(self._apply(session, applied, screen_again=version[1] != applied[1]))

    async def _apply(self, session: Session, before: ConfigVersion, *, screen_again: bool) -> None:
        """Apply the configuration to a session. If that fails, it is tried again at the next check.

        `before` is the version that was applied last. `screen_again`: whether tools may have been approved or revoked.
        """
        try:
            self._read_rules()
        except HoldfastError as error:  # the rules stay as they are, and everything else is applied
            self._warn(session, error.message)
        try:
            await self._update(session, screen_again=screen_again)
        except Exception as error:
            if session.is_closing:
                return
            self.follow(session, before)
            if isinstance(error, HoldfastError):  # an invalid file, or a store that is busy for a while
                self._warn(session, error.message)
            else:
                log.exception("could not apply a changed configuration to a session")
        else:
            self._warned.pop(session, None)

    def _warn(self, session: Session, reason: str) -> None:
        if not session.is_closing and self._warned.get(session) != reason:
            self._warned[session] = reason
            log.warning(
                "could not apply a changed configuration to a session",
                extra={"session": session.context.session_id, "reason": reason},
            )

    def _read_rules(self) -> None:
        """Read the permission rules again if the settings file has changed."""
        version = _file_versions([self._settings.file])
        if version != self._settings_version:
            self._admission.set_rules(settings_module.load(self._settings.file).permission)
            self._settings_version = version

    async def _update(self, session: Session, *, screen_again: bool) -> None:
        plan = await self._admission.plan(self._live.options_of(session))
        session.permission.rules = plan.rules
        await lower_mode_for(session, DoorKind.GATEWAY, plan.rules)
        trust = session.context.trust_level
        if lowest_trust(plan.context.trust_level, trust) is not trust:
            await session.lower_trust()
        await session.update_servers(screen_again=screen_again)


def _versions_with(files: Iterable[Path], folder: Path) -> tuple[object, ...]:
    """The versions of these files, of a folder, and of the files in the folder, because the folder's version does not show a change in place."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        entries = []
    return (*_file_versions((*files, folder)), *entries, *_file_versions(entries))


def _file_versions(files: Iterable[Path]) -> tuple[object, ...]:
    versions: list[object] = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            versions.append(None)
        else:
            versions.append((status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size))
    return tuple(versions)
