"""Reads and writes files through the editor, unless a confined server could redirect the path.

The editor opens a file by its path, after Holdfast has checked the path. In between, a confined server that can write
to a folder in the path could replace that folder with a symbolic link, which the editor would follow. So the editor is
used only for paths that no confined server can change. All other files are read and written on disk.
"""

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from holdfast.builtin.files.disk import MAX_FILE_BYTES, FileSnapshot, changed_error
from holdfast.model import codes
from holdfast.model.confined_folders import ConfinedFolders, can_confined_server_change
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.model.worker_threads import WorkerThreads

DISK_NOTE = (
    "This is the file on disk: changes that are not saved in the editor are not included, because a confined server "
    "can change this folder."
)
_SERVER_STARTED = "A confined server was started that can change the folder of"
_THREADS = WorkerThreads("confined-folders", threads=2)


@dataclass(frozen=True, slots=True)
class EditorFiles:
    """One session's access to files through the editor."""

    door: Door
    trust: Trust
    confined_folders: ConfinedFolders

    async def may_open(self, real_path: str) -> bool:
        """Return whether the editor may open this path: only in a direct session, and only if no confined server can change its folder."""
        if self.trust is not Trust.DIRECT:
            return False
        # Servers that this process started, and then those of other processes of the user, can change the folder.
        if self.confined_folders.is_changeable(real_path):
            return False
        folder = str(PurePosixPath(real_path).parent)
        return not await _THREADS.run(can_confined_server_change, folder)

    async def read(self, path: str, on_disk: FileSnapshot, *, for_writing: bool) -> FileSnapshot:
        """Return the file with the editor's text, or `on_disk` if the editor does not have the file or may not open it.

        With `for_writing`, an error of the editor is raised unless it clearly means that there is no such file: if the editor may
        have unsaved text, a change must not be based on the text on disk.
        """
        capabilities = self.door.capabilities
        if not (capabilities.read_files or capabilities.write_files):
            return on_disk
        if not await self.may_open(on_disk.real_path):
            return replace(on_disk, note=DISK_NOTE)
        if not capabilities.read_files:
            return on_disk
        try:
            text = await self.door.read_text(on_disk.real_path)
        except HoldfastError as error:
            # For a file that they do not have, some editors answer with another error than "not found".
            is_missing = error.code is codes.PEER_ERROR and (on_disk.text is None or not for_writing)
            if error.code is codes.NO_FILE or is_missing:
                return on_disk
            raise _refused_error("read", path, error) from None
        if not await self.may_open(on_disk.real_path):  # a confined server was started in between
            return replace(on_disk, note=DISK_NOTE)
        if len(text) > MAX_FILE_BYTES:
            raise HoldfastError(codes.FILE_TOO_LARGE, f"{path!r} has {len(text)} characters in the editor.")
        return replace(on_disk, text=text, is_from_editor=True)

    async def may_write(self, real_path: str) -> bool:
        """Return whether `write` may write this file through the editor."""
        return self.door.capabilities.write_files and await self.may_open(real_path)

    async def write(self, path: str, text: str, before: FileSnapshot) -> bool:
        """Write the file through the editor. Returns False if the caller must write it to disk instead."""
        if not await self.may_open(before.real_path):
            if before.is_from_editor:
                raise HoldfastError(
                    codes.FILE_CHANGED,
                    f"{_SERVER_STARTED} {path!r} after the file was read. Nothing was written.",
                )
            return False
        if not self.door.capabilities.write_files:
            return False
        if before.is_from_editor and (await self.read(path, before, for_writing=True)).text != before.text:
            raise changed_error(path)
        try:
            await self.door.write_text(before.real_path, text)
        except HoldfastError as error:
            raise _refused_error("write", path, error) from None
        if not await self.may_open(before.real_path):
            raise HoldfastError(
                codes.FILE_CHANGED,
                f"{_SERVER_STARTED} {path!r} while the editor wrote the file. Check in the editor which file was written.",
            )
        return True


def _refused_error(verb: str, path: str, error: HoldfastError) -> HoldfastError:
    reason = error.message.strip() or "it gave no reason"
    full_stop = "" if reason.endswith((".", "!", "?")) else "."
    return HoldfastError(codes.EDITOR_REFUSED, f"The editor did not {verb} {path!r}: {reason}{full_stop}")
