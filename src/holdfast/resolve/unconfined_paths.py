"""Find the paths of what Holdfast runs unconfined: the programs of servers, and the folders of the `PATH`.

The servers are those of approved projects, of the application, of the operator and of the user. Nothing in a sandboxed session
may change these paths. They are looked up again at each start of a confined server and before each change by the file tools,
because the user can approve a project, or add a server, while a session is open.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.model.changeable_roots import ChangeableRoots
from holdfast.model.file_timeout import run_with_file_timeout
from holdfast.model.guarded_names import INSTRUCTION_FILES
from holdfast.model.json import Json
from holdfast.model.mounts import is_within, read_mounts, with_bind_mounts
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.resolve.approval_store import approved_program_folders
from holdfast.resolve.executed_paths import executed_by, found_in_path
from holdfast.resolve.expand import expand_servers
from holdfast.resolve.last_good import LastGood
from holdfast.resolve.load import LoadedEntries, combine, load_file
from holdfast.resolve.server_entry import ServerEntry
from holdfast.resolve.validate import validate
from holdfast.sandbox.own_code import OWN_CODE, resolve_with_links
from holdfast.sandbox.read_only_names import find_read_only_names
from holdfast.settings import Settings
from holdfast.store.store import Store

_READ_SECONDS = 10.0
_KEEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnconfinedPaths:
    """The paths of what Holdfast runs unconfined."""

    approved_folders: frozenset[str] = frozenset()
    """The folders of the programs that were approved with the user's rights. They are read-only as a whole."""
    programs: tuple[str, ...] = ()
    """The programs of the application's, the operator's and the user's servers, what these load, and the folders of the `PATH`."""
    changeable_roots: ChangeableRoots | None = None
    """Stores the roots in which a sandboxed session changes files."""

    def read_only_roots(self, roots: Iterable[str]) -> tuple[str, ...]:
        """The roots that overlap with one of `approved_folders`."""
        folders = self.approved_folders
        return tuple(
            root
            for root in roots
            if any(is_within(root, folder) or is_within(folder, root) for folder in folders)
        )

    def programs_in(self, roots: Iterable[str]) -> tuple[str, ...]:
        """The programs and folders that are a root or lie in one."""
        known = tuple(roots)
        return tuple(path for path in self.programs if any(is_within(path, root) for root in known))

    def read_only_in(self, roots: Sequence[str]) -> list[str]:
        """The paths that nothing in a sandboxed session with these roots may change: not a confined server, not a built-in tool. Blocks.

        The roots are stored first, because the caller is about to change something in them.
        """
        if self.changeable_roots is not None:
            self.changeable_roots.add(roots)
        found = find_read_only_names(roots, (*OWN_CODE, *self.programs_in(roots)))
        paths = [root if name == "." else f"{root}/{name}" for root, names in found.items() for name in names]
        instructions = [f"{root}/{name}" for root in roots for name in INSTRUCTION_FILES]
        return [*paths, *instructions, *self.read_only_roots(roots)]


class UnconfinedPathFinder:
    """Looks up what one host runs unconfined."""

    def __init__(
        self,
        settings: Settings,
        app_servers: Mapping[str, Json],
        environ: Mapping[str, str],
        store: Store,
        last_good: LastGood,
        changeable_roots: ChangeableRoots | None = None,
    ) -> None:
        self._settings = settings
        self._app_servers = app_servers
        self._environ = environ
        self._store = store
        self._last_good = last_good
        self._changeable_roots = changeable_roots
        self._known: tuple[object, tuple[str, ...]] | None = None

    async def find(self) -> UnconfinedPaths:
        """Look up the paths now."""
        approved = await self._store.read(approved_program_folders)
        return await run_with_file_timeout(self._find, approved, path=str(self._settings.servers.user_file))

    async def read_only_in(self, roots: Sequence[str]) -> list[str]:
        """What a sandboxed session with these roots may not change now."""
        unconfined = await self.find()
        return await run_with_file_timeout(unconfined.read_only_in, roots, path=roots[0])

    def finder_for_threads(self) -> Callable[[], UnconfinedPaths]:
        """A function that does the same as `find`, and blocks. Call it in a thread other than that of the current event loop."""
        loop = asyncio.get_running_loop()

        def find() -> UnconfinedPaths:
            reading = asyncio.run_coroutine_threadsafe(self._store.read(approved_program_folders), loop)
            return self._find(reading.result(_READ_SECONDS))

        return find

    async def add_read_only_paths(self, spec: ServerSpec) -> ServerSpec:
        """Make the programs that Holdfast runs unconfined read-only for a confined server, unless its entry has `writable: ["."]`."""
        confinement = spec.confinement
        if confinement is None or (isinstance(spec.transport, Stdio) and "." in spec.transport.writable):
            return spec
        unconfined = await self.find()
        confinement = replace(
            confinement,
            read_only=unconfined.read_only_roots(confinement.roots),
            executed=unconfined.programs_in(confinement.roots),
        )
        return replace(spec, confinement=confinement)

    def _find(self, approved: Iterable[str]) -> UnconfinedPaths:
        folders = [*approved]
        return UnconfinedPaths(
            approved_folders=frozenset(with_bind_mounts(folders, read_mounts()) if folders else ()),
            programs=self._find_programs(),
            changeable_roots=self._changeable_roots,
        )

    def _find_programs(self) -> tuple[str, ...]:
        """The paths in `UnconfinedPaths.programs`.

        The file tools call this before each write, so the paths are kept until a list of servers changes, for at most a minute.
        """
        servers = self._settings.servers
        version = (_stamp(servers.host_file), _stamp(servers.user_file), time.monotonic() // _KEEP_SECONDS)
        if self._known is None or self._known[0] != version:
            found = [*found_in_path(self._environ.get("PATH", os.defpath))]
            for spec in self._trusted_servers():
                if isinstance(spec.transport, Stdio) and not spec.always_confined:
                    found += executed_by(spec.transport, self._environ)
            self._known = version, resolve_with_links(map(Path, dict.fromkeys(found)))
        return self._known[1]

    def _trusted_servers(self) -> Sequence[ServerSpec]:
        """The servers of the application, the operator and the user, whether or not a session gets them."""
        servers = self._settings.servers
        app = (
            ServerEntry(name=name, source=Source.APP, origin="app", value=value)
            for name, value in self._app_servers.items()
        )
        loaded = combine(
            LoadedEntries(entries=tuple(app)),
            self._load(Source.OPERATOR, servers.host_file),
            self._load(Source.USER, servers.user_file),
        )
        return expand_servers(validate(loaded, builtins=(), reserved_names=()), self._environ).servers

    def _load(self, source: Source, file: Path) -> LoadedEntries:
        # While the file is damaged, open sessions still run the servers that it last contained.
        return self._last_good.note(str(file), load_file(source, file), is_open=True)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_ctime_ns
