"""Find the real path of an untrusted path, with a limit on the work.

`os.path.realpath` and `Path.resolve` follow any number of links: a few hundred links in a cloned repository keep them
busy for hours. Use those functions only for paths that the user or the system chose.
"""

import errno
import os
import time
from collections import deque
from dataclasses import dataclass

_MAX_LINKS = 40  # the kernel opens no path with more links
_MAX_PATH_BYTES = 4096  # PATH_MAX of Linux
_MAX_STEPS = 5000  # names and links that are followed for one task
_MAX_SECONDS = 5.0  # seconds for one task, because a file system may be slow


class TooMuchWorkError(OSError):
    """The path was not followed to its end: it would take too many steps, or too long."""


class StepBudget:
    """The steps and the seconds that are left for following paths. All paths of one task share a budget."""

    def __init__(self, steps: int = _MAX_STEPS, seconds: float = _MAX_SECONDS) -> None:
        self._steps = steps
        self._deadline = time.monotonic() + seconds

    def spend(self, steps: int = 1) -> None:
        """Use up some steps. Raise `TooMuchWorkError` if none are left."""
        self._steps -= steps
        if self._steps < 0 or time.monotonic() > self._deadline:
            raise TooMuchWorkError(errno.ELOOP, "too many folders and links on the way")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedPath:
    """Where a path leads, and which links and folders decide that."""

    real: str | None
    """The path without links. Parts of it may not exist. None if there are more links on the way than the kernel follows."""
    passed: tuple[str, ...]
    """The links on the way, and the folders that the way enters and leaves again (`folder/..`). A program that can replace one
    of them can make the path lead elsewhere."""


def follow_links(path: str, budget: StepBudget) -> FollowedPath:
    """Follow the links of an absolute path. Raise `TooMuchWorkError` if the budget is used up."""
    passed: dict[str, None] = {}
    steps = deque(path.split("/"))
    here, links = "", 0  # an empty string stands for `/`
    while steps:
        budget.spend()
        step = steps.popleft()
        if step in ("", "."):
            continue
        if step == "..":
            if here:
                passed[here] = None
            here = here.rpartition("/")[0]
            continue
        target = _read_link(f"{here}/{step}")
        if target is None:
            here = f"{here}/{step}"
            continue
        passed[f"{here}/{step}"] = None
        links += 1
        if links > _MAX_LINKS:
            return FollowedPath(real=None, passed=tuple(passed))
        here = "" if target.startswith("/") else here
        steps.extendleft(reversed(target.split("/")))
    return FollowedPath(real=here or "/", passed=tuple(passed))


def real_path(path: str, budget: StepBudget | None = None) -> str:
    """The path without links, as from `os.path.realpath`. Raise `OSError` if it has too many links or steps.

    Parts of the path need not exist.
    """
    absolute = path if path.startswith("/") else f"{os.getcwd()}/{path}"  # noqa: PTH109 - a name, not a path yet
    try:
        real = follow_links(absolute, budget or StepBudget()).real
    except TooMuchWorkError as error:
        raise TooMuchWorkError(error.errno, error.strerror, path) from None
    if real is None:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return real


def _read_link(path: str) -> str | None:
    """The target of a link; None if the path is not a link or cannot be read."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a name, not a path yet
    except OSError as error:
        # Either the whole path is too long to be read in one step, and it is unknown where it leads; or one name has more than
        # 255 bytes, and then nothing has this name.
        if error.errno == errno.ENAMETOOLONG and len(os.fsencode(path)) >= _MAX_PATH_BYTES:
            raise TooMuchWorkError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path) from None
        return None
