"""Run the escape probes in a sandbox, and report which were stopped."""

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.model.loop_pipes import connect_read_pipe
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.model.quota import Quota
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.own_code import OWN_PYTHON

_SCRIPT = Path(__file__).with_name("escape_probes.py")
_TIMEOUT_SECONDS = 60.0
_GRACE_SECONDS = 0.2
QUOTA = Quota(memory_bytes=512 << 20, processes=64, file_bytes=64 << 20, descriptors=256)

ESCAPE_PROBES: Mapping[str, str] = {
    "read_outside": "read a file outside its roots",
    "read_by_link": "read outside its roots by a symbolic link",
    "read_host_environment": "read the host's environment",
    "see_processes": "see other processes",
    "signal_processes": "signal other processes",
    "trace_processes": "trace other processes",
    "reach_loopback": "connect to the host's loopback",
    "reach_metadata": "connect to the cloud's metadata address",
    "resolve_names": "send to a name server",
    "reach_unix_socket": "connect to a Unix socket in a root",
    "send_to_unix_socket": "send a datagram to a Unix socket in a root",
    "reach_hypervisor": "open a socket to the hypervisor",
    "mount_filesystem": "mount a file system",
    "make_namespaces": "create namespaces",
    "use_io_uring": "use io_uring",
    "use_keyrings": "use the kernel's keyrings",
    "gain_privileges": "gain privileges",
    "leave_setuid_file": "leave a setuid file behind",
    "link_files": "give a file a second name (hard link)",
    "write_to_system": "write to system folders",
    "make_processes": "start more processes than its quota",
    "take_memory": "allocate more memory than its quota",
    "open_files": "open more files than its quota",
    "write_large_file": "write a larger file than its quota",
    "survive": "leave a daemon running after it has ended",
}
"""Every probe, with a description for users."""
# Unconfined, these would send to the network.
_NETWORK_PROBES = frozenset({"reach_metadata", "resolve_names"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """Whether a probe was stopped, and if not, what it achieved."""

    probe: str
    stopped: bool
    achieved: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTargets:
    """What the probes attack: a secret file, listeners, a process."""

    folder: Path
    message: Mapping[str, object]
    """The paths, the port and the pid of the targets, as the probes read them."""

    @property
    def root(self) -> Path:
        return self.folder / "root"


async def run_escape_probes(
    keeper: Keeper, *, confined: bool = True, python: str = ""
) -> tuple[ProbeResult, ...]:
    """Run every probe in a process that this keeper starts. If it is not confined, skip the probes that use the network.

    `python` is the interpreter that runs the probes. The default is the host's; a container image has its own.
    """
    with make_targets() as targets:
        probes = [name for name in ESCAPE_PROBES if confined or name not in _NETWORK_PROBES]
        child = await keeper.spawn(_probe_process(targets, python or OWN_PYTHON, confined=confined))
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                achieved = await _run_probes(child, _encode_targets(targets, probes, confined=confined))
            child.stdin.close()
            await child.end(_GRACE_SECONDS)
        finally:
            child.terminate()
            child.close()
        if "survive" in achieved:
            achieved["survive"] = _kill_survivor(targets)
    return tuple(
        ProbeResult(probe=name, stopped=achieved[name] is None, achieved=achieved[name] or "")
        for name in probes
    )


@contextmanager
def make_targets() -> Iterator[ProbeTargets]:
    """Create everything that the probes attack; remove it afterwards."""
    secret, mark = secrets.token_hex(16), f"victim-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        folder = Path(os.path.realpath(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))))
        root = folder / "root"
        root.mkdir()
        (folder / "canary").write_text(secret)
        victim = stack.enter_context(_start_victim(mark, secret))
        message = {
            "root": str(root),
            "canary": str(folder / "canary"),
            "secret": secret,
            "victim": victim,
            "victim_mark": mark,
            "port": stack.enter_context(_listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))),
            "unix_socket": str(root / "stream"),
            "unix_datagrams": str(root / "datagrams"),
        }
        stack.enter_context(_listen(socket.AF_UNIX, socket.SOCK_STREAM, str(root / "stream")))
        stack.enter_context(_listen(socket.AF_UNIX, socket.SOCK_DGRAM, str(root / "datagrams")))
        yield ProbeTargets(folder=folder, message=message)


def _encode_targets(targets: ProbeTargets, probes: list[str], *, confined: bool) -> bytes:
    # In a sandbox, process 1 is the sandbox's own. Outside, it is the machine's init, which must not be traced.
    trace_targets = [1] if confined else [targets.message["victim"]]
    message = {**targets.message, "probes": probes, "trace_targets": trace_targets, "quota": asdict(QUOTA)}
    return json.dumps(message).encode() + b"\n"


def _probe_process(targets: ProbeTargets, python: str, *, confined: bool) -> ProcessSpec:
    confinement = Confinement(roots=(str(targets.root),), readable=(os.path.realpath(_SCRIPT),), quota=QUOTA)
    return ProcessSpec(
        argv=(python, "-I", "-S", os.path.realpath(_SCRIPT)),
        env={"PATH": os.defpath},
        cwd=str(targets.root),
        confinement=confinement if confined else None,
    )


async def _run_probes(child: Child, message: bytes) -> dict[str, str | None]:
    reader = asyncio.StreamReader(limit=1 << 20)
    pipe, _ = await connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), child.stdout)
    try:
        child.stdin.write(message)
        line = await reader.readline()
    finally:
        pipe.close()
    if not line:
        await child.wait()
        os.set_blocking(child.stderr.fileno(), False)
        stderr = (child.stderr.read() or b"").decode(errors="replace")
        raise RuntimeError(f"The escape probes returned no result: {stderr}")
    return json.loads(line)


def _kill_survivor(targets: ProbeTargets) -> str | None:
    """Kill the daemon of the probe `survive`, and return what the probe achieved. None if the daemon has ended already."""
    with (targets.root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((targets.root / "daemon").read_text()), signal.SIGKILL)
            return "left a daemon running"
    return None


@contextmanager
def _start_victim(mark: str, secret: str) -> Iterator[int]:
    process = subprocess.Popen(
        [OWN_PYTHON, "-I", "-S", "-c", "import sys; sys.stdin.read()", mark],
        env={"HOLDFAST_CANARY": secret},
        stdin=subprocess.PIPE,
    )
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _listen(family: int, kind: int, address: tuple[str, int] | str) -> Iterator[int]:
    with socket.socket(family, kind) as listener:
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen(8)
        yield listener.getsockname()[1] if family == socket.AF_INET else 0
