"""Finds the repository of a git worktree without running git."""

import os
from pathlib import Path

from holdfast.model.real_path import StepBudget, real_path
from holdfast.model.untrusted_file import read_untrusted_file

_MAX_FILE_BYTES = 4096


def find_repository(folder: Path, budget: StepBudget | None = None) -> Path | None:
    """Return the repository of a git worktree; None if the folder is not a worktree. Links in its path must be resolved.

    Any folder can have a `.git` file that names another repository, so the repository must list the worktree: a subfolder of
    its `worktrees/` folder must point back at this folder. Once the `budget` is used up, the result is None.
    """
    dot_git = _read_line(folder / ".git")
    if not dot_git.startswith("gitdir:"):
        return None
    git_dir = _follow(folder, dot_git.removeprefix("gitdir:").strip(), budget)
    if git_dir is None:
        return None
    common_dir = _follow(git_dir, _read_line(git_dir / "commondir"), budget)
    back = _follow(git_dir, _read_line(git_dir / "gitdir"), budget)
    if common_dir is None or git_dir.parent != common_dir / "worktrees" or back != folder / ".git":
        return None
    return common_dir.parent if common_dir.name == ".git" else common_dir


def _follow(base: Path, target: str, budget: StepBudget | None) -> Path | None:
    """Return the real path of a target that is absolute or relative to `base`; None if it cannot be resolved within the budget."""
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
