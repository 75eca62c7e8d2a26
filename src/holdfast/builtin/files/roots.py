"""The folders that a session works in, and what a path means in them before anything is opened."""

import os
from dataclasses import dataclass
from urllib.parse import unquote

from holdfast.builtin.files.offlimits import NOTHING, OffLimits
from holdfast.model import codes
from holdfast.model.errors import HoldfastError

_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path starts, and the steps from there; where they lead is seen when they are walked."""

    root: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Roots:
    """Real paths of folders; relative paths start at the first. What is off limits in them is not gone into."""

    folders: tuple[str, ...]
    off_limits: OffLimits = NOTHING

    def place(self, path: str) -> Place:
        """Read what somebody wrote. A path is meant to the letter: nothing in it is decoded or expanded."""
        _check(path)
        if not path.startswith("/"):
            return Place(self.folders[0], _steps(path))
        found = self._below(path) or self._below(os.path.realpath(path))
        if found is None:
            raise outside(path, self.folders)
        return found

    def shown(self, real: str) -> str:
        """A real path in the shortest form that `place` reads."""
        first = self.folders[0]
        if real == first:
            return "."
        return real.removeprefix(first.rstrip("/") + "/")

    def beside(self, real: str) -> list[str]:
        """The folders that are not in this one."""
        within = real.rstrip("/") + "/"
        return [folder for folder in self.folders if folder != real and not folder.startswith(within)]

    def _below(self, path: str) -> Place | None:
        for root in sorted(self.folders, key=len, reverse=True):
            if path == root or path.startswith(root.rstrip("/") + "/"):
                return Place(root, _steps(path.removeprefix(root)))
        return None


def outside(path: str, folders: tuple[str, ...]) -> HoldfastError:
    """The refusal of a path that leads out of the roots."""
    return HoldfastError(
        codes.OUTSIDE_ROOTS, f"{path[:200]!r} leads outside of this session's folders: {', '.join(folders)}."
    )


def forbidden(path: str) -> HoldfastError:
    """The refusal of a path that leads to what is Holdfast's own."""
    return HoldfastError(
        codes.DENIED,
        f"{path[:200]!r} is Holdfast's own: no session reads or changes its data, keys or settings. "
        "A person can, outside of Holdfast.",
    )


def _steps(path: str) -> tuple[str, ...]:
    return tuple(step for step in path.split("/") if step not in ("", "."))


def _check(path: str) -> None:
    if not path:
        raise HoldfastError(codes.BAD_PATH, "The path is empty. Use '.' for the session's folder.")
    if "\0" in path or not _is_encodable(path):
        raise HoldfastError(codes.BAD_PATH, f"{path[:80]!r} has a character that no path has.")
    if len(os.fsencode(path)) >= _LONGEST:
        raise HoldfastError(codes.BAD_PATH, f"{path[:80]!r}… is too long for a path.")
    if "://" in path:
        raise HoldfastError(codes.BAD_PATH, f"{path[:80]!r} is an address. Give a path.")
    for step in path.split("/"):
        if _is_disguised(step):
            raise HoldfastError(codes.BAD_PATH, f"{step[:80]!r} spells a step in disguise. Write it plainly.")


def _is_disguised(step: str) -> bool:
    """Harmless here, where nothing is decoded; but an editor may make an address of it, and read that."""
    while (decoded := unquote(step)) != step:
        if decoded in (".", "..") or "/" in decoded or "\0" in decoded:
            return True
        step = decoded
    return False


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path).decode()
    except UnicodeError:
        return False
    return True
