"""Searches for files below a folder by name and content."""

import heapq
import os
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.builtin.files.disk import decode_text
from holdfast.builtin.files.glob import Glob
from holdfast.builtin.files.open_path import PathHandle, open_file, open_folder, open_path
from holdfast.builtin.files.roots import PathSet, Roots
from holdfast.model.errors import HoldfastError
from holdfast.model.untrusted_file import read_descriptor

SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})
_MAX_ENTRIES = 50_000
_MAX_DEPTH = 64
_MAX_SECONDS = 10.0
_MAX_FILE_BYTES = 1024 * 1024
_MAX_LINE_CHARS = 300
_MAX_ANSWER_CHARS = 256 * 1024
_PAUSE_ENTRIES = 256  # how many entries are read between two pauses
_PAUSE_LINES = 4096  # how many lines are searched between two pauses
_SORTED_AT_ONCE = 1024

PausableWork = Generator[None, None, None]
"""A generator that yields wherever the work can pause, so that its thread can work for other sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMatch:
    """A file that matches and, in a text search, one matching line."""

    path: str
    line: int | None = None
    text: str | None = None


class _Folder(NamedTuple):
    """A folder to search. The top folder, where the search begins, has no parent."""

    parent: "_Folder | None"
    name: str
    depth: int

    def components(self) -> list[str]:
        """Return the names from the top to this folder."""
        names: list[str] = []
        folder = self
        while folder.parent is not None:
            names.append(folder.name)
            folder = folder.parent
        return names[::-1]


@dataclass(slots=True, kw_only=True)
class Search:
    """One search. It stops early if there are too many matches or entries, or if it takes too long."""

    glob: str
    text: str
    ignore_case: bool
    limit: int
    matches: list[SearchMatch] = field(default_factory=list[SearchMatch])
    checked_files: int = 0
    """How many files were compared with the glob."""
    stop_reason: str = ""
    """Why the search stopped before it was complete, as a sentence; empty if it is complete."""
    _entry_count: int = 0
    _answer_chars: int = 0
    _deadline: float = 0.0

    def run(self, roots: Roots, path: str) -> Generator[None, None, str]:
        """Search below the path, and return its real path. A generator like `PausableWork`."""
        self._deadline = time.monotonic() + _MAX_SECONDS
        glob = Glob(self.glob)
        with open_path(roots, path) as handle:
            top_fd = open_folder(handle)
            try:
                pending = [_Folder(None, "", 0)]
                while pending and not self.stop_reason:
                    folder = pending.pop()
                    folders = yield from self._search_folder(
                        top_fd, handle.real_path, folder, glob, roots.protected
                    )
                    if folder.depth < _MAX_DEPTH:
                        pending += [_Folder(folder, name, folder.depth + 1) for name in reversed(folders)]
            finally:
                os.close(top_fd)
            return handle.real_path

    def _search_folder(
        self, top_fd: int, top: str, folder: _Folder, glob: Glob, protected: PathSet
    ) -> Generator[None, None, list[str]]:
        """Search the files in one folder. Return the names of its subfolders. Symbolic links are not followed."""
        components = folder.components()
        try:
            folder_fd = _open_below(top_fd, components)
        except OSError:  # not readable, or deleted since it was listed
            return []
        try:
            real_path = "/".join([top.rstrip("/"), *components])
            files, folders = yield from self._list(folder_fd, real_path, protected)
            for name in files.in_order():
                yield from self._pause()
                if self.stop_reason:
                    break
                self.checked_files += 1
                if glob.matches([*components, name]):
                    yield from self._search_file(
                        "/".join([*components, name]), PathHandle(folder_fd, name, f"{real_path}/{name}")
                    )
            return (yield from self._collect(folders))
        finally:
            os.close(folder_fd)

    def _list(
        self, folder_fd: int, real_path: str, protected: PathSet
    ) -> Generator[None, None, tuple["_SortedNames", "_SortedNames"]]:
        """Return the names of the files, and of the subfolders, in a folder."""
        files, folders = _SortedNames(), _SortedNames()
        with os.scandir(folder_fd) as entries:
            for entry in entries:
                self._entry_count += 1
                if self._entry_count % _PAUSE_ENTRIES == 0:
                    yield from self._pause()
                if self._entry_count > _MAX_ENTRIES:
                    self._stop()
                if self.stop_reason:
                    break
                if protected.contains(f"{real_path}/{entry.name}", _folder_status(entry)):
                    continue
                if not _is_utf8(entry.name):  # no answer can contain its path, so no other tool can open it
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED_FOLDERS:
                        folders.add(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    files.add(entry.name)
        return files, folders

    def _collect(self, names: "_SortedNames") -> Generator[None, None, list[str]]:
        """Return the names in order. Pause from time to time, because there may be many."""
        collected: list[str] = []
        for name in names.in_order():
            if self.stop_reason:
                break
            collected.append(name)
            if len(collected) % _PAUSE_ENTRIES == 0:
                yield from self._pause()
        return collected

    def _search_file(self, path: str, handle: PathHandle) -> PausableWork:
        if not self.text:
            self._add(SearchMatch(path=path))
            return
        text = _read_text(handle)
        wanted = self.text.casefold() if self.ignore_case else self.text
        if wanted not in (text.casefold() if self.ignore_case else text):
            return
        for number, line in enumerate(text.split("\n"), start=1):
            if number % _PAUSE_LINES == 0:
                yield from self._pause()
            if self.stop_reason:
                return
            if wanted in (line.casefold() if self.ignore_case else line):
                self._add(SearchMatch(path=path, line=number, text=line.strip()[:_MAX_LINE_CHARS]))

    def _add(self, match: SearchMatch) -> None:
        self._answer_chars += len(match.path) + len(match.text or "")
        if len(self.matches) == self.limit or self._answer_chars > _MAX_ANSWER_CHARS:
            self.stop_reason = (
                f"Only the first {len(self.matches)} matches are shown. Make the search narrower."
            )
        else:
            self.matches.append(match)

    def _pause(self) -> PausableWork:
        """Pause, so that other sessions can work. The pause does not count as search time."""
        before = time.monotonic()
        if before > self._deadline:
            self._stop()
        yield
        self._deadline += time.monotonic() - before

    def _stop(self) -> None:
        self.stop_reason = (
            self.stop_reason or f"Stopped after {self.checked_files} files. Search in a subfolder."
        )


class _SortedNames:
    """Sorts names a few at a time: no other thread runs while a list is being sorted."""

    def __init__(self) -> None:
        self._chunks: list[list[str]] = [[]]

    def add(self, name: str) -> None:
        chunk = self._chunks[-1]
        chunk.append(name)
        if len(chunk) == _SORTED_AT_ONCE:
            chunk.sort()
            self._chunks.append([])

    def in_order(self) -> Iterator[str]:
        self._chunks[-1].sort()
        return heapq.merge(*self._chunks)


def _open_below(top_fd: int, components: list[str]) -> int:
    """Open a folder component by component from the top folder, without following symbolic links."""
    folder_fd = os.dup(top_fd)
    for component in components:
        try:
            next_fd = open_folder(PathHandle(folder_fd, component, ""))
        finally:
            os.close(folder_fd)
        folder_fd = next_fd
    return folder_fd


def _folder_status(entry: "os.DirEntry[str]") -> os.stat_result | None:
    """Return the status of a folder; None if the entry is not a folder."""
    try:
        return entry.stat(follow_symlinks=False) if entry.is_dir(follow_symlinks=False) else None
    except OSError:  # deleted since it was listed
        return None


def _read_text(handle: PathHandle) -> str:
    """Return the text of a file; an empty string if it is binary, too large or not readable."""
    try:
        descriptor = open_file(handle)
    except OSError:
        return ""
    try:
        if os.fstat(descriptor).st_size > _MAX_FILE_BYTES:
            return ""
        return decode_text(handle.name, read_descriptor(descriptor, limit=_MAX_FILE_BYTES, name=handle.name))
    except (OSError, HoldfastError):
        return ""
    finally:
        os.close(descriptor)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
