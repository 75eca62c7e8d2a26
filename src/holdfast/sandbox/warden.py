"""The keeper's own process: it forks a warden for each server, which ends all of it when the host lets go.

Run alone, as `python -I -S warden.py FD`: the standard library only, one thread, nothing of the host's.
"""

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

_SET_PDEATHSIG, _SET_SUBREAPER = 1, 36
_HOST_GONE_GRACE = 1.0  # between SIGTERM and SIGKILL when nobody is left to say how long
_LEFTOVER_GRACE = 0.5  # the same, for what a server left behind when it went by itself
_STUBBORN = 5.0  # what SIGKILL has not ended by then is another user's, or stuck in the kernel
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Fork a warden for every socket that the host sends; stay until the last of them is done."""
    control = socket.socket(fileno=int(sys.argv[1]))
    _libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)  # what a killed warden leaves behind comes to us
    gc.disable()
    gc.freeze()
    poll, wakeup = _poll_with_signals()
    poll.register(control, select.POLLIN)
    host = _watch_peer(control, poll)
    wardens: set[int] = set()
    listening = True
    while listening or wardens:
        ready = {fd for fd, _ in poll.poll()}
        _drain(wakeup)
        if listening and control.fileno() in ready:
            socket_fd = _receive_socket(control)
            if socket_fd is None:
                listening = False
            else:
                wardens.add(_fork_warden(control, socket_fd))
        if host in ready:
            listening = False
        if not listening:
            for fd in (control.fileno(), host):
                with contextlib.suppress(KeyError, ValueError):
                    poll.unregister(fd)
        _reap_wardens(wardens)


def _receive_socket(control: socket.socket) -> int | None:
    try:
        _, fds = _receive(control, 1)
    except OSError:
        return None
    return fds[0] if fds else None


def _fork_warden(control: socket.socket, socket_fd: int) -> int:
    pid = os.fork()
    if pid:
        os.close(socket_fd)
        return pid
    status = 1
    try:
        control.close()
        _Warden(socket.socket(fileno=socket_fd)).run()
        status = 0
    finally:
        os._exit(status)


def _reap_wardens(wardens: set[int]) -> None:
    orphans = False
    for pid, status in _reaped():
        orphans = orphans or status != 0 or pid not in wardens
        wardens.discard(pid)
    if orphans:  # a warden was killed, and what it watched has come to us: nobody else would end it
        for pid, parent in _processes():
            if parent == os.getpid() and pid not in wardens:
                _signal(pid, signal.SIGKILL)


class _Warden:
    """Starts one server, waits for the host's word or its end, and leaves nothing of the server behind."""

    def __init__(self, host: socket.socket) -> None:
        self.host = host
        self.poll, self.wakeup = _poll_with_signals()
        self.host_process = _watch_peer(host, self.poll)
        self.order: dict[str, Any] = {}
        self.pid = 0
        self.report = -1
        self.deadline: float | None = None
        self.killing_since: float | None = None
        self.kill_after = _HOST_GONE_GRACE
        self.started = False
        self.asked_politely = False

    def run(self) -> None:
        _libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
        order = _receive_order(self.host)
        if order is None:
            return
        self.order, fds = order
        cgroups = _Cgroups(self.order["cgroups"])
        try:
            self._start(fds, cgroups)
            self.poll.register(self.host, select.POLLIN)
            while self._alive():
                self._turn()
        finally:
            self._say_farewell()
            cgroups.remove()

    def _start(self, fds: list[int], cgroups: "_Cgroups") -> None:
        self.report, report_end = os.pipe()
        self.poll.register(self.report, select.POLLIN)
        self.pid = os.fork()
        if self.pid == 0:
            _become_server(self.order, fds, report_end, cgroups)
        os.close(report_end)
        for fd in fds:
            os.close(fd)

    def _turn(self) -> None:
        wait = None if self.deadline is None else max(0.0, self.deadline - time.monotonic()) * 1000
        for fd, _ in self.poll.poll(wait):
            if fd == self.report:
                self._read_report()
            elif fd == self.host.fileno():
                self._obey()
            elif fd == self.host_process:
                self._end_now(_HOST_GONE_GRACE)
            else:
                _drain(self.wakeup)
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self._next_step()

    def _read_report(self) -> None:
        """The server's start either succeeded, which closes the pipe, or tells why not."""
        if self.report < 0:
            return
        problem = os.read(self.report, 4096)
        self.poll.unregister(self.report)
        os.close(self.report)
        self.report = -1
        self.started = not problem
        self._tell({"failed": json.loads(problem)} if problem else {"started": self.pid})

    def _obey(self) -> None:
        try:
            data = self.host.recv(64)
        except OSError:
            data = b""
        if not data:
            self.poll.unregister(self.host)
            self._end_now(_HOST_GONE_GRACE)
        elif not self.asked_politely:
            self.kill_after = float(data.split()[-1])
            self.deadline = time.monotonic() + self.kill_after

    def _end_now(self, kill_after: float) -> None:
        if not self.asked_politely:
            self.kill_after = kill_after
            self.asked_politely = not self.started  # what is not a server yet need not be asked
            self.deadline = time.monotonic()

    def _next_step(self) -> None:
        """Ask the whole tree to go; the next time, make it."""
        now = time.monotonic()
        if not self.asked_politely:
            self.asked_politely = True
            monitor = self.pid if self.order["monitor"] else None
            for pid in _descendants(os.getpid()):
                if pid != monitor:
                    _signal(pid, signal.SIGTERM)
            self.deadline = now + self.kill_after
            return
        self.killing_since = self.killing_since or now
        for pid in _descendants(os.getpid()):
            _signal(pid, signal.SIGKILL)
        self.deadline = now + 0.02

    def _alive(self) -> bool:
        """Reap what ended; whether anything is left to watch."""
        for pid, status in _reaped():
            if pid == self.pid:
                self._read_report()  # it may have ended before we looked
                self._tell({"exited": os.waitstatus_to_exitcode(status)})
                self._end_now(_LEFTOVER_GRACE)
        if not _has_children():
            return False
        if self.killing_since is not None and time.monotonic() > self.killing_since + _STUBBORN:
            self._tell({"left": " ".join(map(str, _descendants(os.getpid())))})
            return False
        return True

    def _say_farewell(self) -> None:
        if self.order["farewell"]:
            import subprocess

            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    self.order["farewell"], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, timeout=20,
                )  # fmt: skip

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self.host.sendall(json.dumps(message).encode() + b"\n")


def _become_server(order: dict[str, Any], fds: list[int], report: int, cgroups: "_Cgroups") -> NoReturn:
    stage = "descriptors"
    try:
        count = len(fds)
        report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, count)
        moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, count) for fd in fds]
        for target, fd in enumerate(moved):
            os.dup2(fd, target)
        os.setsid()
        stage = "cgroup"
        cgroups.join()
        if order["first_to_go"]:
            with contextlib.suppress(OSError):
                Path("/proc/self/oom_score_adj").write_text("1000")
        stage = "user"
        if order["user"] is not None:
            uid, gid = order["user"]
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        _libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python's own doing, which an exec would keep
            signal.signal(ignored, signal.SIG_DFL)
        stage = "folder"
        os.chdir(order["cwd"])
        stage = "program"
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except BaseException as error:
        number = error.errno if isinstance(error, OSError) else None
        os.write(report, json.dumps([stage, number, str(error)]).encode()[:4096])
    finally:
        os._exit(127)


class _Cgroups:
    """The control groups of one server: made before it, removed after it."""

    def __init__(self, wanted: list[tuple[str, dict[str, str]]]) -> None:
        self.folders = [Path(parent) / f"holdfast-{os.getpid()}" for parent, _ in wanted]
        self.limits = [limits for _, limits in wanted]

    def join(self) -> None:
        for folder, limits in zip(self.folders, self.limits, strict=True):
            folder.mkdir()
            for name, value in limits.items():
                (folder / name).write_text(value)
            (folder / "cgroup.procs").write_text("0")

    def remove(self) -> None:
        for folder in self.folders:
            for _ in range(50):  # a process may be gone for us and not yet for its group
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
                else:
                    break


def _receive_order(host: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    data, fds = _receive(host, 65536)
    while not data.endswith(b"\n"):
        more = host.recv(1 << 20)
        if not more:
            return None
        data += more
    order = json.loads(data)
    if len(fds) != order["descriptors"]:
        raise OSError(f"{order['descriptors'] - len(fds)} descriptors did not arrive")
    return order, fds


def _receive(source: socket.socket, size: int) -> tuple[bytes, list[int]]:
    data, fds, _, _ = socket.recv_fds(source, size, 250)
    for fd in fds:
        os.set_inheritable(
            fd, False
        )  # recv_fds ignores MSG_CMSG_CLOEXEC; there is one thread, so nobody forks
    return data, list(fds)


def _poll_with_signals() -> tuple["select.poll", int]:
    """A poll that also wakes when a child ends. Other signals change nothing: the host's word counts, or its end."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _nothing)
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    return poll, read_end


def _nothing(number: int, frame: object) -> None:
    """A handler, which unlike ignoring is not inherited by the server."""


def _watch_peer(peer: socket.socket, poll: "select.poll") -> int:
    """Watch the host's process besides its socket, of which some fork of the host's may hold a copy."""
    pid = int.from_bytes(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder)
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return -1
    poll.register(fd, select.POLLIN)
    return fd


def _drain(wakeup: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(wakeup, 512)


def _reaped() -> Iterator[tuple[int, int]]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descendants(ancestor: int) -> list[int]:
    """Every process below this one, parents first."""
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found = children.get(ancestor, [])
    for pid in found:  # which grows as it is read
        found.extend(children.get(pid, ()))
    return found


def _processes() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                # Its second field is a name of the process's own choosing, so count from the last bracket.
                fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
                yield int(folder.name), int(fields[1])


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


if __name__ == "__main__":
    main()
