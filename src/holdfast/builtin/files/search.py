"""Search for files below a folder by name and content."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from holdfast.builtin.files.disk import decode_text
from holdfast.builtin.files.roots import ProtectedPaths, Roots
from holdfast.builtin.files.walk import PathHandle, open_file, open_folder, open_path
from holdfast.model.errors import HoldfastError

SKIPPED = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})
_MAX_FILES = 50_000
_MAX_DEPTH = 64
_MAX_SECONDS = 10.0
_MAX_FILE_BYTES = 1024 * 1024
_MAX_LINE_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMatch:
    """A file that matches and, in a text search, one matching line."""

    path: str
    line: int | None = None
    text: str | None = None


@dataclass(slots=True, kw_only=True)
class Search:
    """One search. It stops at a maximum number of matches or files, or after a maximum time."""

    glob: str
    text: str
    ignore_case: bool
    limit: int
    matches: list[SearchMatch] = field(default_factory=list[SearchMatch])
    searched: int = 0
    truncated: str = ""
    """Why there may be more matches; empty if the search was complete."""
    _until: float = 0.0

    def run(self, roots: Roots, path: str) -> str:
        """Search below the path; return its real path."""
        self._until = time.monotonic() + _MAX_SECONDS
        pattern = tuple(self.glob.split("/"))
        with open_path(roots, path) as handle:
            for name, file in _walk_files(handle, roots.protected):
                self.searched += 1
                if time.monotonic() > self._until or self.searched > _MAX_FILES:
                    self.truncated = f"Stopped after {self.searched} files. Search in a subfolder."
                    break
                if matches_glob(name.split("/"), pattern):
                    self.matches += self._matches_in(name, file)
                if len(self.matches) > self.limit:
                    del self.matches[self.limit :]
                    self.truncated = (
                        f"Only the first {self.limit} matches are shown. Make the search narrower."
                    )
                    break
            return handle.real

    def _matches_in(self, name: str, handle: PathHandle) -> Iterator[SearchMatch]:
        if not self.text:
            yield SearchMatch(path=name)
            return
        wanted = self.text.casefold() if self.ignore_case else self.text
        for number, line in enumerate(_read_text(handle).split("\n"), start=1):
            if wanted in (line.casefold() if self.ignore_case else line):
                yield SearchMatch(path=name, line=number, text=line.strip()[:_MAX_LINE_CHARS])


def matches_glob(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path matches a glob: `*` within a name, `**` for any folders; a single name matches at any depth."""
    if len(pattern) == 1 and pattern[0] != "**":
        return fnmatchcase(path[-1], pattern[0])
    # The positions in the pattern that the path so far can have reached: at most len(path) * len(pattern) steps.
    positions = _skip_double_stars({0}, pattern)
    for step in path:
        following: set[int] = set()
        for at in positions:
            if at < len(pattern):
                if pattern[at] == "**":
                    following.add(at)
                elif fnmatchcase(step, pattern[at]):
                    following.add(at + 1)
        positions = _skip_double_stars(following, pattern)
    return len(pattern) in positions


def _skip_double_stars(positions: set[int], pattern: Sequence[str]) -> set[int]:
    """Add the positions after each `**`, because it also matches no folder at all."""
    for at in range(len(pattern)):
        if at in positions and pattern[at] == "**":
            positions.add(at + 1)
    return positions


def _walk_files(
    top: PathHandle, protected: ProtectedPaths, prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, PathHandle]]:
    """Every file below `top`, with its relative path and while its folder is open. Links are not followed."""
    try:
        descriptor = open_folder(top)
    except OSError:  # not readable, or deleted since it was listed
        if depth == 0:
            raise
        return
    try:
        with os.scandir(descriptor) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            handle = PathHandle(descriptor, entry.name, f"{top.real.rstrip('/')}/{entry.name}")
            if protected.contains(handle.real, _folder_status(entry)):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED and depth < _MAX_DEPTH:
                    yield from _walk_files(handle, protected, f"{prefix}{entry.name}/", depth + 1)
            elif entry.is_file(follow_symlinks=False) and _is_utf8(entry.name):
                yield prefix + entry.name, handle
    finally:
        os.close(descriptor)


def _folder_status(entry: "os.DirEntry[str]") -> os.stat_result | None:
    """The status of a folder; None for anything else."""
    try:
        return entry.stat(follow_symlinks=False) if entry.is_dir(follow_symlinks=False) else None
    except OSError:  # deleted since it was listed
        return None


def _read_text(handle: PathHandle) -> str:
    """The text of a file; empty if it is binary or too large to search."""
    try:
        with os.fdopen(open_file(handle), "rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        return decode_text(handle.name, data) if len(data) <= _MAX_FILE_BYTES else ""
    except (OSError, HoldfastError):
        return ""


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
