"""The session's files: those that a page may get by upload, and where downloads may be saved."""

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from holdfast.builtin.stage.limits import MAX_UPLOAD_BYTES
from holdfast.model import codes
from holdfast.model.mounts import is_within
from holdfast.model.process import GUARDED_IF_PRESENT, GUARDED_NAMES
from holdfast.model.real_path import real_path
from holdfast.resolve.protected_paths import is_protected
from holdfast.sandbox.opened_path import OpenedPath, PathOpener
from holdfast.toolkit import ToolError

_GUARDED = frozenset(name.lower() for name in (*GUARDED_NAMES, *GUARDED_IF_PRESENT))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFiles:
    """The folders of the session, and paths in them that no tool may use."""

    roots: tuple[str, ...]
    protected: tuple[str, ...] = ()

    def copy_in(self, paths: Sequence[str], folder: Path, owner: tuple[int, int] | None) -> list[str]:
        """Copy files of the session into the browser's folder. Return their new paths."""
        copies: list[str] = []
        left = MAX_UPLOAD_BYTES
        for number, path in enumerate(paths):
            real = self._real_path(path)
            with ExitStack() as resources:
                opened = _open(real, resources)
                if not opened.is_file:
                    raise ToolError(codes.NOT_A_FILE, f"{path!r} is not a file.")
                left -= opened.status.st_size
                if left < 0:
                    raise ToolError(
                        codes.FILE_TOO_LARGE,
                        f"At most {MAX_UPLOAD_BYTES // 1024**2} MB can be uploaded at once.",
                    )
                target = folder / str(number) / Path(real).name
                target.parent.mkdir(parents=True)
                with os.fdopen(opened.open_to_read(), "rb") as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
            if owner is not None:
                for made in (target, target.parent):
                    os.chown(made, *owner)
            copies.append(str(target))
        if owner is not None:
            os.chown(folder, *owner)
        return copies

    def copy_out(self, source: Path, save_as: str) -> str:
        """Copy a download into the session's folder, as a new file. Return its path."""
        path = self._absolute(save_as)
        folder = _follow(str(Path(path).parent), save_as)
        name = Path(path).name
        self._check(f"{folder}/{name}", save_as)
        if any(part.lower() in _GUARDED for part in Path(folder, name).parts):
            raise ToolError(codes.DENIED, f"{save_as!r} is not a place for downloads.")
        with ExitStack() as resources:
            opened = _open(folder, resources)
            if not opened.is_folder:
                raise ToolError(codes.NO_FILE, f"There is no folder {folder!r}.")
            try:
                descriptor = os.open(
                    name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=opened.fd
                )
            except FileExistsError:
                raise ToolError(codes.FILE_ERROR, f"{save_as!r} exists already. Use another name.") from None
            with os.fdopen(descriptor, "wb") as target, source.open("rb") as data:
                shutil.copyfileobj(data, target)
        return f"{folder}/{name}"

    def _absolute(self, path: str) -> str:
        if not path or "\0" in path or not self.roots:
            raise ToolError(codes.BAD_PATH, "Give the path of a file in the session's folders.")
        return os.path.normpath(os.path.join(self.roots[0], path))  # noqa: PTH118 - a name, not a path yet

    def _real_path(self, path: str) -> str:
        real = _follow(self._absolute(path), path)
        self._check(real, path)
        return real

    def _check(self, real: str, path: str) -> None:
        if not any(is_within(real, root) for root in self.roots):
            raise ToolError(codes.OUTSIDE_ROOTS, f"{path!r} is not in the session's folders.")
        if is_protected(real, self.protected):
            raise ToolError(codes.DENIED, f"{path!r} is not open to tools.")


def _open(real: str, resources: ExitStack) -> OpenedPath:
    try:
        return PathOpener(resources).open(
            real, links="refuse"
        )  # it was resolved just now: a link is an attack
    except OSError as error:
        raise ToolError(codes.NO_FILE, f"{real!r} cannot be opened: {error.strerror}.") from None


def _follow(absolute: str, path: str) -> str:
    try:
        return real_path(absolute)
    except OSError:
        raise ToolError(codes.BAD_PATH, f"{path[:200]!r} has too many links.") from None
