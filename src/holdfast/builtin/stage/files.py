"""The session's files: those that a page may get by upload, and where downloads may be saved.

The same code as for the file tools decides which paths may be read and written.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.builtin.files.roots import PathSet, Roots
from holdfast.builtin.files.walk import open_file, open_path
from holdfast.builtin.stage.limits import MAX_UPLOAD_BYTES
from holdfast.model import codes
from holdfast.model.process import GUARDED_IF_PRESENT, GUARDED_NAMES
from holdfast.model.real_path import real_path
from holdfast.toolkit import ToolError


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFiles:
    """The folders of the session, and paths in them that no tool may use or change."""

    roots: tuple[str, ...]
    protected: tuple[str, ...] = ()
    """Paths that may neither be read nor changed."""
    read_only: tuple[str, ...] | None = ()
    """Paths that may not be changed. None if they are not known: then nothing may be changed."""

    def with_roots(self, folders: Sequence[str]) -> "SessionFiles":
        """Also the files in these folders. The whole file system is not a root."""
        more = dict.fromkeys((*self.roots, *map(_real_path, folders)))
        return replace(self, roots=tuple(root for root in more if root != "/"))

    def only_in(self, folders: Sequence[str], read_only: Sequence[str]) -> "SessionFiles":
        """The files in these folders only. Those at the `read_only` paths may not be changed."""
        return replace(self, roots=(), read_only=tuple(read_only)).with_roots(folders)

    def copy_in(self, paths: Sequence[str], folder: Path, owner: tuple[int, int] | None) -> list[str]:
        """Copy files of the session into the browser's folder. Return their new paths."""
        roots = self._folders()
        copies: list[str] = []
        left = MAX_UPLOAD_BYTES
        for number, path in enumerate(paths):
            with open_path(roots, path) as handle, os.fdopen(open_file(handle), "rb") as source:
                left -= os.fstat(source.fileno()).st_size
                if left < 0:
                    raise ToolError(
                        codes.FILE_TOO_LARGE,
                        f"At most {MAX_UPLOAD_BYTES // 1024**2} MB can be uploaded at once.",
                    )
                target = folder / str(number) / handle.name
                target.parent.mkdir(parents=True)
                with target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
            if owner is not None:
                for made in (target, target.parent):
                    os.chown(made, *owner)
            copies.append(str(target))
        if owner is not None:
            os.chown(folder, *owner)
        return copies

    def copy_out(self, source: Path, save_as: str) -> str:
        """Copy a download into the session's folder, as a new file. Return its path."""
        roots = self._folders()
        if self.read_only is None:
            raise ToolError(
                codes.DENIED, "The host did not say which files this sandboxed session may change."
            )
        with open_path(roots, save_as, for_writing=True) as handle:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                descriptor = os.open(handle.name, flags, 0o644, dir_fd=handle.folder_fd)
            except FileExistsError:
                raise ToolError(codes.FILE_ERROR, f"{save_as!r} exists already. Use another name.") from None
            with os.fdopen(descriptor, "wb") as target, source.open("rb") as data:
                shutil.copyfileobj(data, target)
            return handle.real

    def _folders(self) -> Roots:
        if not self.roots:
            raise ToolError(
                codes.BAD_PATH, "This session has no folder for files. Open it in another folder than /."
            )
        guarded = (*GUARDED_NAMES, *GUARDED_IF_PRESENT)
        return Roots.of(self.roots, PathSet.of(self.protected), guarded, lambda: self.read_only or ())


def _real_path(folder: str) -> str:
    try:
        return real_path(folder)
    except OSError:
        raise ToolError(codes.BAD_PATH, f"{folder[:200]!r} has too many links.") from None
