"""The escape probes: set a scene, let a server try to break out, and see what held."""

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.model.launch import Confinement, Launch, Quota
from holdfast.sandbox.child import Child
from holdfast.sandbox.keeper import Keeper

_INSIDE = Path(__file__).with_name("inside.py")
_SECONDS = 60.0
_GRACE = 0.2
QUOTA = Quota(memory_bytes=512 << 20, processes=64, file_bytes=64 << 20, descriptors=256)

# What each attempt is, for people. Those in LEAVING would leave the machine where nothing stops them.
ATTEMPTS: Mapping[str, str] = {
    "read_outside": "read a file outside its roots",
    "read_by_link": "read it by a symbolic link in a root",
    "host_environment": "read the host's environment",
    "other_processes": "see other processes",
    "signal_others": "signal other processes",
    "trace_others": "trace other processes",
    "reach_loopback": "connect to the host's loopback",
    "reach_metadata": "connect to the cloud's metadata address",
    "resolve_names": "send to a name server",
    "reach_unix_socket": "connect to a Unix socket in a root",
    "send_to_unix_socket": "send a datagram to a Unix socket in a root",
    "reach_hypervisor": "open a socket to the hypervisor",
    "mount_things": "mount a file system",
    "make_namespaces": "make namespaces",
    "use_io_uring": "use io_uring",
    "use_keyrings": "use the kernel's keyrings",
    "gain_rights": "gain rights",
    "leave_setuid_file": "leave a setuid file behind",
    "write_to_system": "write to the system",
    "make_processes": "make more processes than its quota",
    "take_memory": "take more memory than its quota",
    "open_files": "open more files than its quota",
    "write_large_file": "write a larger file than its quota",
    "survive": "survive its end as a daemon",
}
LEAVING = frozenset({"reach_metadata", "resolve_names"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One attempt: whether it was stopped, and if not, what it achieved."""

    attempt: str
    held: bool
    achieved: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What there is to break into: folders, a secret, listeners, a process."""

    folder: Path
    facts: Mapping[str, object]

    @property
    def root(self) -> Path:
        """The folder that a probe may use."""
        return self.folder / "root"


async def probe(keeper: Keeper, *, confined: bool = True, python: str = "") -> tuple[Outcome, ...]:
    """Run every attempt in a server of this keeper's; unconfined, those that stay on this machine.

    `python` is the one to run inside, where it is not ours: an image has its own.
    """
    with scene() as found:
        attempts = [name for name in ATTEMPTS if confined or name not in LEAVING]
        child = await keeper.spawn(_launch(found, python or _python(), confined=confined))
        try:
            async with asyncio.timeout(_SECONDS):
                achieved = await _answer(child, _asked(found, attempts, confined=confined))
            child.stdin.close()
            await child.end(_GRACE)
        finally:
            child.let_go()
            child.close()
        if "survive" in achieved:
            achieved["survive"] = _survivor(found)
    return tuple(
        Outcome(attempt=name, held=achieved[name] is None, achieved=achieved[name] or "") for name in attempts
    )


@contextmanager
def scene() -> Iterator[Scene]:
    """Everything a probe could break into, made for it and removed after it."""
    secret, mark = secrets.token_hex(16), f"victim-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        folder = Path(os.path.realpath(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))))
        root = folder / "root"
        root.mkdir()
        (folder / "canary").write_text(secret)
        victim = stack.enter_context(_victim(mark, secret))
        facts = {
            "root": str(root),
            "canary": str(folder / "canary"),
            "secret": secret,
            "victim": victim,
            "victim_mark": mark,
            "port": stack.enter_context(_listening(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))),
            "unix_socket": str(root / "stream"),
            "unix_datagrams": str(root / "datagrams"),
        }
        stack.enter_context(_listening(socket.AF_UNIX, socket.SOCK_STREAM, str(root / "stream")))
        stack.enter_context(_listening(socket.AF_UNIX, socket.SOCK_DGRAM, str(root / "datagrams")))
        yield Scene(folder=folder, facts=facts)


def _asked(found: Scene, attempts: list[str], *, confined: bool) -> bytes:
    # Inside, process 1 is the sandbox's own, and there to be traced; outside, leave the keeper alone.
    traceable = [1] if confined else [found.facts["victim"]]
    facts = {**found.facts, "attempts": attempts, "traceable": traceable, "quota": asdict(QUOTA)}
    return json.dumps(facts).encode() + b"\n"


def _launch(found: Scene, python: str, *, confined: bool) -> Launch:
    confinement = Confinement(roots=(str(found.root),), readable=(os.path.realpath(_INSIDE),), quota=QUOTA)
    return Launch(
        argv=(python, "-I", "-S", os.path.realpath(_INSIDE)),
        env={"PATH": os.defpath},
        cwd=str(found.root),
        confinement=confinement if confined else None,
    )


def _python() -> str:
    return os.path.realpath(sys.executable)


async def _answer(child: Child, asked: bytes) -> dict[str, str | None]:
    reader = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), child.stdout)
    try:
        child.stdin.write(asked)
        line = await reader.readline()
    finally:
        pipe.close()
    if not line:
        await child.wait()
        os.set_blocking(child.stderr.fileno(), False)
        raise RuntimeError(
            f"The probe did not answer: {(child.stderr.read() or b'').decode(errors='replace')}"
        )
    return json.loads(line)


def _survivor(found: Scene) -> str | None:
    """Whether the daemon still holds its lock; one that does is ended, as far as it can be found."""
    with (found.root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((found.root / "daemon").read_text()), signal.SIGKILL)
            return "left a daemon running"
    return None


@contextmanager
def _victim(mark: str, secret: str) -> Iterator[int]:
    process = subprocess.Popen(
        [_python(), "-I", "-S", "-c", "import sys; sys.stdin.read()", mark],
        env={"HOLDFAST_CANARY": secret},
        stdin=subprocess.PIPE,
    )
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _listening(family: int, kind: int, address: tuple[str, int] | str) -> Iterator[int]:
    with socket.socket(family, kind) as listener:
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen(8)
        yield listener.getsockname()[1] if family == socket.AF_INET else 0
