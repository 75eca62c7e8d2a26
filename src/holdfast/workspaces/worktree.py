"""Finds the repository of a git worktree without running git."""

import os
from pathlib import Path

from holdfast.model.real_path import StepBudget, real_path
from holdfast.model.untrusted_file import read_untrusted_file

_MAX_FILE_BYTES = 4096


def find_repository(folder: Path, budget: StepBudget | None = None) -> Path | None:
    """The repository that this (resolved) folder is a worktree of; None if it is not a worktree.

    Any folder can have a `.git` file that names another repository, so the repository must list the worktree: an entry in
    its `worktrees/` folder must point back at this folder. Once the `budget` is used up, the result is None.
    """
    link = _read_line(folder / ".git")
    if not link.startswith("gitdir:"):
        return None
    entry = _follow(folder, link.removeprefix("gitdir:").strip(), budget)
    if entry is None:
        return None
    common = _follow(entry, _read_line(entry / "commondir"), budget)
    back = _follow(entry, _read_line(entry / "gitdir"), budget)
    if common is None or entry.parent != common / "worktrees" or back != folder / ".git":
        return None
    return common.parent if common.name == ".git" else common


def _follow(base: Path, target: str, budget: StepBudget | None) -> Path | None:
    if not target or "\0" in target:
        return None
    try:
        return Path(real_path(str(Path(base, target)), budget))
    except OSError:  # too many links
        return None


def _read_line(file: Path) -> str:
    try:
        content = read_untrusted_file(file, limit=_MAX_FILE_BYTES, follow_link=False)
    except OSError:
        return ""
    return os.fsdecode(content).strip("\r\n")
