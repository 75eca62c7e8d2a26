"""The registry of workspaces: a folder with one TOML file for each workspace."""

import fcntl
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.model import codes
from holdfast.model.allowlist import ALLOW_ALL, Allowlist
from holdfast.model.errors import HoldfastError
from holdfast.model.file_errors import name_file_in_errors
from holdfast.model.mounts import is_within, read_mounts, with_bind_mounts
from holdfast.model.private_files import make_private_folder
from holdfast.model.real_path import StepBudget, real_path
from holdfast.model.slug import is_slug, parse_slug, slugify, unique_slug
from holdfast.model.trust import Trust
from holdfast.model.untrusted_file import (
    UnusableFileError,
    is_writable_by_others,
    open_untrusted_file,
    read_descriptor,
)
from holdfast.model.visible_text import display_path
from holdfast.model.workspace import Workspace
from holdfast.workspaces.bindings import (
    Announcement,
    Bindings,
    read_announcement,
    read_bindings,
    write_bindings,
)
from holdfast.workspaces.workspace_file import check_name, format_workspace, guess_path, parse_workspace
from holdfast.workspaces.worktree import find_repository

WORKSPACES_FOLDER = "workspaces"
"""The folder of the registry, in `data_dir`."""
SUFFIX = ".toml"
_MAX_FILE_BYTES = 64 * 1024
_MAX_ADDRESS_LENGTH = 4096
# How many times a file is read, if it changes while it is read.
_MAX_READS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidWorkspace:
    """A workspace whose file is invalid, and why. It cannot be used until the file is corrected."""

    file: Path
    message: str
    path: str = ""
    """The workspace's folder; empty if it is not known. While it is not known, no session can be opened in any folder."""

    def to_error(self) -> HoldfastError:
        return HoldfastError(codes.BAD_WORKSPACE_FILE, f"{self.file}: {self.describe()}")

    def describe(self) -> str:
        """Say what is wrong with the file, and what this prevents."""
        if self.path:
            return self.message
        return (
            f"{self.message}\nSo it is not known which folder this workspace is, and no session can be opened in any folder."
            " Correct or delete this file."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A session's folder and a workspace's folder that are the same, or of which one contains the other."""

    root: str
    """The session's folder."""
    folder: str
    """The workspace's folder, or a folder that is bound to it."""
    file: Path
    trust: Trust
    """The workspace's trust; `sandboxed` if its file is invalid."""
    is_file_valid: bool = True

    def describe(self) -> str:
        """Say why the session is sandboxed, and what to do about it."""
        slug = self.file.stem
        if self.root == self.folder:
            relation = f"This folder belongs to the workspace {slug!r}"
        elif is_within(self.folder, self.root):
            relation = (
                f"This folder contains a folder of the workspace {slug!r} ({display_path(str(self.folder))})"
            )
        else:
            relation = f"This folder belongs to the workspace {slug!r} ({display_path(str(self.folder))})"
        if not self.is_file_valid:
            return (
                f"{relation}, whose file cannot be used, so this session is sandboxed. For a direct session, use another folder,"
                f" or correct {display_path(str(self.file))}"
            )
        return (
            f"{relation}, which is sandboxed, so this session is sandboxed as well. For a direct session, use another folder,"
            f' or write trust = "direct" in {display_path(str(self.file))}'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RegistryEntry:
    """One file of the registry."""

    content: Workspace | InvalidWorkspace
    folder: Path | None
    """The current real path of the workspace's folder; None if it is not known, because the file is invalid."""


class Registry:
    """The workspaces whose files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parsed: dict[str, tuple[tuple[int, ...], Workspace | InvalidWorkspace]] = {}
        """By file name: the `stat` values of the file when it was read, and its content."""

    def add(
        self,
        path: Path,
        name: str | None = None,
        *,
        trust: Trust = Trust.SANDBOXED,
        servers: Allowlist = ALLOW_ALL,
        tools: Allowlist = ALLOW_ALL,
        model: str | None = None,
    ) -> Workspace:
        """Register a folder. A folder that was registered before gets its earlier slug again.

        The slug of any other folder is made from `name` or the folder's name, with a number if it is taken.
        """
        folder = self._check_folder(path)
        display_name = _parse_name(folder.name if name is None else name)
        new = Workspace(
            slug=slugify(display_name),
            name=display_name,
            path=str(folder),
            trust=trust,
            servers=servers,
            tools=tools,
            model=model,
        )
        make_private_folder(self._folder)
        with self._lock():
            self._check_unregistered(folder)
            return self._create_unique(new)

    def add_below(self, path: Path, parents: Iterable[Path], *, at_most: int) -> Workspace:
        """Register a folder below one of `parents` as a sandboxed workspace.

        Raises if it overlaps with another workspace, or if `at_most` workspaces lie below these parents already.
        """
        folder = self._check_folder(path)
        allowed = [_resolve(str(parent)) for parent in parents]
        name = _parse_name(folder.name)
        make_private_folder(self._folder)
        with self._lock():
            if overlaps := self.find_overlaps([str(folder)]):
                raise HoldfastError(
                    codes.BAD_WORKSPACE,
                    f"{str(path)!r} overlaps with the workspace {overlaps[0].file.stem!r} ({overlaps[0].folder}). It was not registered.",
                    hint=f"Use the workspace {overlaps[0].file.stem!r}, or remove it: "
                    + shlex.join(["holdfast", "workspaces", "remove", overlaps[0].file.stem]),
                )
            folders = [other for other, _ in _require_folders(self._scan())]
            below = sum(any(other.is_relative_to(parent) for parent in allowed) for other in folders)
            if below >= at_most:
                raise HoldfastError(
                    codes.BAD_WORKSPACE,
                    f"There are {below} workspaces below {', '.join(map(str, allowed))}; that is the limit for automatic registration.",
                    hint="Remove some with `holdfast workspaces remove`, or register this folder yourself: `holdfast workspaces add PATH`.",
                )
            return self._create_unique(Workspace(slug=slugify(name), name=name, path=str(folder)))

    def bind(self, folder: str, slug: str) -> Workspace:
        """Bind a folder to a workspace. Links in the path must be resolved. Raises if the folder is a workspace itself."""
        workspace = self.get(slug)
        self._check_unregistered(self._check_folder(Path(folder)))
        self._change_bindings(lambda bindings: bindings.bind(folder, slug))
        return workspace

    def decline_binding(self, folder: str, slug: str) -> None:
        """Store that the user does not want to bind this folder to the workspace."""
        self._change_bindings(lambda bindings: bindings.decline(folder, slug))

    def unbind(self, folder: str) -> str:
        """Forget what the user decided about a folder. Return the slug of the workspace that it was bound to; empty if it was not bound."""
        slug = read_bindings(self._folder).bound.get(folder, "")
        self._change_bindings(lambda bindings: bindings.forget(folder))
        return slug

    def bound_folders(self, slug: str) -> tuple[str, ...]:
        bound = read_bindings(self._folder).bound
        return tuple(sorted(folder for folder, other in bound.items() if other == slug))

    def earlier_folder(self, slug: str) -> str:
        """Return the folder of the removed workspace that had this slug; empty if there was none."""
        return "" if self._entry_of(slug) else read_bindings(self._folder).slug_folders.get(slug, "")

    def find_announced(self, folder: str) -> tuple[Announcement, Workspace] | None:
        """Return the registered workspace that a folder announces, if the user has not declined it.

        Returns None if the folder already belongs to a workspace. Links in the path must be resolved.
        """
        if not self._scan():
            return None
        announced = read_announcement(Path(folder))
        if announced is None or self.find(folder) is not None:
            return None
        try:
            workspace = self._find_by_slug_or_name(announced.workspace)
        except HoldfastError:
            return None
        if workspace is None:
            return None
        declined = read_bindings(self._folder).declined.get(announced.folder)
        return None if declined == workspace.slug else (announced, workspace)

    def list(self) -> tuple[Workspace, ...]:
        """Return all valid workspaces, sorted by slug."""
        return tuple(entry.content for entry in self._scan() if isinstance(entry.content, Workspace))

    @property
    def invalid(self) -> tuple[InvalidWorkspace, ...]:
        """All workspaces whose file is invalid."""
        return tuple(entry.content for entry in self._scan() if isinstance(entry.content, InvalidWorkspace))

    def get(self, slug: str) -> Workspace:
        """Return the workspace with this slug. Raises UNKNOWN_WORKSPACE if there is none, BAD_WORKSPACE_FILE if its file is invalid."""
        entry = self._entry_of(slug)
        if entry is None:
            raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {slug!r}.")
        return _require_valid(entry)

    def file_of(self, slug: str) -> Path:
        """Return the path of a workspace's file, which need not exist."""
        return self._folder / f"{parse_slug(slug)}{SUFFIX}"

    def remove(self, slug: str) -> None:
        """Unregister a workspace, valid or not, and unbind its folders. No other folder gets its slug."""
        file = self.file_of(slug)
        if (entry := self._entry_of(slug)) is not None:
            path = entry.content.path
            self._change_bindings(
                lambda bindings: bindings.forget_workspace(slug).with_slug_folder(slug, path)
            )
        try:
            file.unlink()
        except FileNotFoundError:
            raise HoldfastError(codes.UNKNOWN_WORKSPACE, f"There is no workspace {slug!r}.") from None
        self._parsed.pop(file.name, None)

    def find(self, address: str) -> Workspace | None:
        """Find a workspace by its address: its slug, its name, or an absolute path in it.

        A path may also be in a folder that is bound to the workspace, or in a git worktree of a repository in one of these folders. Of
        nested workspaces, return the innermost one; None if no workspace matches. Raises for a relative path, and if the workspace's
        file is invalid. If the folder of any workspace is unknown, raises for every path, because it could be in that folder.
        """
        address = address.strip()
        if not address:
            return None
        if len(address) > _MAX_ADDRESS_LENGTH or "\0" in address:
            raise HoldfastError(
                codes.BAD_WORKSPACE, "The workspace's address is too long, or contains a NUL character."
            )
        if address.startswith("/"):
            return self._find_by_path(_resolve(address))
        if "/" in address or "\\" in address or address in (".", ".."):
            raise HoldfastError(
                codes.BAD_WORKSPACE,
                f"{address[:80]!r} is not a workspace's slug, name or absolute path.",
            )
        return self._find_by_slug_or_name(address)

    def find_overlaps(self, roots: Iterable[str]) -> tuple[Overlap, ...]:
        """Return every overlap of these folders with a workspace or a bound folder. A git worktree counts as part of its repository.

        Links in the paths must be resolved. Raises if the folder of any workspace is unknown.
        """
        entries = [(str(folder), entry) for folder, entry in self._folders()]
        if not entries:
            return ()
        mounts = read_mounts()  # a bind mount may show a workspace at another path
        aliases = {folder: with_bind_mounts([folder], mounts) for folder, _ in entries}
        overlaps: list[Overlap] = []
        for root in dict.fromkeys(roots):
            root_and_repositories = [root, *_repositories(Path(root))]
            overlaps += (
                Overlap(
                    root=root,
                    folder=folder,
                    file=self._folder / f"{_slug(entry)}{SUFFIX}",
                    trust=_trust(entry),
                    is_file_valid=isinstance(entry.content, Workspace),
                )
                for folder, entry in entries
                if any(
                    is_within(alias, root) or any(is_within(path, alias) for path in root_and_repositories)
                    for alias in aliases[folder]
                )
            )
        return tuple(overlaps)

    def _find_by_slug_or_name(self, name: str) -> Workspace | None:
        if is_slug(name) and (entry := self._entry_of(name)):
            return _require_valid(entry)
        named = tuple(
            entry
            for entry in self._scan()
            if isinstance(entry.content, Workspace) and entry.content.name == name
        )
        return _require_single(named, name) if named else None

    def _find_by_path(self, path: Path) -> Workspace | None:
        by_folder: dict[Path, tuple[_RegistryEntry, ...]] = {}
        for folder, entry in self._folders():
            by_folder[folder] = (*by_folder.get(folder, ()), entry)
        if not by_folder:
            return None
        budget = StepBudget()
        for folder in (path, *path.parents):
            if entries := by_folder.get(folder):
                return _require_single(entries, str(folder))
            if repository := find_repository(folder, budget):
                for above in (repository, *repository.parents):
                    if entries := by_folder.get(above):
                        return _require_single(entries, str(above))
        return None

    def _folders(self) -> Iterator[tuple[Path, _RegistryEntry]]:
        """Yield the folder of each workspace, and the folders that are bound to it. Raises if a folder is unknown."""
        entries = self._scan()
        own = set[Path]()
        for folder, entry in _require_folders(entries):
            own.add(folder)
            yield folder, entry
        if not own:
            return
        by_slug = {_slug(entry): entry for entry in entries}
        for folder, slug in read_bindings(self._folder).bound.items():
            if slug in by_slug and Path(folder) not in own:
                yield Path(folder), by_slug[slug]

    def _scan(self) -> tuple[_RegistryEntry, ...]:
        """Return an entry for each file, sorted by slug."""
        try:
            names = [name for name in os.listdir(self._folder) if name.endswith(SUFFIX)]  # noqa: PTH208
        except FileNotFoundError:
            return ()
        except OSError as error:  # an empty result would drop the limits of all workspaces
            raise HoldfastError(
                codes.BAD_FOLDER,
                f"The folder of the workspaces, {self._folder}, cannot be read: {error.strerror}.",
                hint="Check its permissions and the disk. No session can be opened until it can be read.",
            ) from None
        names.sort(key=lambda name: name.removesuffix(SUFFIX))
        entries = (self._load(name) for name in names if not name.startswith("."))
        return tuple(entry for entry in entries if entry is not None)

    def _entry_of(self, slug: str) -> _RegistryEntry | None:
        return self._load(self.file_of(slug).name)

    def _load(self, name: str) -> _RegistryEntry | None:
        """Return the entry of a file, which is read again only if it has changed; None if there is no such file."""
        file = self._folder / name
        for _ in range(_MAX_READS):
            version = _version(file)
            if version is None:
                return None
            cached, content = self._parsed.get(name, (None, None))
            if content is not None and cached == version:
                break
            content = _parse_file(file)
            # If an invalid file was replaced or deleted while it was read, read it again.
            if isinstance(content, Workspace) or _version(file) == version:
                self._parsed[name] = version, content
                break
        else:
            content = InvalidWorkspace(file=file, message="It changes too often to be read.")
        return self._locate(content, file)

    def _locate(self, content: Workspace | InvalidWorkspace, file: Path) -> _RegistryEntry:
        """Find the folder of a workspace. The folder is not cached, because a link in the path can change at any time."""
        if not content.path:
            return _RegistryEntry(content=content, folder=None)
        try:
            folder = _resolve(content.path)
        except HoldfastError as error:
            return _RegistryEntry(content=InvalidWorkspace(file=file, message=error.message), folder=None)
        try:
            self._check_outside_data_folder(folder)
        except HoldfastError as error:
            content = InvalidWorkspace(file=file, message=error.message, path=content.path)
        return _RegistryEntry(content=content, folder=folder)

    def _check_folder(self, path: Path) -> Path:
        if not path.is_absolute():
            raise HoldfastError(codes.BAD_FOLDER, f"{str(path)!r} is not an absolute path.")
        try:
            folder = Path(real_path(str(path)))
            folder.stat()
            str(folder).encode()
        except UnicodeEncodeError:
            raise HoldfastError(
                codes.BAD_FOLDER, f"The path {str(path)!r} is not UTF-8. Rename the folder."
            ) from None
        except (FileNotFoundError, NotADirectoryError, ValueError):
            raise HoldfastError(codes.BAD_FOLDER, f"There is no folder {str(path)!r}.") from None
        except OSError as error:
            raise HoldfastError(
                codes.BAD_FOLDER, f"{str(path)!r} cannot be opened: {error.strerror}."
            ) from None
        if not folder.is_dir():
            raise HoldfastError(codes.BAD_FOLDER, f"{str(path)!r} is a file. A workspace must be a folder.")
        self._check_outside_data_folder(folder)
        return folder

    def can_add(self, path: Path) -> bool:
        """Return whether this folder could be a workspace."""
        try:
            self._check_folder(path)
        except HoldfastError:
            return False
        return True

    def _check_outside_data_folder(self, folder: Path) -> None:
        """Raise if the folder overlaps with the data folder, where a session could change the registry and the keys."""
        data_folder = _resolve(str(self._folder.parent.absolute()))
        if data_folder.is_relative_to(folder) or folder.is_relative_to(data_folder):
            raise HoldfastError(
                codes.BAD_FOLDER,
                f"{str(folder)!r} overlaps with Holdfast's data folder {str(data_folder)!r}: a session in the workspace could change it."
                " Choose another folder.",
            )

    def _check_unregistered(self, folder: Path) -> None:
        for entry in self._scan():
            if entry.folder == folder:
                raise HoldfastError(
                    codes.WORKSPACE_EXISTS, f"{str(folder)!r} is already registered as {_slug(entry)!r}."
                )

    def _change_bindings(self, change: Callable[[Bindings], Bindings]) -> None:
        make_private_folder(self._folder)
        with self._lock():
            write_bindings(self._folder, change(read_bindings(self._folder)))

    def _create_unique(self, new: Workspace) -> Workspace:
        """Create the file of a workspace. The caller must hold the lock.

        A folder that was registered before gets its earlier slug. Any other gets a slug that belongs and belonged to no other folder.
        """
        bindings = read_bindings(self._folder)
        registered = {_slug(entry).lower() for entry in self._scan()}
        earlier = [
            slug
            for slug, path in bindings.slug_folders.items()
            if path == new.path and slug not in registered
        ]
        slug = unique_slug(new.slug, registered | (bindings.slug_folders.keys() - set(earlier)))
        workspace = replace(new, slug=slug if slug in earlier or not earlier else earlier[-1])
        with name_file_in_errors(self.file_of(workspace.slug)):
            write_bindings(self._folder, bindings.with_slug_folder(workspace.slug, workspace.path))
            self._create(workspace)
        return workspace

    def _create(self, workspace: Workspace) -> None:
        from tempfile import mkstemp

        text = format_workspace(workspace)
        parse_workspace(workspace.slug, text)  # never write a file that cannot be read back
        descriptor, temporary = mkstemp(prefix=".new-", dir=self._folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            self.file_of(workspace.slug).hardlink_to(temporary)
        finally:
            Path(temporary).unlink()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        lock = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _parse_name(name: str) -> str:
    try:
        return check_name(name)
    except ValueError as error:
        raise HoldfastError(codes.BAD_WORKSPACE, f"The name {error}.") from None


def _version(file: Path) -> tuple[int, ...] | None:
    """Return a value that changes when the file is written, replaced or given to another user; None if there is no file."""
    try:
        status = os.lstat(file)
    except FileNotFoundError:
        return None
    owner = (status.st_mode, status.st_uid, status.st_gid)
    return (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, *owner)


def _parse_file(file: Path) -> Workspace | InvalidWorkspace:
    text = ""
    try:
        text = _read_text(file)
        return parse_workspace(parse_slug(file.stem), text)
    except HoldfastError as error:
        return InvalidWorkspace(file=file, message=error.message, path=guess_path(text))


def _require_folders(entries: Iterable[_RegistryEntry]) -> Iterator[tuple[Path, _RegistryEntry]]:
    """Yield each entry with its folder. Raises if a folder is unknown, because the workspace's limits could not be applied in it."""
    for entry in entries:
        if entry.folder is None:
            assert isinstance(entry.content, InvalidWorkspace)
            raise entry.content.to_error()
        yield entry.folder, entry


def _require_single(entries: tuple[_RegistryEntry, ...], address: str) -> Workspace:
    first, *others = entries
    if others:
        slugs = ", ".join(map(_slug, entries))
        raise HoldfastError(
            codes.BAD_WORKSPACE, f"{address!r} matches several workspaces: {slugs}. Use a slug."
        )
    return _require_valid(first)


def _require_valid(entry: _RegistryEntry) -> Workspace:
    if isinstance(entry.content, InvalidWorkspace):
        raise entry.content.to_error()
    return entry.content


def _trust(entry: _RegistryEntry) -> Trust:
    return entry.content.trust if isinstance(entry.content, Workspace) else Trust.SANDBOXED


def _repositories(path: Path) -> Iterator[str]:
    """Yield the repositories of the git worktrees that contain this path."""
    budget = StepBudget()
    for folder in (path, *path.parents):
        if repository := find_repository(folder, budget):
            yield str(repository)


def _slug(entry: _RegistryEntry) -> str:
    return entry.content.slug if isinstance(entry.content, Workspace) else entry.content.file.stem


def _resolve(path: str) -> Path:
    if ".." in Path(path).parts:
        raise HoldfastError(codes.BAD_WORKSPACE, f"{path[:80]!r} contains '..'. Write the path without it.")
    try:
        return Path(real_path(path))
    except (OSError, ValueError):
        raise HoldfastError(codes.BAD_WORKSPACE, f"The path {path[:80]!r} cannot be resolved.") from None


def _read_text(file: Path) -> str:
    try:
        descriptor = open_untrusted_file(file, follow_link=False)
    except OSError as error:
        raise _unreadable(error) from None
    try:
        status = os.fstat(descriptor)
        if status.st_uid not in (os.geteuid(), 0):
            raise HoldfastError(
                codes.BAD_WORKSPACE_FILE, "It belongs to another user. Replace it with a copy of your own."
            )
        if is_writable_by_others(status):
            raise HoldfastError(
                codes.BAD_WORKSPACE_FILE,
                f"Other users can change it. Check its content, then run: {shlex.join(['chmod', '600', str(file)])}",
            )
        return read_descriptor(descriptor, limit=_MAX_FILE_BYTES, name=str(file)).decode("utf-8")
    except OSError as error:
        raise _unreadable(error) from None
    except UnicodeDecodeError:
        raise HoldfastError(codes.BAD_WORKSPACE_FILE, "It is not UTF-8. Save it as UTF-8.") from None
    finally:
        os.close(descriptor)


def _unreadable(error: OSError) -> HoldfastError:
    reason = f"It cannot be read: {error.strerror}."
    if isinstance(error, UnusableFileError):
        reason += f" It must be a regular file of at most {_MAX_FILE_BYTES} bytes."
    return HoldfastError(codes.BAD_WORKSPACE_FILE, reason)
