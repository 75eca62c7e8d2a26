"""Look for files below a folder: by name, and by what stands in them."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from holdfast.builtin.files.disk import as_text
from holdfast.builtin.files.offlimits import OffLimits
from holdfast.builtin.files.roots import Roots
from holdfast.builtin.files.walk import Spot, open_file, open_folder, reached
from holdfast.model.errors import HoldfastError

SKIPPED = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})
_MOST_FILES = 50_000
_DEEPEST = 64
_SECONDS = 10.0
_LARGEST = 1024 * 1024
_LINE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A file that fits and, where text was looked for, a line of it."""

    path: str
    line: int | None = None
    text: str | None = None


@dataclass(slots=True, kw_only=True)
class Search:
    """One search, as it goes: it ends with its hits or when it has looked at enough."""

    glob: str
    text: str
    ignore_case: bool
    limit: int
    hits: list[Hit] = field(default_factory=list[Hit])
    looked_at: int = 0
    cut: str = ""
    """Why there may be more than was found; empty when there is not."""
    _until: float = 0.0

    def run(self, roots: Roots, path: str) -> str:
        """Look below the path; gives the real path of where it was looked."""
        self._until = time.monotonic() + _SECONDS
        pattern = tuple(self.glob.split("/"))
        with reached(roots, path) as spot:
            for name, spot_below in _files(spot, roots.off_limits):
                self.looked_at += 1
                if time.monotonic() > self._until or self.looked_at > _MOST_FILES:
                    self.cut = f"Stopped after {self.looked_at} files. Look in a part of the folder."
                    break
                if fits(name.split("/"), pattern):
                    self.hits += self._hits(name, spot_below)
                if len(self.hits) > self.limit:
                    del self.hits[self.limit :]
                    self.cut = f"Only the first {self.limit} are shown. Look for something narrower."
                    break
            return spot.real

    def _hits(self, name: str, spot: Spot) -> Iterator[Hit]:
        if not self.text:
            yield Hit(path=name)
            return
        wanted = self.text.casefold() if self.ignore_case else self.text
        for number, line in enumerate(_text(spot).split("\n"), start=1):
            if wanted in (line.casefold() if self.ignore_case else line):
                yield Hit(path=name, line=number, text=line.strip()[:_LINE])


def fits(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path fits a glob: `*` within a name, `**` any folders, and a glob of one name fits anywhere."""
    if len(pattern) == 1 and pattern[0] != "**":
        return fnmatchcase(path[-1], pattern[0])
    # Which beginnings of the pattern the path so far can have used up: never more work than length times length.
    reach = _skip({0}, pattern)
    for step in path:
        further: set[int] = set()
        for at in reach:
            if at < len(pattern):
                if pattern[at] == "**":
                    further.add(at)
                elif fnmatchcase(step, pattern[at]):
                    further.add(at + 1)
        reach = _skip(further, pattern)
    return len(pattern) in reach


def _skip(reach: set[int], pattern: Sequence[str]) -> set[int]:
    """`**` may stand for no folder at all."""
    for at in range(len(pattern)):
        if at in reach and pattern[at] == "**":
            reach.add(at + 1)
    return reach


def _files(top: Spot, off_limits: OffLimits, before: str = "", depth: int = 0) -> Iterator[tuple[str, Spot]]:
    """Every file below, with its path from there and the folder it is in, held open; links are not followed."""
    try:
        descriptor = open_folder(top)
    except OSError:  # not ours to read, or gone meanwhile
        if depth == 0:
            raise
        return
    try:
        with os.scandir(descriptor) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            spot = Spot(descriptor, entry.name, f"{top.real.rstrip('/')}/{entry.name}")
            if off_limits.has(spot.real, _status(entry)):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED and depth < _DEEPEST:
                    yield from _files(spot, off_limits, f"{before}{entry.name}/", depth + 1)
            elif entry.is_file(follow_symlinks=False) and _is_sayable(entry.name):
                yield before + entry.name, spot
    finally:
        os.close(descriptor)


def _status(entry: "os.DirEntry[str]") -> os.stat_result | None:
    """What a folder is; of anything else, its path says enough."""
    try:
        return entry.stat(follow_symlinks=False) if entry.is_dir(follow_symlinks=False) else None
    except OSError:  # gone meanwhile
        return None


def _text(spot: Spot) -> str:
    """The text of a file; of one that has none, or is too large to look into, nothing."""
    try:
        with os.fdopen(open_file(spot), "rb") as file:
            data = file.read(_LARGEST + 1)
        return as_text(spot.name, data) if len(data) <= _LARGEST else ""
    except (OSError, HoldfastError):
        return ""


def _is_sayable(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
