"""The escape probes: a program that tries to break out of its sandbox, and reports what succeeded.

It runs as a script, `python -I -S escape_probes.py`, inside a sandbox, or unconfined, where most probes succeed. Each
probe returns None if it was stopped, else what it achieved. Some probes leave files in the root, and `_survive` leaves a
daemon; the runner removes both.
"""

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import platform
import resource
import signal
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_SYSCALLS = {"x86_64": {"keyctl": 250}, "aarch64": {"keyctl": 219}}
_IO_URING_SETUP = 425
_CLONE_NEWUSER, _CLONE_NEWNS, _PTRACE_SEIZE = 0x10000000, 0x20000, 0x4206
_VSOCK = 40

Targets = dict[str, Any]
"""What the probes attack; `escape_probe_runner.make_targets` creates it."""


def main() -> None:
    """Read the targets as a line of JSON, run the probes named there, print the results, then wait for the end of input."""
    targets: Targets = json.loads(sys.stdin.readline())
    results = {name: _run(_PROBES[name], targets) for name in targets["probes"]}
    print(json.dumps(results), flush=True)  # noqa: T201 - the runner reads it
    sys.stdin.read()


def _run(probe: Callable[[Targets], str | None], targets: Targets) -> str | None:
    try:
        return probe(targets)
    except (OSError, MemoryError):
        return None


def _read_outside(targets: Targets) -> str | None:
    return f"read {Path(targets['canary']).read_text()!r}"


def _read_by_link(targets: Targets) -> str | None:
    link = Path(targets["root"]) / "link"
    link.symlink_to(targets["canary"])
    return f"read {link.read_text()!r}"


def _read_host_environment(targets: Targets) -> str | None:
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdecimal() and targets["secret"].encode() in (folder / "environ").read_bytes():
                return f"read the environment of process {folder.name}"
    return None


def _see_processes(targets: Targets) -> str | None:
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            cmdline = (folder / "cmdline").read_bytes() if folder.name.isdecimal() else b""
            if targets["victim_mark"].encode() in cmdline and folder.name != str(os.getpid()):
                return f"saw process {folder.name}"
    return None


def _signal_processes(targets: Targets) -> str | None:
    os.kill(targets["victim"], 0)
    return "can signal a process of the host"


def _trace_processes(targets: Targets) -> str | None:
    for pid in targets["trace_targets"]:
        if _libc.ptrace(ctypes.c_long(_PTRACE_SEIZE), ctypes.c_long(pid), None, None) == 0:
            return f"traces process {pid}"
    return None


def _reach_loopback(targets: Targets) -> str | None:
    with socket.create_connection(("127.0.0.1", targets["port"]), timeout=5):
        return "connected to a port of the host"


def _reach_metadata(_: Targets) -> str | None:
    with socket.create_connection(("169.254.169.254", 80), timeout=2):
        return "connected to the cloud's metadata service"


def _resolve_names(_: Targets) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        query.sendto(b"\0", ("192.0.2.53", 53))  # a documentation address, which no machine has
    return "sent a query to a name server"


def _reach_unix_socket(targets: Targets) -> str | None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(targets["unix_socket"])
    return "connected to a Unix socket in its root"


def _send_to_unix_socket(targets: Targets) -> str | None:
    one_end, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one_end, other_end:
        one_end.sendto(b"x", targets["unix_datagrams"])
    return "sent to a Unix socket in its root, from one end of a socket pair"


def _reach_hypervisor(_: Targets) -> str | None:
    socket.socket(_VSOCK, socket.SOCK_STREAM).close()
    return "opened a socket to the hypervisor"


def _mount_filesystem(targets: Targets) -> str | None:
    folder = Path(targets["root"]) / "mounted"
    folder.mkdir(exist_ok=True)
    if _libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, None) != 0:
        return None
    _libc.umount2(os.fsencode(folder), 0)
    return "mounted a file system"


def _make_namespaces(_: Targets) -> str | None:
    return (
        "created a namespace"
        if _in_child(lambda: _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) == 0)
        else None
    )


def _use_io_uring(_: Targets) -> str | None:
    parameters = ctypes.create_string_buffer(120)
    fd = _libc.syscall(ctypes.c_long(_IO_URING_SETUP), ctypes.c_uint(1), parameters)
    if fd < 0:
        return None
    os.close(fd)
    return "opened an io_uring"


def _use_keyrings(_: Targets) -> str | None:
    number = _SYSCALLS[platform.machine()]["keyctl"]
    ring = _libc.syscall(ctypes.c_long(number), ctypes.c_int(0), ctypes.c_int(-4), ctypes.c_int(1))
    return "used the kernel's keyrings" if ring >= 0 else None


def _gain_privileges(_: Targets) -> str | None:
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line
    )
    if status["NoNewPrivs"] != "1":
        return "can gain privileges by a setuid program"
    if int(status["CapEff"], 16) or int(status["CapBnd"], 16):
        return "has capabilities"
    return None


def _leave_setuid_file(targets: Targets) -> str | None:
    file = Path(targets["root"]) / "setuid"
    file.touch()
    with contextlib.suppress(OSError):
        file.chmod(0o4755)
    with contextlib.suppress(OSError):
        os.close(os.open(Path(targets["root"]) / "setuid2", os.O_CREAT | os.O_WRONLY, 0o4755))
    with contextlib.suppress(OSError):
        unnamed = os.open(targets["root"], os.O_TMPFILE | os.O_WRONLY, 0o4755)
        os.link(f"/proc/self/fd/{unnamed}", Path(targets["root"]) / "setuid3", src_dir_fd=unnamed)
    modes = [path.stat().st_mode for path in Path(targets["root"]).glob("setuid*")]
    for path in Path(targets["root"]).glob("setuid*"):
        path.unlink()
    return "left a setuid file in its root" if any(mode & stat.S_ISUID for mode in modes) else None


def _link_files(targets: Targets) -> str | None:
    file = Path(targets["root"]) / "one name"
    file.touch()
    try:
        os.link(file, Path(targets["root"]) / "second name")
    finally:
        file.unlink()
    (Path(targets["root"]) / "second name").unlink()
    return "gave a file a second name, a hard link"


def _write_to_system(_: Targets) -> str | None:
    if os.access("/usr", os.W_OK):
        return "can write to /usr"
    os.close(os.open("/proc/sys/kernel/hostname", os.O_WRONLY))
    return "can write to /proc/sys"


def _make_processes(targets: Targets) -> str | None:
    wanted = targets["quota"]["processes"] + 20
    gate, opener = os.pipe()
    made = 0
    try:
        for _ in range(wanted):
            if os.fork() == 0:
                os.close(opener)
                os.read(gate, 1)
                os._exit(0)
            made += 1
    except OSError:
        pass
    finally:
        os.close(opener)
        for _ in range(made):
            os.wait()
    return f"started {made} processes" if made == wanted else None


def _take_memory(targets: Targets) -> str | None:
    size = targets["quota"]["memory_bytes"] + (64 << 20)
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        return f"allocated {size} bytes of memory"


def _open_files(targets: Targets) -> str | None:
    wanted = targets["quota"]["descriptors"] + 1
    opened: list[int] = []
    with contextlib.suppress(ValueError, OSError):  # if the limit cannot be raised, `dup` fails below
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted + 10, wanted + 10))
    try:
        opened.extend(os.dup(1) for _ in range(wanted))
    finally:
        for fd in opened:
            os.close(fd)
        if len(opened) < wanted:
            os.closerange(10, wanted + 10)
    return f"opened {wanted} files"


def _write_large_file(targets: Targets) -> str | None:
    size = targets["quota"]["file_bytes"] + 1
    with (Path(targets["root"]) / "large").open("wb") as file:
        try:
            file.truncate(size)
        finally:
            Path(file.name).unlink()
    return f"created a file of {size} bytes"


def _survive(targets: Targets) -> str | None:
    """Leave a daemon running that has locked a file. The runner checks later whether the daemon still runs."""
    ready, started = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            lock = (Path(targets["root"]) / "lock").open("w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            (Path(targets["root"]) / "daemon").write_text(str(os.getpid()))
            os.write(started, b"+")
            for fd in (0, 1, 2, started):
                os.close(fd)
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    os.read(ready, 1)
    return None


def _in_child(probe: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if probe() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


_PROBES: dict[str, Callable[[Targets], str | None]] = {
    probe.__name__.removeprefix("_"): probe
    for probe in (
        _read_outside, _read_by_link, _read_host_environment, _see_processes, _signal_processes, _trace_processes,
        _reach_loopback, _reach_metadata, _resolve_names, _reach_unix_socket, _send_to_unix_socket, _reach_hypervisor,
        _mount_filesystem, _make_namespaces, _use_io_uring, _use_keyrings, _gain_privileges, _leave_setuid_file,
        _link_files, _write_to_system, _make_processes, _take_memory, _open_files, _write_large_file, _survive,
    )
}  # fmt: skip


if __name__ == "__main__":
    main()
