"""The registered workspaces, one file each in a folder."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.model import codes
from holdfast.model.choice import ALL, Choice
from holdfast.model.errors import HoldfastError
from holdfast.model.trust import Trust
from holdfast.model.workspace import Workspace, is_slug, parse_slug, slug_for
from holdfast.workspaces.document import checked_name, path_in, read, write
from holdfast.workspaces.worktree import repository_of

SUFFIX = ".toml"
_FILE_BYTES = 64 * 1024
_ADDRESS_LENGTH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A workspace whose file cannot be used, and why; it is not usable until that is cured."""

    file: Path
    message: str
    path: str = ""
    """The folder it is about, as far as can be told."""

    def error(self) -> HoldfastError:
        """The problem as something to raise."""
        return HoldfastError(codes.BAD_WORKSPACE_FILE, f"{self.file}: {self.message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A file as it was under a stamp, and the folder it means with all links followed."""

    stamp: tuple[int, ...]
    found: Workspace | Problem
    folder: Path | None


class Registry:
    """Workspaces in `folder`, which lies in the folder of Holdfast's own data; made when the first one is added."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: dict[str, _Entry] = {}

    def add(
        self,
        path: Path,
        name: str | None = None,
        *,
        trust: Trust = Trust.SANDBOXED,
        servers: Choice = ALL,
        tools: Choice = ALL,
        model: str | None = None,
    ) -> Workspace:
        """Register a folder. Its slug comes from its name, or from the folder's; a taken one is numbered."""
        folder = self._checked_folder(path)
        try:
            shown = checked_name(folder.name if name is None else name)
        except ValueError as error:
            raise HoldfastError(codes.BAD_WORKSPACE, f"The name {error}.") from None
        base = slug_for(shown)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            self._check_free(folder)
            taken = {_slug(entry).lower() for entry in self._scan()}
            workspace = Workspace(
                slug=slug_for(base, taken),
                name=shown,
                path=str(folder),
                trust=trust,
                servers=servers,
                tools=tools,
                model=model,
            )
            self._create(workspace)
        return workspace

    def list(self) -> tuple[Workspace, ...]:
        """Every workspace that can be used, by slug."""
        return tuple(entry.found for entry in self._scan() if isinstance(entry.found, Workspace))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every file that cannot be used."""
        return tuple(entry.found for entry in self._scan() if isinstance(entry.found, Problem))

    def get(self, slug: str) -> Workspace:
        """The workspace of this slug."""
        entry = self._read(slug)
        if entry is None:
            raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {slug!r}.")
        return _usable(entry)

    def file_of(self, slug: str) -> Path:
        """The file of the workspace of this slug, whether it exists or not."""
        return self._folder / f"{parse_slug(slug)}{SUFFIX}"

    def remove(self, slug: str) -> None:
        """Forget a workspace, a broken one too; its folder is left as it is."""
        file = self.file_of(slug)
        try:
            file.unlink()
        except FileNotFoundError:
            raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {slug!r}.") from None
        self._entries.pop(file.name, None)

    def find(self, address: str) -> Workspace | None:
        """The workspace that an address means: a slug, a name, or an absolute path in it or in a worktree of it.

        The nearest registered folder counts. An address that is none of these is an error; so is one that means a
        workspace whose file is broken, lest its limits be lost.
        """
        address = address.strip()
        if not address:
            return None
        if len(address) > _ADDRESS_LENGTH or "\0" in address:
            raise HoldfastError(
                codes.BAD_WORKSPACE, "The workspace's address is too long, or has a NUL character."
            )
        if address.startswith("/"):
            return self._around(_resolved(address))
        if "/" in address or "\\" in address or address in (".", ".."):
            raise HoldfastError(
                codes.BAD_WORKSPACE,
                f"{address[:80]!r} is neither a workspace's name nor an absolute path. Write one of these.",
            )
        return self._named(address)

    def _named(self, name: str) -> Workspace | None:
        if is_slug(name) and (entry := self._read(name)):
            return _usable(entry)
        named = tuple(
            entry for entry in self._scan() if isinstance(entry.found, Workspace) and entry.found.name == name
        )
        return _only(named, name) if named else None

    def _around(self, path: Path) -> Workspace | None:
        by_folder: dict[Path | None, tuple[_Entry, ...]] = {}
        for entry in self._scan():
            by_folder[entry.folder] = (*by_folder.get(entry.folder, ()), entry)
        for folder in (path, *path.parents):
            if entries := by_folder.get(folder):
                return _only(entries, str(folder))
            if repository := repository_of(folder):
                for above in (repository, *repository.parents):
                    if entries := by_folder.get(above):
                        return _only(entries, str(above))
        return None

    def _scan(self) -> tuple[_Entry, ...]:
        """Every entry, by file name; a file is read again only when it changed."""
        try:
            with os.scandir(self._folder) as listed:
                names = [item.name for item in listed if item.name.endswith(SUFFIX)]
        except FileNotFoundError:
            return ()
        except OSError as error:  # not as if there were none: their limits would be lost
            raise HoldfastError(
                codes.BAD_FOLDER, f"{self._folder} cannot be read: {error.strerror}."
            ) from None
        entries = {name: self._entry(name) for name in sorted(names) if not name.startswith(".")}
        self._entries = {name: entry for name, entry in entries.items() if entry}
        return tuple(self._entries.values())

    def _read(self, slug: str) -> _Entry | None:
        """The entry of one slug; None when there is none."""
        name = self.file_of(slug).name
        if entry := self._entry(name):
            self._entries[name] = entry
        return entry

    def _entry(self, name: str) -> _Entry | None:
        try:
            found = os.lstat(f"{self._folder}/{name}")
        except FileNotFoundError:
            return None
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid)
        known = self._entries.get(name)
        return known if known and known.stamp == stamp else self._parsed(self._folder / name, stamp)

    def _parsed(self, file: Path, stamp: tuple[int, ...]) -> _Entry:
        text = ""
        try:
            text = _text(file)
            workspace = read(parse_slug(file.stem), text)
            folder = _resolved(workspace.path)
            self._check_apart(folder)
            return _Entry(stamp=stamp, found=workspace, folder=folder)
        except HoldfastError as error:
            named = path_in(text)
            try:
                folder = _resolved(named) if named.startswith("/") else None
            except HoldfastError:
                folder = None
            return _Entry(
                stamp=stamp, found=Problem(file=file, message=error.message, path=named), folder=folder
            )

    def _checked_folder(self, path: Path) -> Path:
        if not path.is_absolute():
            raise HoldfastError(codes.BAD_FOLDER, f"{str(path)!r} is not an absolute path.")
        try:
            folder = path.resolve(strict=True)
            str(folder).encode()
        except (OSError, RuntimeError, ValueError):
            raise HoldfastError(codes.BAD_FOLDER, f"There is no folder {str(path)!r}.") from None
        if not folder.is_dir():
            raise HoldfastError(codes.BAD_FOLDER, f"{str(path)!r} is a file; a workspace is a folder.")
        self._check_apart(folder)
        return folder

    def _check_apart(self, folder: Path) -> None:
        """Whoever may write in a workspace must not thereby write the registry or the keys."""
        own = _resolved(str(self._folder.parent.absolute()))
        if own.is_relative_to(folder) or folder.is_relative_to(own):
            raise HoldfastError(
                codes.BAD_FOLDER,
                f"{str(folder)!r} overlaps with Holdfast's own data in {str(own)!r}, which a session in it could change."
                " Choose a folder beside it.",
            )

    def _check_free(self, folder: Path) -> None:
        for entry in self._scan():
            if entry.folder == folder:
                raise HoldfastError(
                    codes.WORKSPACE_EXISTS, f"{str(folder)!r} is registered already, as {_slug(entry)!r}."
                )

    def _create(self, workspace: Workspace) -> None:
        """Put the whole file there at once, over nothing."""
        from tempfile import mkstemp

        text = write(workspace)
        read(workspace.slug, text)  # what is written can be read
        descriptor, beside = mkstemp(prefix=".new-", dir=self._folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            self.file_of(workspace.slug).hardlink_to(beside)
        finally:
            Path(beside).unlink()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _only(entries: tuple[_Entry, ...], address: str) -> Workspace:
    first, *others = entries
    if others:
        slugs = ", ".join(map(_slug, entries))
        raise HoldfastError(
            codes.BAD_WORKSPACE, f"{address!r} means several workspaces: {slugs}. Name one by its slug."
        )
    return _usable(first)


def _usable(entry: _Entry) -> Workspace:
    if isinstance(entry.found, Problem):
        raise entry.found.error()
    return entry.found


def _slug(entry: _Entry) -> str:
    return entry.found.slug if isinstance(entry.found, Workspace) else entry.found.file.stem


def _resolved(path: str) -> Path:
    if ".." in Path(path).parts:
        raise HoldfastError(
            codes.BAD_WORKSPACE, f"{path[:80]!r} goes through '..'. Write the path without it."
        )
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError):
        raise HoldfastError(codes.BAD_WORKSPACE, f"The path {path[:80]!r} cannot be followed.") from None


def _text(file: Path) -> str:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise HoldfastError(codes.BAD_WORKSPACE_FILE, f"It cannot be read: {error.strerror}.") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _FILE_BYTES:
            raise HoldfastError(
                codes.BAD_WORKSPACE_FILE, f"It is not a plain file of at most {_FILE_BYTES} bytes."
            )
        if found.st_mode & 0o022 or found.st_uid not in (os.geteuid(), 0):
            raise HoldfastError(
                codes.BAD_WORKSPACE_FILE, f"Others may change it. Check it, then: chmod 600 {file}"
            )
        return os.read(descriptor, _FILE_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise HoldfastError(codes.BAD_WORKSPACE_FILE, "It is not UTF-8. Save it as UTF-8.") from None
    finally:
        os.close(descriptor)
