"""The folders of a project: which paths lie in them, and what its manifests say."""

import errno
import os
from collections.abc import Iterable

from holdfast.model.json import JsonObject
from holdfast.model.mounts import is_within
from holdfast.model.real_path import StepBudget, follow_links, real_path
from holdfast.model.untrusted_file import UnusableFileError, read_untrusted_file
from holdfast.resolve.file_hashes import MAX_SCANNED_BYTES
from holdfast.resolve.kernel_paths import is_kernel_path
from holdfast.resolve.manifests import decode_package, texts_by_key

# Folders of the system and of installed programs. Updates change files in them, so the content of files there is not hashed.
SYSTEM_PREFIXES = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/opt/", "/nix/", "/snap/")

# For a word that is not a valid path, these functions return False; those of `pathlib` raise an error.
_exists, _is_folder, _is_file = os.path.exists, os.path.isdir, os.path.isfile
_join, _parent = os.path.join, os.path.dirname


def _passes_kernel(path: str, passed: Iterable[str]) -> bool:
    return any(map(is_kernel_path, (path, *passed)))


def _home() -> str:
    return os.path.expanduser("~")  # noqa: PTH111 - a name, not a path yet


class ProjectFolders:
    """The folder of a project, and the folders outside of it that its commands name by relative paths."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.realpath(folder)
        self._folders = [self.folder]
        self._manifest_texts: dict[str, dict[str, list[str]]] = {}
        self._checked_ways: set[str] = set()

    def read_package(self, folder: str) -> JsonObject:
        path = f"{folder}/package.json"
        try:
            return decode_package(self.read_manifest(path))
        except ValueError:
            raise UnusableFileError(errno.EINVAL, "not a valid JSON object", path) from None

    def read_manifest(self, path: str) -> str:
        """The text of a manifest, task file or settings file; empty if the project has no such file. Raise if it is too large, or not UTF-8."""
        if not self.has(path) or not _is_file(path):
            return ""
        try:
            return read_untrusted_file(path, limit=MAX_SCANNED_BYTES).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise UnusableFileError(
                errno.EILSEQ, "not UTF-8 text, so what it runs cannot be checked", path
            ) from None

    def absolute(self, path: str, base: str = "") -> str:
        """The path as an absolute one; empty if it is not a valid path."""
        if "\0" in path or len(path) > 4096:
            return ""
        joined = _join(base or self.folder, path)
        normal = os.path.normpath(joined)
        # For `link/..` the kernel follows the link first, but `normpath` just removes both names.
        if ".." in path.split("/") and _exists(joined) and real_path(joined) != real_path(normal):
            raise UnusableFileError(
                errno.ELOOP, "reached by `..` after a symbolic link; write its path without `..`", path
            )
        return normal

    def include_outside_folder(self, word: str, path: str) -> None:
        """Treat a folder outside of the project as part of it, if the command names it by a relative path."""
        if not path or word.startswith("/") or self.has(path) or not _exists(path):
            return
        self._include(real_path(path))

    def include_imported(self, path: str) -> bool:
        """Treat the folder of a file that a source imports as part of the project. Return False if the file cannot be part of it."""
        if self.has(path):
            return True
        real = real_path(path)
        # With the home, all projects in it would be read-only in sandboxes.
        if not is_within(real_path(_home()), real if _is_folder(real) else _parent(real)):
            self._include(real)
        return self.is_below(real)

    def has(self, path: str) -> bool:
        """Whether the path lies in the project, as it is written or after its links are followed."""
        if not path:
            return False
        if self.is_below(path):
            self._check_way(_parent(path))
            return True
        followed = follow_links(path, StepBudget())
        return not _passes_kernel(path, followed.passed) and self.is_below(followed.real or "")

    def check_link(self, path: str) -> None:
        """Raise if a path of the project leads through `/proc`: then it is another file in each process."""
        if _passes_kernel(path, follow_links(path, StepBudget()).passed):
            raise UnusableFileError(
                errno.ELOOP,
                "reached by a link into /proc or /dev/fd; replace it by the path to which it should lead",
                path,
            )

    def _check_way(self, folder: str) -> None:
        if folder not in self._checked_ways:
            self.check_link(folder)
            self._checked_ways.add(folder)

    def has_folder(self, path: str) -> bool:
        return self.has(path) and _is_folder(path)

    def is_below(self, path: str) -> bool:
        """Whether the path, as it is written, is one of the folders or lies below one."""
        return any(is_within(path, folder) for folder in self._folders)

    def _include(self, real: str) -> None:
        folder = real if _is_folder(real) else _parent(real)
        if folder.count("/") > 1 and not real.startswith(SYSTEM_PREFIXES):
            self._folders.append(folder)

    def texts_by_key(self, path: str) -> dict[str, list[str]]:
        """The texts in a manifest, by the keys that they belong to."""
        if path not in self._manifest_texts:
            self._manifest_texts[path] = texts_by_key(self.read_manifest(path))
        return self._manifest_texts[path]
