"""Bubblewrap: run a confined server in its own namespaces.

The server runs as the host's user. If the host is root, it runs as the owner of its first root.
"""

import asyncio
import os
import platform
import shutil
import socket
import stat
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.bwrap.arguments import (
    PROXY_PORT,
    Filesystem,
    Mount,
    add_proxy_variables,
    build_arguments,
    limit_command,
)
from holdfast.sandbox.bwrap.cgroups import plan_cgroups
from holdfast.sandbox.bwrap.runtime import ProgramRuntime, find_runtime, runtime_paths
from holdfast.sandbox.bwrap.seccomp import compile_filter
from holdfast.sandbox.denied_syscalls import find_architecture
from holdfast.sandbox.keeper.client import KeeperClient
from holdfast.sandbox.keeper.spawn_request import SpawnRequest
from holdfast.sandbox.roots import NOBODY, open_no_symlinks, open_root, server_user
from holdfast.sandbox.sandbox import Availability, PreparedProcess, open_memory_file
from holdfast.sandbox.start_confined import start_confined_unchecked

_CHECK_SECONDS = 20.0
_LISTENER = Path(__file__).with_name("egress_listener.py")
_LISTENER_INSIDE = "/run/holdfast/egress_listener.py"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
# Programs need these files of /etc to start, to know the time, and to check certificates.
_ETC = (
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types"),
    *("/etc/os-release", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust"),
    *("/etc/pki/tls/cert.pem", "/etc/timezone", "/etc/protocols", "/etc/services"),
)


class BwrapSandbox:
    """The default sandbox on Linux. It needs no privileges, no daemon and no image."""

    name = "bwrap"

    def __init__(self, search_path: str | None = None) -> None:
        self._search_path = search_path
        self._lock = asyncio.Lock()
        self._availability: Availability | None = None

    async def check(self) -> Availability:
        """Run `true` in a full sandbox, once; remember whether that worked."""
        async with self._lock:
            if self._availability is None:
                reason = self._unavailable_reason()
                self._availability = (
                    Availability(works=False, reason=reason) if reason else await _run_true(self)
                )
        return self._availability

    def prepare(self, spec: ProcessSpec) -> PreparedProcess:
        """Open every path that the server may see, and build bubblewrap's command."""
        if reason := self._unavailable_reason():
            raise HoldfastError(codes.NO_SANDBOX, reason)
        bwrap, prlimit = self._which("bwrap"), os.path.realpath(self._which("prlimit"))
        with ExitStack() as resources:
            return _ProcessBuilder(spec, resources, bwrap=bwrap, prlimit=prlimit).build()

    def _which(self, program: str) -> str:
        return shutil.which(program, path=self._search_path) or ""

    def _unavailable_reason(self) -> str:
        if sys.platform != "linux":
            return "Bubblewrap needs Linux. Configure a container engine (podman or docker)."
        if find_architecture(platform.machine()) is None:
            return f"The system call filter supports x86_64 and aarch64, not {platform.machine()}. Configure a container engine."
        if not self._which("bwrap"):
            return "bubblewrap (bwrap) is missing. Install your system's package 'bubblewrap'."
        if not self._which("prlimit"):
            return "prlimit is missing. Install your system's package 'util-linux'."
        return ""


async def _run_true(sandbox: BwrapSandbox) -> Availability:
    true = shutil.which("true") or "/bin/true"
    spec = ProcessSpec(argv=(true,), env={}, cwd="/", confinement=Confinement())
    client = KeeperClient()
    client.open()
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            child = await start_confined_unchecked(client, sandbox, spec)
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
        return "Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), or configure a container engine."
    if "unknown option" in stderr.lower():  # bwrap: Unknown option --bind-fd
        return (
            "Install bubblewrap 0.10 or newer, or a package that has --bind-fd (Debian 12: 0.8.0-2+deb12u1)."
        )
    return ""


class _ProcessBuilder:
    """Builds the request for one server: opens its mounts and descriptors, then writes the arguments."""

    def __init__(self, spec: ProcessSpec, resources: ExitStack, *, bwrap: str, prlimit: str) -> None:
        assert spec.confinement is not None
        self.spec = spec
        self.confinement: Confinement = spec.confinement
        self.resources = resources
        self.bwrap, self.prlimit = bwrap, prlimit
        self.descriptors: list[int] = [
            -1
        ]  # for bubblewrap's arguments: set last, because they contain the numbers of the others
        self.user = NOBODY, NOBODY
        self.ready_fd = -1
        self.egress_channel: socket.socket | None = None

    def build(self) -> PreparedProcess:
        root_mounts = self._mount_roots()
        runtime = find_runtime(self.spec)
        command = [
            *limit_command(self.prlimit, self.confinement.quota),
            runtime.program,
            *self.spec.argv[1:],
        ]
        mounts = [*root_mounts, *self._mount_readable(runtime)]
        env = self.spec.env
        if self.confinement.network:
            env = add_proxy_variables(env)
            command = [*self._listener_command(mounts), *command]
        self._check_cwd(mounts)
        filesystem = Filesystem(
            mounts=tuple(mounts), system_mounts=self._mount_system(), files=self._etc_files()
        )
        arch = find_architecture(platform.machine())
        assert arch is not None
        arguments = build_arguments(
            filesystem,
            env=env,
            cwd=self.spec.cwd,
            quota=self.confinement.quota,
            ids=self.user if self.user[0] else (NOBODY, NOBODY),
            fds=(self._pass_bytes(compile_filter(arch)), self._open_ready_pipe()),
        )
        encoded = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
        self.descriptors[0] = open_memory_file(encoded, self.resources)
        host_is_root = os.geteuid() == 0
        request = SpawnRequest(
            argv=(self.bwrap, "--args", "3", "--", *command),
            env={},
            cwd="/",
            descriptors=tuple(self.descriptors),
            run_as=self.user if host_is_root and self.user[0] else None,
            cgroups=plan_cgroups(self.confinement.quota, limit_processes=host_is_root and not self.user[0]),
            has_monitor=True,
            prefer_oom_kill=True,
        )
        return PreparedProcess(
            request=request,
            resources=self.resources.pop_all(),
            ready_fd=self.ready_fd,
            egress_channel=self.egress_channel,
        )

    def _mount_roots(self) -> list[Mount]:
        mounts: list[Mount] = []
        first: int | None = None
        for path in self.confinement.roots:
            fd = open_root(path)
            first = fd if first is None else first
            mounts.append(Mount(path=path, kind="bind", source=str(self._pass_fd(fd))))
        self.user = server_user(first)
        for path in self.confinement.roots:
            self._check_access(path)
        return mounts

    def _mount_readable(self, runtime: ProgramRuntime) -> list[Mount]:
        # Paths inside a root are visible already. Do not mount them: the server may have replaced them with links.
        readable = [
            path for path in self.confinement.readable if not _is_within(path, self.confinement.roots)
        ]
        visible = (*self.confinement.roots, *readable)
        needed = [path for path in runtime.paths if not _is_within(path, visible)]
        return [self._mount_read_only(path) for path in dict.fromkeys((*readable, *needed))]

    def _mount_read_only(self, path: str) -> Mount:
        if os.path.islink(path):  # noqa: PTH114 - recreate the link, do not follow it
            return Mount(path=path, kind="symlink", source=os.readlink(path))  # noqa: PTH115
        self._check_access(path)
        return Mount(path=path, kind="ro-bind", source=str(self._pass_fd(open_no_symlinks(path))))

    def _mount_system(self) -> tuple[Mount, ...]:
        mounts = [self._mount_read_only(path) for path in _SYSTEM if os.path.lexists(path)]
        for path in _ETC:
            if not Path(path).exists():
                continue
            target = os.path.realpath(path)
            if os.path.islink(path) and target.startswith("/usr/"):  # noqa: PTH114
                mounts.append(Mount(path=path, kind="symlink", source=target))
            else:
                mounts.append(
                    Mount(path=path, kind="ro-bind", source=str(self._pass_fd(open_no_symlinks(target))))
                )
        return tuple(mounts)

    def _etc_files(self) -> dict[str, int]:
        uid, gid = self.user if self.user[0] else (NOBODY, NOBODY)
        texts = {
            "/etc/passwd": f"sandbox:x:{uid}:{gid}:sandbox:/tmp:/usr/sbin/nologin\n",
            "/etc/group": f"sandbox:x:{gid}:\n",
            "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
            "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        }
        return {path: self._pass_bytes(text.encode()) for path, text in texts.items()}

    def _listener_command(self, mounts: list[Mount]) -> list[str]:
        """The command that opens the egress listener inside the sandbox, and then executes the server."""
        python = self._find_python()
        mounted = {mount.path for mount in mounts}
        mounts += [self._mount_read_only(path) for path in runtime_paths(python) if path not in mounted]
        script = self._pass_fd(open_no_symlinks(os.path.realpath(_LISTENER)))
        mounts.append(Mount(path=_LISTENER_INSIDE, kind="ro-bind", source=str(script)))
        self.egress_channel, sandbox_end = socket.socketpair()
        self.resources.callback(sandbox_end.close)
        number = 3 + len(self.descriptors)
        self.descriptors.append(sandbox_end.fileno())
        return [python, "-I", "-S", _LISTENER_INSIDE, str(number), str(PROXY_PORT)]

    def _find_python(self) -> str:
        """A Python that the server's user can run: the host's own, or else `/usr/bin/python3`."""
        own = os.path.realpath(sys.executable)
        if _forbidden_folder(own, *self.user) and Path("/usr/bin/python3").exists():
            return "/usr/bin/python3"
        return own

    def _check_cwd(self, mounts: list[Mount]) -> None:
        cwd = self.spec.cwd
        if cwd not in ("/", "/tmp") and not _is_within(cwd, [mount.path for mount in mounts]):
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"Could not start {self.spec.argv[0]!r}: its working directory {cwd!r} is outside its roots. Use a folder inside one.",
            )

    def _check_access(self, path: str) -> None:
        if os.geteuid() == 0 and self.user[0] and (folder := _forbidden_folder(path, *self.user)):
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"Could not start {self.spec.argv[0]!r}: it needs {path!r}, but runs as uid {self.user[0]}, which may"
                f" not enter {folder!r}. Let that user enter the folder, or move {path!r} elsewhere.",
            )

    def _pass_fd(self, fd: int) -> int:
        """Pass a descriptor to the sandbox; return its number there."""
        self.resources.callback(os.close, fd)
        self.descriptors.append(fd)
        return 3 + len(self.descriptors) - 1

    def _pass_bytes(self, content: bytes) -> int:
        self.descriptors.append(open_memory_file(content, self.resources))
        return 3 + len(self.descriptors) - 1

    def _open_ready_pipe(self) -> int:
        self.ready_fd, write_end = os.pipe()
        return self._pass_fd(write_end)


def _is_within(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _forbidden_folder(path: str, uid: int, gid: int) -> str | None:
    """The first parent folder of a path that this user may not enter."""
    for folder in reversed(Path(path).parents):
        info = folder.stat()
        bit = stat.S_IXUSR if info.st_uid == uid else stat.S_IXGRP if info.st_gid == gid else stat.S_IXOTH
        if uid and not info.st_mode & bit:
            return str(folder)
    return None
