"""Find the secrets in Holdfast's own files (keys, saved logins, lists of servers, workspaces), so that they are masked in results.

A tool with the user's rights can read these files, and its result is stored. Another process may have changed them since
the session was opened. So they are checked before a result is stored, and read again if they have changed.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from os import F_OK, access, fsdecode, fsencode, stat
from pathlib import Path

from holdfast.audit.argument_hash import audit_key_secrets
from holdfast.connect.http.login_store import LOGIN_FOLDER, saved_credentials
from holdfast.host.data_folder import KEYS_FOLDER
from holdfast.masking.configured_secrets import secrets_in_json, secrets_in_mapping
from holdfast.masking.mask import Mask
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.model.errors import HoldfastError
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.server import Source
from holdfast.resolve.load import load_file
from holdfast.settings import Settings
from holdfast.token.key_file import secrets_in_key_folder
from holdfast.workspaces.registry import WORKSPACES_FOLDER, Registry

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.005
"""For short results, the files are checked again after this time at the earliest, because each check delays a call."""
SHORT_RESULT_BYTES = 64
"""A longer result may contain one of the files, so they are checked before it is stored."""
_RETRY_SECONDS = 60.0  # how long the files are not read after a file system did not respond

FileVersion = tuple[int, ...] | None
"""Values from `stat` that change when a file or folder changes; None if the file or folder does not exist."""


class SecretFiles:
    """The files of one host that contain secrets."""

    def __init__(self, settings: Settings, registry: Registry, obtained: ObtainedSecrets) -> None:
        data, servers = settings.data_dir, settings.servers
        self._logins = data / LOGIN_FOLDER
        # The paths are bytes: each system call would encode a text again.
        self._readers: dict[bytes, Callable[[], Iterable[str]]] = {
            fsencode(servers.host_file): lambda: _secrets_in_list(Source.OPERATOR, servers.host_file),
            fsencode(servers.user_file): lambda: _secrets_in_list(Source.USER, servers.user_file),
            fsencode(data / KEYS_FOLDER): lambda: _secrets_in_keys(data / KEYS_FOLDER),
            fsencode(data / WORKSPACES_FOLDER): lambda: _secrets_in_workspaces(registry),
        }
        """By path: reads the secrets in this file or folder."""
        self._obtained = obtained
        self._versions: dict[bytes, FileVersion] = dict.fromkeys((*self._readers, fsencode(self._logins)))
        """By path: the version of each file or folder when it was read. A folder changes when one of its files is replaced."""
        self._next_check = self._next_read = 0.0
        self._is_checked = False
        """Whether the files were checked in this iteration of the event loop."""
        self._reading = asyncio.Lock()

    async def mask_changed(self, result_size: int, *, is_only_call: bool = False) -> None:
        """Mask the secrets in all files that have changed since they were read, before a result of this size is stored.

        With `is_only_call`, no other call of the host is waiting for its result, so no other call can share this check.
        """
        # Results that were received before the last check share it: their tasks run before `_forget_check`.
        if self._is_checked or (result_size <= SHORT_RESULT_BYTES and time.monotonic() < self._next_check):
            return
        if not self._reading.locked() and not self._find_changed():
            self._next_check = time.monotonic() + CHECK_SECONDS
            if not is_only_call:  # a callback would delay the thread that writes the end of the call
                self._is_checked = True
                asyncio.get_running_loop().call_soon(self._forget_check)
            return
        await self.read_changed()

    def _forget_check(self) -> None:
        self._is_checked = False

    async def read_changed(self) -> None:
        """Read the files that have changed, and mask their secrets."""
        async with self._reading:
            changed = self._find_changed()
            if not changed or time.monotonic() < self._next_read:
                return
            try:
                by_path, logins = await run_with_file_timeout(self._read, changed, path=str(self._logins))
            except HoldfastError as error:
                log.warning("the secrets in changed files are not masked", extra={"reason": error.message})
                self._next_read = time.monotonic() + _RETRY_SECONDS
                return
            for path, secrets in by_path.items():
                self._obtained.set_in_file(fsdecode(path), secrets)
            for file, tokens in logins:
                self._obtained.add_credentials(file, tokens)
            # The versions from before the files were read: what was written after that is read the next time.
            self._versions |= changed

    def _find_changed(self) -> dict[bytes, FileVersion]:
        """The files that have changed, with their versions."""
        changed: dict[bytes, FileVersion] = {}
        # Inline, without a function for each file, because every tool call waits for this loop.
        for path, known in self._versions.items():
            if known is None and not access(path, F_OK):  # fast for a file that does not exist
                continue
            try:
                status = stat(path)  # noqa: PTH116 - a `Path` is slower
                version = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            except OSError:
                version = None
            if version != known:
                changed[path] = version
        return changed

    def _read(
        self, changed: Iterable[bytes]
    ) -> tuple[dict[bytes, tuple[str, ...]], list[tuple[Path, list[str]]]]:
        """The secrets in these files, by path; and those in each saved login, if the folder of logins has changed."""
        by_path = {path: Mask.of(self._readers[path]()).secrets for path in changed if path in self._readers}
        return by_path, [*saved_credentials(self._logins)] if fsencode(self._logins) in changed else []


def _secrets_in_list(source: Source, file: Path) -> Iterator[str]:
    for entry in load_file(source, file).entries:
        yield from secrets_in_json(entry.value)


def _secrets_in_keys(folder: Path) -> Iterator[str]:
    yield from secrets_in_key_folder(folder)
    yield from audit_key_secrets(folder)


def _secrets_in_workspaces(registry: Registry) -> Iterator[str]:
    for workspace in registry.list():
        for variables in workspace.env.values():
            yield from secrets_in_mapping(variables)
