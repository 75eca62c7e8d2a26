"""Run a confined server in namespaces of its own, with bubblewrap."""

import asyncio
import os
import platform
import shutil
import socket
import stat
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

from holdfast.model import codes
from holdfast.model.changeable_roots import ChangeableRoots
from holdfast.model.confined_folders import locks_folder
from holdfast.model.errors import HoldfastError
from holdfast.model.mounts import is_within
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.bwrap.arguments import (
    PROXY_PORT,
    Filesystem,
    Mount,
    add_proxy_variables,
    build_arguments,
    prlimit_command,
)
from holdfast.sandbox.bwrap.cgroups import plan_cgroups
from holdfast.sandbox.bwrap.known_roots import KnownRoots
from holdfast.sandbox.bwrap.mount_check import plan_mounts
from holdfast.sandbox.bwrap.runtime import NO_UNTRUSTED, ProgramRuntime, UntrustedFolders, find_runtime
from holdfast.sandbox.bwrap.seccomp import compile_filter
from holdfast.sandbox.bwrap.system_files import ETC_FILES, MOUNTED_FOLDERS, etc_texts
from holdfast.sandbox.denied_syscalls import find_architecture
from holdfast.sandbox.guard_watch import GuardedRoot, GuardWatch
from holdfast.sandbox.guards import guard_roots, outermost
from holdfast.sandbox.keeper.client import KeeperClient
from holdfast.sandbox.keeper.spawn_request import Cgroup, SpawnRequest
from holdfast.sandbox.opened_path import Identity, OpenedPath, PathOpener
from holdfast.sandbox.own_code import OWN_CODE, OWN_PYTHON, system_path
from holdfast.sandbox.package_watch import PackageRoots
from holdfast.sandbox.protected_folders import ProtectedFolders
from holdfast.sandbox.rlimits import rlimits
from holdfast.sandbox.roots import open_no_symlinks, open_root
from holdfast.sandbox.sandbox import Availability, CachedCheck, PreparedProcess, open_memory_file
from holdfast.sandbox.start_confined import start_confined_unchecked
from holdfast.sandbox.user_and_group import NOBODY, server_user

_CHECK_SECONDS = 20.0
_MAX_DESCRIPTORS = 240  # the kernel passes at most 253 in one message
_FIRST_FD = 3  # the number, in the sandbox, of the first descriptor that is passed to it
_DEEPER_PROC_FOLDERS = (Path("/proc/tty/driver"),)  # only uid 0 may read it, and it is not directly in /proc
# Process 1 of a sandbox is bubblewrap, and `/proc/1/exe` leads to the file `bwrap` on the host, past all mounts of the sandbox: a
# server that runs as the owner of that file could change the file's mode.
_BWRAP_IN_PROC = "/proc/1"
_USE_CONTAINERS = "Use containers: set sandbox.engine to podman or docker, and sandbox.image to an image that contains the servers."
_LISTENER = Path(__file__).with_name("egress_listener.py")
_LISTENER_IN_SANDBOX = "/run/holdfast/egress_listener.py"


class BwrapSandbox:
    """The default sandbox on Linux. It needs no privileges, no daemon and no image."""

    name = "bwrap"

    def __init__(
        self, search_path: str | None = None, changeable_roots: ChangeableRoots | None = None
    ) -> None:
        """`search_path` is where to find `bwrap` and `prlimit`: by default, the system's folders in the `PATH`.

        `changeable_roots` stores the roots of all servers, also for later hosts. None: they are forgotten when this host ends.
        """
        self._search_path = system_path() if search_path is None else search_path
        self._check = CachedCheck(self._run_true)
        self._known_roots = KnownRoots(changeable_roots)

    async def check(self) -> Availability:
        """Run `true` in a sandbox. A success is cached for good, a failure as `CachedCheck` says."""
        return await self._check.result()

    def prepare(self, spec: ProcessSpec) -> PreparedProcess:
        """Open every path that is mounted for the server, and build bubblewrap's command."""
        if reason := self._unavailable_reason():
            raise HoldfastError(codes.NO_SANDBOX, reason)
        bwrap, prlimit = self._which("bwrap"), os.path.realpath(self._which("prlimit"))
        with ExitStack() as resources, ExitStack() as after_exit, ExitStack() as after_setup:
            builder = _ProcessBuilder(spec, resources, after_setup, after_exit, bwrap=bwrap, prlimit=prlimit)
            try:
                return builder.build(self._known_roots)
            except BaseException:
                builder.close_own_ends()
                raise

    def program_paths(self, spec: ProcessSpec) -> tuple[str, ...]:
        """The paths, outside of the roots and of the system folders, that are mounted for the program."""
        assert spec.confinement is not None
        with ExitStack() as resources:
            roots = [open_root(path, PathOpener(resources)) for path in outermost(spec.confinement.roots)]
            own = _paths_by_identity((*roots, *_open_untrusted(spec.confinement, resources)))
            runtime = find_runtime(
                spec, UntrustedFolders(own=own, all=self._known_roots.folders()), resources
            )
            visible = (*spec.confinement.roots, *spec.confinement.readable)
            return tuple(path for path in runtime.paths if not _is_within(path, visible))

    async def _run_true(self) -> Availability:
        reason = self._unavailable_reason()
        return Availability(works=False, reason=reason) if reason else await _try_sandbox(self)

    def _which(self, program: str) -> str:
        return shutil.which(program, path=self._search_path) or ""

    def _unavailable_reason(self) -> str:
        if sys.platform != "linux":
            return f"Bubblewrap needs Linux. {_USE_CONTAINERS}"
        if find_architecture(platform.machine()) is None:
            return f"The system call filter supports x86_64 and aarch64, not {platform.machine()}. {_USE_CONTAINERS}"
        if not self._which("bwrap"):
            return "bubblewrap (bwrap) is missing. Install your system's package 'bubblewrap'."
        if not self._which("prlimit"):
            return "prlimit is missing. Install your system's package 'util-linux'."
        return ""


async def _try_sandbox(sandbox: BwrapSandbox) -> Availability:
    true = shutil.which("true", path=system_path()) or "/bin/true"
    spec = ProcessSpec(argv=(true,), env={}, cwd="/", confinement=Confinement())
    client = KeeperClient()
    client.open()
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            child = await start_confined_unchecked(client, sandbox, spec, GuardWatch())
            try:
                code = await child.wait()
                stderr = child.stderr.read(2000).decode(errors="replace").strip()
            finally:
                child.close()
    except HoldfastError as error:
        return Availability(works=False, reason=f"{error.message} {_advice(error.message)}".rstrip())
    except TimeoutError:
        return Availability(
            works=False, reason=f"{sandbox.name} did not run 'true' within {_CHECK_SECONDS:g} seconds."
        )
    finally:
        await client.close()
    if code == 0:
        return Availability(works=True)
    return Availability(
        works=False,
        reason=f"{sandbox.name} failed: {stderr or f'exit code {code}'}. {_advice(stderr)}".rstrip(),
    )


def _advice(stderr: str) -> str:
    if "user namespace" in stderr or "uid map" in stderr:
        return "Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), or use containers (the settings sandbox.engine and sandbox.image)."
    if "unknown option" in stderr.lower():  # bwrap: Unknown option --bind-fd
        return (
            "Install bubblewrap 0.10 or newer, or a package that has --bind-fd (Debian 12: 0.8.0-2+deb12u1)."
        )
    return ""


class _ProcessBuilder:
    """Builds the request for one server: opens what is mounted, then builds the arguments."""

    def __init__(
        self,
        spec: ProcessSpec,
        resources: ExitStack,
        after_setup: ExitStack,
        after_exit: ExitStack,
        *,
        bwrap: str,
        prlimit: str,
    ) -> None:
        assert spec.confinement is not None
        self.spec = spec
        self.confinement: Confinement = spec.confinement
        self.resources, self.after_setup, self.after_exit = resources, after_setup, after_exit
        self.protected = ProtectedFolders((*self.confinement.protected, str(locks_folder())), resources)
        self.bwrap, self.prlimit = bwrap, prlimit
        # The first descriptor is for the file with bubblewrap's arguments. It is set last, because the arguments name the others.
        self.descriptors: list[int] = [-1]
        self.user = NOBODY, NOBODY
        self.folder_group = ""
        self.ready_fd = self.start_fd = -1
        self.guarded_roots: tuple[GuardedRoot, ...] = ()
        self.packages: PackageRoots = PackageRoots()
        self.egress_channel: socket.socket | None = None

    def build(self, known_roots: KnownRoots) -> PreparedProcess:
        """Build the request. The order matters: each mount adds descriptors, and the arguments name all of them."""
        roots = self._open_roots()
        for root in roots:
            known_roots.add(root)

        untrusted = _open_untrusted(self.confinement, self.resources)
        not_followed = UntrustedFolders(
            own=_paths_by_identity((*roots, *untrusted)), all=known_roots.folders()
        )
        runtime = find_runtime(self.spec, not_followed, self.resources)
        command = [
            *prlimit_command(self.prlimit, self.confinement.quota, rlimits(self.confinement.quota)),
            runtime.program,
            *self.spec.argv[1:],
        ]

        mounts = [*self._mount_roots(roots), *self._mount_readable(runtime)]
        env = self.spec.env
        if self.confinement.network:
            env = add_proxy_variables(env)
            command = [*self._add_egress_listener(mounts), *command]

        self._check_cwd(mounts)
        hidden = _proc_files_for_uid_0() if self._has_uid_0 else []
        filesystem = Filesystem(
            mounts=tuple(mounts),
            system_mounts=self._mount_system(),
            files={
                path: self._pass_bytes(text.encode()) for path, text in etc_texts(*self._ids_inside).items()
            },
            hidden_files=tuple(str(path) for path in hidden if not path.is_dir()),
            hidden_folders=(_BWRAP_IN_PROC, *(str(path) for path in hidden if path.is_dir())),
        )

        arch = find_architecture(platform.machine())
        assert arch is not None
        arguments = build_arguments(
            filesystem,
            env=env,
            cwd=self.spec.cwd,
            quota=self.confinement.quota,
            ids=self._ids_inside,
            fds=(
                self._pass_bytes(compile_filter(arch, unix_sockets=self.confinement.unix_sockets)),
                self._open_ready_pipe(),
                self._open_start_pipe(),
            ),
        )

        plan = plan_mounts(
            filesystem,
            {str(number): fd for number, fd in enumerate(self.descriptors, start=_FIRST_FD)},
            protect_devices=self._has_uid_0,
            lower_priority=self.confinement.lower_priority,
        )

        encoded = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
        self.descriptors[0] = open_memory_file(encoded, self.resources)

        request = SpawnRequest(
            argv=(self.bwrap, "--args", str(_FIRST_FD), "--", *command),
            env={},
            cwd="/",
            descriptors=tuple(self.descriptors),
            run_as=self.user if os.geteuid() == 0 and not self._has_uid_0 else None,
            cgroups=self._cgroups(),
            has_monitor=True,
            prefer_oom_kill=True,
        )
        return PreparedProcess(
            request=request,
            resources=self.resources.pop_all(),
            ready_fd=self.ready_fd,
            egress_channel=self.egress_channel,
            wait_and_check=plan.wait_and_check,
            start_fd=self.start_fd,
            guarded_roots=self.guarded_roots,
            packages=self.packages,
            visible=tuple(mount.path for mount in (*filesystem.mounts, *filesystem.system_mounts)),
            after_setup=self.after_setup.pop_all(),
            after_exit=self.after_exit.pop_all(),
        )

    def close_own_ends(self) -> None:
        """Close this process's ends of the pipes and the socket, because the sandbox is not started."""
        for fd in (self.ready_fd, self.start_fd):
            if fd >= 0:
                os.close(fd)
        if self.egress_channel is not None:
            self.egress_channel.close()

    @property
    def _has_uid_0(self) -> bool:
        """Whether the server runs as uid 0 of the machine: only if the host does, and its first root belongs to uid 0."""
        return self.user[0] == 0

    @property
    def _ids_inside(self) -> tuple[int, int]:
        """The uid and gid that the server sees as its own. A server that runs as uid 0 sees those of the user `nobody`."""
        return (NOBODY, NOBODY) if self._has_uid_0 else self.user

    def _cgroups(self) -> tuple[Cgroup, ...]:
        """The server's control groups. A server that runs as uid 0 needs one that limits the number of its processes."""
        groups = plan_cgroups(
            self.confinement.quota,
            limit_processes=self._has_uid_0,
            lower_priority=self.confinement.lower_priority,
            folder_group=self.folder_group,
        )
        if self._has_uid_0 and not any("pids.max" in group.limits for group in groups):
            raise HoldfastError(
                codes.NO_SANDBOX,
                f"Could not start {self.spec.argv[0]!r}: its folder belongs to root, so it would run as root, and nothing would limit"
                " the number of its processes: Holdfast may not create a pids control group here. Run Holdfast as another"
                " user, give the folder to another user (chown), or make /sys/fs/cgroup writable.",
            )
        return groups

    def _open_roots(self) -> list[OpenedPath]:
        roots = [open_root(path, PathOpener(self.resources)) for path in outermost(self.confinement.roots)]
        self.user = server_user(roots[0] if roots else None)
        device, inode = roots[0].identity if roots else (0, 0)
        self.folder_group = f"folder-{device:x}-{inode:x}"
        for root in roots:
            self._check_access(root)
        return roots

    def _mount_readable(self, runtime: ProgramRuntime) -> list[Mount]:
        # Paths inside a root are visible already. Do not mount them: the server may have replaced them with links. The
        # system's folders are mounted in every sandbox.
        readable = [
            open_no_symlinks(path, PathOpener(self.resources))
            for path in outermost(self.confinement.readable)
            if not _is_within(path, (*self.confinement.roots, *MOUNTED_FOLDERS, *ETC_FILES))
        ]
        visible = (*self.confinement.roots, *(opened.path for opened in readable))
        needed = [opened for opened in runtime.needed if not _is_within(opened.path, visible)]
        granted = self.confinement.granted_paths
        if granted is not None and (
            extra := [opened.path for opened in needed if not _is_within(opened.path, granted)]
        ):
            raise HoldfastError(
                codes.NOT_APPROVED,
                f"Could not start {self.spec.argv[0]!r}: its program also needs {extra[0]!r}, which you have not approved."
                " To review it, run: holdfast servers approve",
            )
        return [self._mount_opened(opened) for opened in (*readable, *needed)]

    def _mount_roots(self, roots: list[OpenedPath]) -> list[Mount]:
        executed = (*OWN_CODE, os.path.realpath(self.bwrap), *self.confinement.executed)
        plan = guard_roots(
            roots, self.confinement, self.resources, self.after_setup, self.after_exit, executed
        )
        self.guarded_roots, self.packages, guards = plan.watched, plan.packages, plan.guards
        guarded = {guard.target.path for guard in guards}
        unguarded = [self._mount_opened(root, kind="bind") for root in roots if root.path not in guarded]
        bound = sum(not guard.is_placeholder for guard in guards)
        if bound + len(self.descriptors) > _MAX_DESCRIPTORS:
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"Could not start {self.spec.argv[0]!r}: there are too many files to protect in its {len(roots)} folders. Use fewer folders.",
            )
        # An empty file system, unlike a bound placeholder, needs no descriptor and no second mount call.
        return unguarded + [
            Mount(path=guard.target.path, kind="empty")
            if guard.is_placeholder
            else self._mount_opened(guard.target, kind="guard" if guard.is_read_only else "bind")
            for guard in guards
        ]

    def _mount_opened(
        self, opened: OpenedPath, kind: Literal["bind", "ro-bind", "guard"] = "ro-bind"
    ) -> Mount:
        """Mount exactly what was opened, at its path. Refuse Holdfast's own folders."""
        if opened.is_link:  # recreate the link, do not follow it
            return Mount(path=opened.path, kind="symlink", source=opened.link_target())
        self.protected.check(opened)
        self._check_access(opened)
        return Mount(path=opened.path, kind=kind, source=str(self._add_fd(opened.fd)))

    def _mount_system(self) -> tuple[Mount, ...]:
        mounts: list[Mount] = []
        opener = PathOpener(self.resources)
        for path in (*MOUNTED_FOLDERS, *ETC_FILES):
            try:
                opened = opener.open(path, links="keep_last")
                target = opener.open(path, links="follow") if opened.is_link else opened
            except OSError:
                continue
            if opened.path == path and opened.is_link and target.path.startswith("/usr/"):
                mounts.append(Mount(path=path, kind="symlink", source=target.path))
            elif path in MOUNTED_FOLDERS:
                mounts.append(replace(self._mount_opened(opened), path=path))
            else:
                mounts.append(replace(self._mount_opened(target), path=path))
        return tuple(mounts)

    def _add_egress_listener(self, mounts: list[Mount]) -> list[str]:
        """Open the egress channel, and add to `mounts` what the egress listener needs. Return the command that starts the listener and then the server."""
        python = self._find_python()
        mounted = {mount.path for mount in mounts}
        runtime = find_runtime(ProcessSpec(argv=(python,), env={}, cwd="/"), NO_UNTRUSTED, self.resources)
        mounts += [self._mount_opened(opened) for opened in runtime.needed if opened.path not in mounted]
        listener = open_no_symlinks(os.path.realpath(_LISTENER), PathOpener(self.resources))
        script = self._pass_fd(os.dup(listener.fd))
        mounts.append(Mount(path=_LISTENER_IN_SANDBOX, kind="ro-bind", source=str(script)))
        self.egress_channel, sandbox_end = socket.socketpair()
        self.resources.callback(sandbox_end.close)
        number = self._add_fd(sandbox_end.fileno())
        return [python, "-I", "-S", _LISTENER_IN_SANDBOX, str(number), str(PROXY_PORT)]

    def _find_python(self) -> str:
        """A Python that the server's user can run: the host's own, or else `/usr/bin/python3`."""
        opened = open_no_symlinks(OWN_PYTHON, PathOpener(self.resources))
        if _forbidden_folder(opened, *self.user) and Path("/usr/bin/python3").exists():
            return "/usr/bin/python3"
        return OWN_PYTHON

    def _check_cwd(self, mounts: list[Mount]) -> None:
        cwd = self.spec.cwd
        if cwd not in ("/", "/tmp") and not _is_within(cwd, [mount.path for mount in mounts]):
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"Could not start {self.spec.argv[0]!r}: its working directory {cwd!r} is outside its roots. Use a folder inside one.",
            )

    def _check_access(self, opened: OpenedPath) -> None:
        if os.geteuid() == 0 and not self._has_uid_0 and (folder := _forbidden_folder(opened, *self.user)):
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"Could not start {self.spec.argv[0]!r}: it needs {opened.path!r}, but runs as uid {self.user[0]}, which may"
                f" not enter {folder!r}. Let that user enter the folder, or move {opened.path!r} elsewhere.",
            )

    def _add_fd(self, fd: int) -> int:
        """Pass a descriptor to the sandbox. Return its number there."""
        self.descriptors.append(fd)
        return _FIRST_FD + len(self.descriptors) - 1

    def _pass_fd(self, fd: int) -> int:
        """Like `_add_fd`; `resources` also closes it."""
        self.resources.callback(os.close, fd)
        return self._add_fd(fd)

    def _pass_bytes(self, content: bytes) -> int:
        return self._add_fd(open_memory_file(content, self.resources))

    def _open_ready_pipe(self) -> int:
        self.ready_fd, write_end = os.pipe()
        return self._pass_fd(write_end)

    def _open_start_pipe(self) -> int:
        read_end, self.start_fd = os.pipe()
        return self._pass_fd(read_end)


def _open_untrusted(confinement: Confinement, resources: ExitStack) -> list[OpenedPath]:
    """Open the readable folders that a confined process wrote. Nothing in them may decide what else is mounted."""
    return [open_no_symlinks(path, PathOpener(resources)) for path in outermost(confinement.untrusted)]


def _paths_by_identity(folders: Iterable[OpenedPath]) -> dict[Identity, str]:
    return {folder.identity: folder.path for folder in folders}


def _proc_files_for_uid_0() -> list[Path]:
    """The paths in `/proc`, except the folders of processes, that only uid 0 may read. They are hidden from a server that runs as uid 0."""
    paths = [path for path in Path("/proc").iterdir() if not path.name.isdecimal() and not path.is_symlink()]
    return [
        path
        for path in (*paths, *_DEEPER_PROC_FOLDERS)
        if path.exists() and not path.stat().st_mode & stat.S_IROTH
    ]


def _is_within(path: str, folders: Iterable[str]) -> bool:
    return any(is_within(path, folder) for folder in folders)


def _forbidden_folder(opened: OpenedPath, uid: int, gid: int) -> str | None:
    """The outermost folder on a path that this user may not enter; None if there is none."""
    for folder in reversed([*opened.self_and_parents()][1:]):
        info = folder.status
        bit = stat.S_IXUSR if info.st_uid == uid else stat.S_IXGRP if info.st_gid == gid else stat.S_IXOTH
        if uid and not info.st_mode & bit:
            return folder.path
    return None
