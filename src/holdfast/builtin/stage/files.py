"""Copies files between the session's folders and the browser's folder, for uploads and downloads.

The paths in both folders are checked by the code of the file tools, because a page that has taken over the browser can change everything in
the browser's folder, for example put symbolic links there.
"""

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from holdfast.builtin.files.attributes import give_to_folder_owner
from holdfast.builtin.files.open_path import PathHandle, open_file, open_folder, open_path
from holdfast.builtin.files.roots import PathSet, Roots
from holdfast.builtin.stage.limits import MAX_DOWNLOAD_BYTES, MAX_UPLOAD_BYTES
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.guarded_names import GUARDED_IF_PRESENT, GUARDED_NAMES
from holdfast.model.real_path import real_path
from holdfast.model.worker_threads import WorkerThreads
from holdfast.toolkit import ToolError

FILE_THREADS = WorkerThreads("stage-files", threads=4)
_BLOCK_BYTES = 256 * 1024
_DOWNLOAD_NAME = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(\.crdownload)?")
_MAX_LISTED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFiles:
    """The folders of the session, and paths in them that no tool may use or change."""

    roots: tuple[str, ...]
    protected: tuple[str, ...] = ()
    """Paths that may neither be read nor changed."""
    read_only: tuple[str, ...] | None = ()
    """Paths that may not be changed. None if they are not known: then nothing may be changed."""

    def with_roots(self, folders: Sequence[str]) -> "SessionFiles":
        """Return a copy with these folders added. The folder `/` is left out."""
        all_roots = dict.fromkeys((*self.roots, *map(_real_path, folders)))
        return replace(self, roots=tuple(root for root in all_roots if root != "/"))

    def only_in(self, folders: Sequence[str], read_only: Sequence[str]) -> "SessionFiles":
        """Return a copy with only these folders, and with these `read_only` paths."""
        return replace(self, roots=(), read_only=tuple(read_only)).with_roots(folders)

    def copy_in(self, paths: Sequence[str], browser_folder: Path, folder: str) -> list[str]:
        """Copy files of the session into a new folder in the browser's folder. Return their new paths."""
        roots, browser = self._folders(), roots_of_browser(browser_folder)
        copies: list[str] = []
        bytes_left = MAX_UPLOAD_BYTES
        too_large = f"At most {MAX_UPLOAD_BYTES // 1024**2} MB can be uploaded at once."
        for number, path in enumerate(paths):
            with (
                open_path(roots, path) as handle,
                os.fdopen(open_file(handle), "rb") as source,
                ExitStack() as stack,
            ):
                if os.fstat(source.fileno()).st_size > bytes_left:
                    raise ToolError(codes.FILE_TOO_LARGE, too_large)
                target = _open_in_browser(
                    stack, browser, f"{folder}/{number}/{handle.name}", for_writing=True
                )
                bytes_left -= _copy_to_new_file(source, target, limit=bytes_left, too_large=too_large)
                copies.append(target.real_path)
        return copies

    def copy_out(self, browser_folder: Path, download: str, save_as: str) -> str:
        """Copy a download from the browser's folder to a new file in the session's folders. Return the path of the new file.

        Missing folders are created, as by the file tools.
        """
        roots = self._folders()
        if self.read_only is None:
            raise ToolError(
                codes.DENIED, "The host did not say which files this sandboxed session may change."
            )
        with ExitStack() as stack:
            handle = _open_in_browser(stack, roots_of_browser(browser_folder), download)
            source = stack.enter_context(os.fdopen(open_file(handle), "rb"))
            target = stack.enter_context(open_path(roots, save_as, for_writing=True, make_parents=True))
            try:
                _copy_to_new_file(
                    source, target, limit=MAX_DOWNLOAD_BYTES, too_large="The download is too large."
                )
            except FileExistsError:
                raise ToolError(codes.FILE_ERROR, f"{save_as!r} exists already. Use another name.") from None
            return target.real_path

    def _folders(self) -> Roots:
        if not self.roots:
            raise ToolError(
                codes.BAD_PATH, "This session has no folder for files. Open it in a folder other than /."
            )
        guarded = (*GUARDED_NAMES, *GUARDED_IF_PRESENT)
        return Roots.of(self.roots, PathSet.of(self.protected), guarded, lambda: self.read_only or ())


def roots_of_browser(folder: Path) -> Roots:
    """Return the browser's folder as the only root, so that no symbolic link in it can lead out of it."""
    return Roots.of((_real_path(str(folder)),), PathSet())


def make_folder_in_browser(browser_folder: Path, path: str) -> None:
    """Create a folder in the browser's folder. It gets the owner of the folder that contains it."""
    with ExitStack() as stack:
        _open_in_browser(stack, roots_of_browser(browser_folder), f"{path}/new", for_writing=True)


@dataclass(frozen=True, slots=True)
class DownloadFile:
    """The file of a download in the browser's folder."""

    size: int
    is_complete: bool


def list_downloads(browser_folder: Path, folder: str) -> dict[str, DownloadFile]:
    """Return the files of downloads in a folder of the browser, by the browser's id of the download. Other files are left out."""
    downloads: dict[str, DownloadFile] = {}
    with ExitStack() as stack:
        descriptor = open_folder(_open_in_browser(stack, roots_of_browser(browser_folder), folder))
        stack.callback(os.close, descriptor)
        for entry in islice(stack.enter_context(os.scandir(descriptor)), _MAX_LISTED):
            matched = _DOWNLOAD_NAME.fullmatch(entry.name)
            if matched is not None and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # the file was renamed or removed just now
                    size = entry.stat(follow_symlinks=False).st_size
                    downloads[matched[1]] = DownloadFile(size, is_complete=matched[2] is None)
    return downloads


def remove_download(browser_folder: Path, path: str) -> None:
    """Remove the file of a download from the browser's folder, if it is there."""
    with ExitStack() as stack:
        handle = _open_in_browser(stack, roots_of_browser(browser_folder), path, for_writing=True)
        with suppress(FileNotFoundError):
            os.unlink(handle.name, dir_fd=handle.folder_fd)


def _open_in_browser(stack: ExitStack, browser: Roots, path: str, *, for_writing: bool = False) -> PathHandle:
    try:
        return stack.enter_context(
            open_path(browser, path, for_writing=for_writing, make_parents=for_writing)
        )
    except HoldfastError:
        raise ToolError(
            codes.FILE_ERROR,
            "The browser has moved its own files or put links in their place, so they are not used. Close the stage, and open another one.",
        ) from None


def _copy_to_new_file(source: BinaryIO, target: PathHandle, *, limit: int, too_large: str) -> int:
    """Copy a file, and return how many bytes were copied. If there are more than `limit`, remove the new file and raise."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(target.name, flags, 0o644, dir_fd=target.folder_fd)
    size = 0
    try:
        with os.fdopen(descriptor, "wb") as copy:
            give_to_folder_owner(descriptor, os.fstat(target.folder_fd))
            while block := source.read(_BLOCK_BYTES):
                size += len(block)
                if size > limit:
                    raise ToolError(codes.FILE_TOO_LARGE, too_large)
                copy.write(block)
    except BaseException:
        with suppress(OSError):
            os.unlink(target.name, dir_fd=target.folder_fd)
        raise
    return size


def _real_path(folder: str) -> str:
    try:
        return real_path(folder)
    except OSError:
        raise ToolError(codes.BAD_PATH, f"{folder[:200]!r} has too many links.") from None
