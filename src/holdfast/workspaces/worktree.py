"""Which repository a git worktree belongs to, without running git."""

import os
import stat
from pathlib import Path

_FILE_BYTES = 4096


def repository_of(folder: Path) -> Path | None:
    """The main repository of the worktree in this (resolved) folder; None when it is none, or only claims to be.

    Anybody can write a `.git` file that names somebody else's repository. So the repository must name the worktree
    too: the entry below its own `worktrees/` has to point back at this very folder.
    """
    link = _line(folder / ".git")
    if not link.startswith("gitdir:"):
        return None
    entry = _followed(folder, link.removeprefix("gitdir:").strip())
    if entry is None:
        return None
    common = _followed(entry, _line(entry / "commondir"))
    back = _followed(entry, _line(entry / "gitdir"))
    if common is None or entry.parent != common / "worktrees" or back != folder / ".git":
        return None
    return common.parent if common.name == ".git" else common


def _followed(base: Path, target: str) -> Path | None:
    if not target or "\0" in target:
        return None
    try:
        return Path(base, target).resolve()
    except (OSError, RuntimeError):  # a loop of links
        return None


def _line(file: Path) -> str:
    """The one line in a small plain file; empty when there is no such file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
        content = os.read(descriptor, _FILE_BYTES + 1) if plain else b""
    finally:
        os.close(descriptor)
    return "" if len(content) > _FILE_BYTES else os.fsdecode(content).strip("\r\n")
