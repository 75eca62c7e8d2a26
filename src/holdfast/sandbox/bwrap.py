"""Bubblewrap: a confined server in namespaces of its own, as the owner of its folder."""

import asyncio
import os
import platform
import pwd
import shutil
import socket
import stat
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Confinement, Launch
from holdfast.sandbox import cgroup, profile, seccomp
from holdfast.sandbox.program import Program
from holdfast.sandbox.roots import open_real, open_root
from holdfast.sandbox.runtime import Runtime, runtime, runtime_of
from holdfast.sandbox.sandbox import Availability, Prepared
from holdfast.sandbox.syscalls import architecture

_NOBODY = 65534
_BRIDGE = Path(__file__).with_name("bridge.py")
_BRIDGE_INSIDE = "/run/holdfast/bridge.py"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
# Of /etc, what programs need to start, to know the time, and to trust certificates.
_ETC = (
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types"),
    *("/etc/os-release", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust"),
    *("/etc/pki/tls/cert.pem", "/etc/timezone", "/etc/protocols", "/etc/services"),
)


class Bwrap:
    """The sandbox of most Linux machines; it needs no rights, no daemon and no image."""

    name = "bwrap"

    def __init__(self, path: str | None = None) -> None:
        self._search = path
        self._trying = asyncio.Lock()
        self._found: Availability | None = None

    async def check(self) -> Availability:
        """Try it once for real, with every wall, and remember."""
        async with self._trying:
            if self._found is None:
                self._found = await self._tried()
        return self._found

    def prepare(self, launch: Launch) -> Prepared:
        """Open all that the server may see, and put the walls into words."""
        if missing := self._missing():
            raise HoldfastError(codes.NO_SANDBOX, missing)
        with ExitStack() as opened:
            return _Walls(
                launch, opened, bwrap=self._which("bwrap"), prlimit=os.path.realpath(self._which("prlimit"))
            ).prepared()

    async def _tried(self) -> Availability:
        if missing := self._missing():
            return Availability(works=False, reason=missing)
        from holdfast.sandbox.trial import try_out

        return await try_out(self)

    def _which(self, program: str) -> str:
        return shutil.which(program, path=self._search) or ""

    def _missing(self) -> str:
        if sys.platform != "linux":
            return "Bubblewrap needs Linux. Configure a container engine (podman or docker)."
        if architecture(platform.machine()) is None:
            return f"Our filter of system calls knows x86_64 and aarch64, not {platform.machine()}. Configure a container engine."
        if not self._which("bwrap"):
            return "bubblewrap (bwrap) is missing. Install your system's package 'bubblewrap'."
        if not self._which("prlimit"):
            return "prlimit is missing. Install your system's package 'util-linux'."
        return ""


class _Walls:
    """One server's walls, while they are being put up."""

    def __init__(self, launch: Launch, opened: ExitStack, *, bwrap: str, prlimit: str) -> None:
        assert launch.confinement is not None
        self.launch = launch
        self.confinement: Confinement = launch.confinement
        self.opened = opened
        self.bwrap, self.prlimit = bwrap, prlimit
        self.descriptors: list[int] = [-1]  # the first is for the arguments, which come last
        self.user = _NOBODY, _NOBODY
        self.stands = -1
        self.bridge: socket.socket | None = None

    def prepared(self) -> Prepared:
        roots = self._roots()
        needed = runtime(self.launch)
        command = [
            *profile.limits(self.prlimit, self.confinement.quota),
            needed.program,
            *self.launch.argv[1:],
        ]
        mounts = [*roots, *self._readable(needed), *self._hidden()]
        env = self.launch.env
        if self.confinement.network:
            env = profile.proxied(env)
            command = [*self._bridged(mounts), *command]
        self._check_folder(mounts)
        view = profile.View(mounts=tuple(mounts), system=self._system(), files=self._small_files())
        arch = architecture(platform.machine())
        assert arch is not None
        words = profile.arguments(
            view,
            env=env,
            cwd=self.launch.cwd,
            quota=self.confinement.quota,
            ids=self.user if self.user[0] else (_NOBODY, _NOBODY),
            fds=(self._content(seccomp.program(arch)), self._stands()),
        )
        self.descriptors[0] = self._memory(b"".join(os.fsencode(word) + b"\0" for word in words))
        program = Program(
            argv=(self.bwrap, "--args", "3", "--", *command),
            env={},
            cwd="/",
            descriptors=tuple(self.descriptors),
            user=self.user if os.geteuid() == 0 and self.user[0] else None,
            cgroups=cgroup.groups(self.confinement.quota, processes=os.geteuid() == 0 and not self.user[0]),
            monitor=True,
            first_to_go=True,
        )
        return Prepared(program=program, opened=self.opened.pop_all(), stands=self.stands, bridge=self.bridge)

    def _roots(self) -> list[profile.Mount]:
        mounts: list[profile.Mount] = []
        for place in self.confinement.roots:
            fd = open_root(place)
            mounts.append(profile.Mount(place=place, kind="bind", source=str(self._passed(fd))))
            if len(mounts) == 1:
                self.user = _owner(fd)
        if os.geteuid() != 0:
            self.user = os.geteuid(), os.getegid()
        for place in self.confinement.roots:
            self._check_reach(place)
        return mounts

    def _readable(self, needed: Runtime) -> list[profile.Mount]:
        # What lies in a root is seen as part of it, and not to be believed, links least of all.
        readable = [
            place for place in self.confinement.readable if not _within(place, self.confinement.roots)
        ]
        seen = (*self.confinement.roots, *readable)
        needs = [place for place in needed.needs if not _within(place, seen)]
        return [self._read_only(place) for place in dict.fromkeys((*readable, *needs))]

    def _hidden(self) -> list[profile.Mount]:
        return [
            profile.Mount(place=place, kind="hidden")
            for place in map(os.path.realpath, self.confinement.hidden)
            if _within(place, self.confinement.roots) and Path(place).is_dir()
        ]

    def _read_only(self, place: str) -> profile.Mount:
        if os.path.islink(place):  # noqa: PTH114 - what it says is shown, not where it leads
            return profile.Mount(place=place, kind="symlink", source=os.readlink(place))  # noqa: PTH115
        self._check_reach(place)
        return profile.Mount(place=place, kind="ro-bind", source=str(self._passed(open_real(place))))

    def _system(self) -> tuple[profile.Mount, ...]:
        mounts = [self._read_only(place) for place in _SYSTEM if os.path.lexists(place)]
        for place in _ETC:
            if not Path(place).exists():
                continue
            if os.path.islink(place) and os.path.realpath(place).startswith("/usr/"):  # noqa: PTH114
                target = os.path.realpath(place)
                mounts.append(profile.Mount(place=place, kind="symlink", source=target))
            else:
                fd = open_real(os.path.realpath(place))
                mounts.append(profile.Mount(place=place, kind="ro-bind", source=str(self._passed(fd))))
        return tuple(mounts)

    def _small_files(self) -> dict[str, int]:
        uid, gid = self.user if self.user[0] else (_NOBODY, _NOBODY)
        texts = {
            "/etc/passwd": f"sandbox:x:{uid}:{gid}:sandbox:/tmp:/usr/sbin/nologin\n",
            "/etc/group": f"sandbox:x:{gid}:\n",
            "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
            "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        }
        return {place: self._content(text.encode()) for place, text in texts.items()}

    def _bridged(self, mounts: list[profile.Mount]) -> list[str]:
        """The way out: what runs first inside, and our end of its socket."""
        python = self._python()
        shown = {mount.place for mount in mounts}
        mounts += [self._read_only(place) for place in runtime_of(python) if place not in shown]
        bridge = self._passed(open_real(os.path.realpath(_BRIDGE)))
        mounts.append(profile.Mount(place=_BRIDGE_INSIDE, kind="ro-bind", source=str(bridge)))
        self.bridge, theirs = socket.socketpair()
        self.opened.callback(theirs.close)
        number = 3 + len(self.descriptors)
        self.descriptors.append(theirs.fileno())
        return [python, "-I", "-S", _BRIDGE_INSIDE, str(number), str(profile.PROXY_PORT)]

    def _python(self) -> str:
        """A Python that the server's user can run: our own, or the system's."""
        ours = os.path.realpath(sys.executable)
        if _unreachable(ours, *self.user) and Path("/usr/bin/python3").exists():
            return "/usr/bin/python3"
        return ours

    def _check_folder(self, mounts: list[profile.Mount]) -> None:
        cwd = self.launch.cwd
        if cwd not in ("/", "/tmp") and not _within(cwd, [mount.place for mount in mounts]):
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"Could not start {self.launch.argv[0]!r}: its working folder {cwd!r} is outside its roots. Name one inside.",
            )

    def _check_reach(self, place: str) -> None:
        if os.geteuid() == 0 and self.user[0] and (wall := _unreachable(place, *self.user)):
            raise HoldfastError(
                codes.SPAWN_FAILED,
                f"Could not start {self.launch.argv[0]!r}: it runs as the owner of its folder (uid {self.user[0]}),"
                f" who may not enter {wall!r}. Install the program where everybody can read it.",
            )

    def _passed(self, fd: int) -> int:
        """Pass a descriptor on; the number it will have there."""
        self.opened.callback(os.close, fd)
        self.descriptors.append(fd)
        return 3 + len(self.descriptors) - 1

    def _content(self, content: bytes) -> int:
        fd = self._memory(content)
        self.descriptors.append(fd)
        return 3 + len(self.descriptors) - 1

    def _memory(self, content: bytes) -> int:
        fd = os.memfd_create("holdfast")
        self.opened.callback(os.close, fd)
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def _stands(self) -> int:
        self.stands, write_end = os.pipe()
        return self._passed(write_end)


def _within(place: str, folders: Iterable[str]) -> bool:
    return any(place == folder or place.startswith(f"{folder}/") for folder in folders)


def _owner(fd: int) -> tuple[int, int]:
    """The owner of a folder, with their own group: a folder's group may carry rights of others."""
    found = os.fstat(fd)
    try:
        return found.st_uid, pwd.getpwuid(found.st_uid).pw_gid
    except KeyError:
        return found.st_uid, found.st_gid


def _unreachable(path: str, uid: int, gid: int) -> str | None:
    """The first folder on the way to a path that this user may not enter."""
    for folder in reversed(Path(path).parents):
        found = folder.stat()
        bit = stat.S_IXUSR if found.st_uid == uid else stat.S_IXGRP if found.st_gid == gid else stat.S_IXOTH
        if uid and not found.st_mode & bit:
            return str(folder)
    return None
