"""Read and write files through the editor, where its path cannot lead elsewhere in the meantime.

The editor opens a file by its name, after Holdfast has checked the name. A confined server that can write a folder on
the way could replace this folder by a link in between, and the editor would follow it. So the editor is asked only
about paths in which no confined server can change anything; for the others, the file on disk is used.
"""

from dataclasses import dataclass

from holdfast.builtin.files.disk import MAX_FILE_BYTES, FileSnapshot
from holdfast.model import codes
from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust

DISK_NOTE = (
    "This is the file on disk: changes that are not saved in the editor are not included, because a confined server "
    "can change this folder."
)


@dataclass(frozen=True, slots=True)
class EditorFiles:
    """The editor's files, for one session."""

    door: Door
    trust: Trust
    confined_folders: ConfinedFolders

    def is_allowed(self, real: str) -> bool:
        """Whether the editor may be asked about this path. A sandboxed session can start confined servers at any time."""
        return self.trust is Trust.DIRECT and not self.confined_folders.contain(real)

    def note(self, real: str) -> str:
        """What to tell the model if the editor's text is not used; empty if it is."""
        capabilities = self.door.capabilities
        if not (capabilities.read_files or capabilities.write_files) or self.is_allowed(real):
            return ""
        return DISK_NOTE

    async def read(self, path: str, found: FileSnapshot, *, to_change: bool) -> FileSnapshot:
        """The editor's text of a file that was found on disk, or `found` if the editor does not have the file.

        A change must be based on unsaved text, so the disk is used only if the editor does not have the file.
        """
        if not self.door.capabilities.read_files or not self.is_allowed(found.real):
            return found
        try:
            text = await self.door.read_text(found.real)
        except HoldfastError as error:
            # Some editors send an error without the not-found code for a file that they do not have.
            is_missing = error.code is codes.PEER_ERROR and (found.text is None or not to_change)
            if error.code is codes.NO_FILE or is_missing:
                return found
            raise _refused_error("read", path, error) from None
        if not self.is_allowed(found.real):  # a confined server was started meanwhile
            return found
        if len(text) > MAX_FILE_BYTES:
            raise HoldfastError(codes.FILE_TOO_LARGE, f"{path!r} has {len(text)} characters in the editor.")
        return FileSnapshot(
            real=found.real, text=text, version=found.version, mode=found.mode, is_from_editor=True
        )

    async def write(self, path: str, text: str, before: FileSnapshot) -> bool:
        """Write the file through the editor. False if it must be written to disk instead."""
        if not self.is_allowed(before.real):
            if before.is_from_editor:
                raise HoldfastError(
                    codes.FILE_CHANGED,
                    f"A confined server that can change the folder of {path!r} was started after the file was read. "
                    "Nothing was written.",
                )
            return False
        if not self.door.capabilities.write_files:
            return False
        try:
            await self.door.write_text(before.real, text)
        except HoldfastError as error:
            raise _refused_error("write", path, error) from None
        return True


def _refused_error(verb: str, path: str, error: HoldfastError) -> HoldfastError:
    reason = error.message.strip() or "it gave no reason"
    full_stop = "" if reason.endswith((".", "!", "?")) else "."
    return HoldfastError(codes.EDITOR_REFUSED, f"The editor did not {verb} {path!r}: {reason}{full_stop}")
