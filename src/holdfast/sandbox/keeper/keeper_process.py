"""The keeper process, and the supervisors that it forks.

Each server has a supervisor, which ends the server when the host closes its socket or dies. A supervisor whose server
has ended waits for the next server, which then needs no fork. This file runs as a script,
`python -I -S keeper_process.py FD MAX_OPEN_FILES`. It uses only the standard library, and has one thread.
"""

import contextlib
import ctypes
import errno
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

_SET_PDEATHSIG, _SET_SUBREAPER = 1, 36
_HOST_GONE_GRACE = 1.0  # seconds from SIGTERM to SIGKILL after the host closed the socket or died
_LEFTOVER_GRACE = 0.5  # seconds from SIGTERM to SIGKILL for processes that an exited server left behind
_KILL_SECONDS = 5.0  # a process that survives SIGKILL this long is another user's, or stuck in the kernel
_SURVIVOR_PAUSE = 5.0  # how often a process that survived SIGKILL gets it again
# How long the server's process group may take to exit. After that, the server's other processes are looked for.
_GROUP_SECONDS = 0.1
_MAX_KILL_PAUSE = 0.5
_CGROUP_ATTEMPTS = 50
_MAX_IDLE = 32  # supervisors without a server
_IDLE_SECONDS = 5.0  # after this long without a start or an end of a server, idle supervisors exit
_MAX_DESCRIPTORS = 250  # descriptors in one message; the kernel passes at most 253
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_libc = ctypes.CDLL(None)


def main() -> None:
    """Pass the socket that the host sends for each server on to an idle supervisor, or to a new one. Exit when the host and all supervisors have ended."""
    control = socket.socket(fileno=int(sys.argv[1]))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), hard))  # servers inherit it
    _libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)  # to become the parent of a killed supervisor's children
    gc.disable()  # a collection in a supervisor would copy the pages that it shares with this process
    gc.freeze()
    _ignore_signals()
    poll, wakeup = _poll_with_signals()
    poll.register(control, select.POLLIN)
    host_pidfd = _watch_peer(control, poll)
    idle = _IdleSupervisors()
    poll.register(idle.receiver, select.POLLIN)
    supervisors: set[int] = set()
    listening = True
    while listening or supervisors:
        ready = {fd for fd, _ in poll.poll(_IDLE_SECONDS * 1000 if idle.channels else None)}
        _drain(wakeup)
        if idle.receiver.fileno() in ready:
            idle.receive()
        if listening and control.fileno() in ready:
            socket_fd = _receive_socket(control)
            if socket_fd is None:
                listening = False
            elif not idle.try_start(socket_fd):
                supervisors.add(_fork_supervisor(control, idle, socket_fd))
            if socket_fd is not None:
                os.close(socket_fd)
        if host_pidfd in ready:
            listening = False
        if not listening:
            for fd in (control.fileno(), host_pidfd):
                with contextlib.suppress(KeyError, ValueError):
                    poll.unregister(fd)
        if not ready or not listening:
            idle.end()
        _reap_supervisors(supervisors)


def _receive_socket(source: socket.socket) -> int | None:
    try:
        _, fds = _receive(source, 1)
    except OSError:
        return None
    return fds[0] if fds else None


def _fork_supervisor(control: socket.socket, idle: "_IdleSupervisors", socket_fd: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        control.close()
        idle.close_keeper_ends()
        _libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
        next_fd: int | None = socket_fd
        while next_fd is not None:
            supervisor = _Supervisor(socket.socket(fileno=next_fd))
            next_fd = idle.wait_for_socket(supervisor) if supervisor.run() else None
        status = 0
    finally:
        os._exit(status)


class _IdleSupervisors:
    """Supervisors whose server has ended, and which wait for the socket of the next one.

    Each idle supervisor has sent the keeper process a channel of its own, through a socket that all supervisors inherit.
    The supervisor exits when the keeper process closes the channel or dies.
    """

    def __init__(self) -> None:
        self.receiver, self.sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channels: list[socket.socket] = []

    def receive(self) -> None:
        fd = _receive_socket(self.receiver)
        if fd is not None:
            channel = socket.socket(fileno=fd)
            if len(self.channels) < _MAX_IDLE:
                self.channels.append(channel)
            else:
                channel.close()

    def try_start(self, socket_fd: int) -> bool:
        """Give the socket to an idle supervisor. Return whether there is one."""
        while self.channels:
            with self.channels.pop() as channel, contextlib.suppress(OSError):  # skip a killed supervisor
                socket.send_fds(channel, [b"+"], [socket_fd])
                return True
        return False

    def end(self) -> None:
        for channel in self.channels:
            channel.close()
        self.channels.clear()

    def close_keeper_ends(self) -> None:
        """In a new supervisor: close what belongs to the keeper process."""
        self.end()
        self.receiver.close()

    def wait_for_socket(self, ended: "_Supervisor") -> int | None:
        """In a supervisor: wait for the socket of the next server. None: exit."""
        channel, keeper_end = socket.socketpair()
        with channel:
            try:
                with keeper_end:
                    socket.send_fds(self.sender, [b"+"], [keeper_end.fileno()], socket.MSG_DONTWAIT)
            except OSError:
                return None
            ended.close()  # now, so that the host's next start already finds this process idle
            return _receive_socket(channel)


def _reap_supervisors(supervisors: set[int]) -> None:
    orphans = False
    for pid, status in _reap_children():
        orphans = orphans or status != 0 or pid not in supervisors
        supervisors.discard(pid)
    if orphans:  # a supervisor was killed: its orphans are now children of this process
        for pid, parent in _processes():
            if parent == os.getpid() and pid not in supervisors:
                _signal(pid, signal.SIGKILL)


class _Supervisor:
    """Starts one server, waits until the host ends it or dies, then ends every process of the server."""

    def __init__(self, host: socket.socket) -> None:
        self.host = host
        self.poll, self.wakeup = _poll_with_signals()
        self.host_pidfd = _watch_peer(host, self.poll)
        self.request: dict[str, Any] = {}
        self.pid = 0
        self.report = -1
        """The pipe on which the forked process reports why it could not execute the server."""
        self.deadline: float | None = None
        self.killing_since: float | None = None
        self.kill_after = _HOST_GONE_GRACE
        self.kill_pause = 0.02
        self.started = False
        self.is_reaped = False
        self.sent_term = False
        self.has_survivors = False
        """Whether the host was told that some processes could not be ended."""
        self.is_host_gone = False
        self.group_signal: int | None = None
        """The last signal that the server's process group got."""

    def run(self) -> bool:
        """Supervise the server until no process of it is left. Return whether this process can supervise another one.

        If processes cannot be ended, wait for them as long as the host lives, because the host holds the locks of their folder
        until they have ended.
        """
        received = _receive_request(self.host)
        if received is None:
            return False
        self.request, fds = received
        cgroups = _Cgroups(self.request["cgroups"])
        try:
            self._start(fds, cgroups)
            self.poll.register(self.host, select.POLLIN)
            while self._reap():
                self._handle_events()
        finally:
            if not self.has_survivors:
                self._clean_up()
            cgroups.remove()
        # Not with a control group, which is named after this process, or with a child that could not be killed.
        return not cgroups.groups and not _has_children()

    def _start(self, fds: list[int], cgroups: "_Cgroups") -> None:
        self.report, report_end = os.pipe()
        self.poll.register(self.report, select.POLLIN)
        self.pid = os.fork()
        if self.pid == 0:
            _exec_server(self.request, fds, report_end, cgroups)
        os.close(report_end)
        for fd in fds:
            os.close(fd)

    def _handle_events(self) -> None:
        wait = None if self.deadline is None else max(0.0, self.deadline - time.monotonic()) * 1000
        for fd, _ in self.poll.poll(wait):
            if fd == self.report:
                self._read_report()
            elif fd == self.host.fileno():
                self._read_host()
            elif fd == self.host_pidfd:
                self.poll.unregister(fd)
                self.is_host_gone = True
                self._terminate(_HOST_GONE_GRACE)
            else:
                _drain(self.wakeup)
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self._send_signals()

    def _read_report(self) -> None:
        """Read the result of the start: a successful exec closes the pipe, a failed one writes the error to it first."""
        if self.report < 0:
            return
        problem = os.read(self.report, 4096)
        self.poll.unregister(self.report)
        os.close(self.report)
        self.report = -1
        self.started = not problem
        self._send(b'{"failed": %b}' % problem if problem else b'{"started": %d}' % self.pid)

    def _read_host(self) -> None:
        try:
            data = self.host.recv(64)
        except OSError:
            data = b""
        if not data:
            self.poll.unregister(self.host)
            self._terminate(_HOST_GONE_GRACE)
        elif not self.sent_term:
            self.kill_after = float(data.split()[-1])
            self.deadline = time.monotonic() + self.kill_after

    def _terminate(self, kill_after: float) -> None:
        if not self.sent_term:
            self.kill_after = kill_after
            self.sent_term = not self.started  # before the exec there is no server to send SIGTERM to
            self.deadline = time.monotonic()

    def _send_signals(self) -> None:
        """Send SIGTERM to all processes of the server first, then SIGKILL.

        The server's own process group gets each signal first: most servers then exit, and /proc need not be searched for other
        processes.
        """
        now = time.monotonic()
        if not self.sent_term:
            monitor = self.pid if self.request["has_monitor"] else None
            if monitor is None and self._signal_group(signal.SIGTERM):
                self.deadline = now + min(_GROUP_SECONDS, self.kill_after or 0.05)
                return
            self.sent_term = True
            for pid in _descendants(os.getpid()):
                if pid != monitor and (self.group_signal is None or _group_of(pid) != self.pid):
                    _signal(pid, signal.SIGTERM)
            self.deadline = now + self.kill_after
            return
        if self.killing_since is None:
            self.killing_since = now
            if self._signal_group(signal.SIGKILL):
                self.deadline = now + min(_GROUP_SECONDS, self.kill_after or 0.05)
                return
        for pid in _descendants(os.getpid()):
            _signal(pid, signal.SIGKILL)
        self.deadline = time.monotonic() + self.kill_pause
        self.kill_pause = _SURVIVOR_PAUSE if self.has_survivors else min(2 * self.kill_pause, _MAX_KILL_PAUSE)

    def _signal_group(self, number: int) -> bool:
        """Send a signal to the server's group, once. Return whether it was sent."""
        # Not after the server was reaped: another process group could have its number by then.
        if self.group_signal == number or self.is_reaped:
            return False
        self.group_signal = number
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
            return True
        return False

    def _reap(self) -> bool:
        """Reap processes that exited. Return whether any process is left to watch."""
        for pid, status in _reap_children():
            if pid == self.pid:
                self.is_reaped = True
                self._read_report()  # a short-lived server exits before its report is read
                self._send(b'{"exited": %d}' % os.waitstatus_to_exitcode(status))
                self._terminate(_LEFTOVER_GRACE)
        if not _has_children():
            return False
        if (
            not self.has_survivors
            and self.killing_since is not None
            and time.monotonic() > self.killing_since + _KILL_SECONDS
        ):
            self.has_survivors = True
            pids = " ".join(map(str, _descendants(os.getpid())))
            self._clean_up()
            self._send(b'{"survivors": "%b"}' % pids.encode())
        return not (self.has_survivors and self.is_host_gone)

    def _clean_up(self) -> None:
        if self.request["cleanup"]:
            import subprocess

            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    self.request["cleanup"], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, timeout=20,
                )  # fmt: skip

    def close(self) -> None:
        """Close all descriptors. The host then knows that no process of the server is left."""
        os.close(signal.set_wakeup_fd(-1))
        for fd in (self.wakeup, self.host_pidfd, self.report):
            if fd >= 0:
                os.close(fd)
        self.host.close()

    def _send(self, message: bytes) -> None:
        """Send a JSON object. It is not built with `json`: the less code a supervisor runs, the more memory pages it shares."""
        with contextlib.suppress(OSError):
            self.host.sendall(message + b"\n")


def _exec_server(request: dict[str, Any], fds: list[int], report: int, cgroups: "_Cgroups") -> NoReturn:
    step = "descriptors"
    try:
        folder = fds[-1] if request["has_cwd_descriptor"] else None
        fds = fds if folder is None else fds[:-1]
        count = len(fds)
        report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, count)
        folder = None if folder is None else fcntl.fcntl(folder, fcntl.F_DUPFD_CLOEXEC, count)
        moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, count) for fd in fds]
        for target, fd in enumerate(moved):
            os.dup2(fd, target)
        os.setsid()
        step = "cgroup"
        cgroups.join()
        if request["prefer_oom_kill"]:
            with contextlib.suppress(OSError):
                Path("/proc/self/oom_score_adj").write_text("1000")
        step = "user"
        if request["run_as"] is not None:
            uid, gid = request["run_as"]
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        _libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        step = "chdir"
        os.chdir(request["cwd"] if folder is None else folder)
        step = "exec"
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except BaseException as error:
        number = error.errno if isinstance(error, OSError) else None
        os.write(report, json.dumps([step, number, str(error)[:500]]).encode())
    finally:
        os._exit(127)


class _Cgroups:
    """The control groups of one server: created before it starts, removed after it ended."""

    def __init__(self, requested: list[tuple[str, list[tuple[str, dict[str, str]]], dict[str, str]]]) -> None:
        """`requested` holds the fields of each `Cgroup`: `parent`, `outer`, `limits`."""
        own = f"holdfast-{os.getpid()}"
        self.groups = [(Path(parent), [*outer, (own, limits)]) for parent, outer, limits in requested]

    def join(self) -> None:
        for parent, groups in self.groups:
            for attempt in range(_CGROUP_ATTEMPTS):
                try:
                    self._join(parent, groups)
                    break
                except OSError as error:
                    # Another supervisor may have removed an outer group, which was empty. In the middle of `mkdir`, that gives EEXIST.
                    is_gone = error.errno in (errno.ENOENT, errno.ENODEV, errno.EEXIST)
                    if not is_gone or attempt == _CGROUP_ATTEMPTS - 1:
                        raise

    def remove(self) -> None:
        for parent, groups in self.groups:
            folder = parent.joinpath(*(name for name, _ in groups))
            for _ in range(_CGROUP_ATTEMPTS):  # a reaped process may still count in its group for a moment
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
                else:
                    break
            with contextlib.suppress(OSError):  # other servers may still use an outer group
                for _ in groups[:-1]:
                    folder = folder.parent
                    folder.rmdir()

    def _join(self, folder: Path, groups: list[tuple[str, dict[str, str]]]) -> None:
        for name, limits in groups:
            folder /= name
            folder.mkdir(exist_ok=True)
            for file, value in limits.items():
                (folder / file).write_text(value)
        (folder / "cgroup.procs").write_text("0")


def _receive_request(host: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    data, fds = _receive(host, 65536)
    while not data.endswith(b"\n"):
        more = host.recv(1 << 20)
        if not more:
            return None
        data += more
    request = json.loads(data)
    if len(fds) != request["descriptors"]:
        raise OSError(f"{request['descriptors'] - len(fds)} descriptors did not arrive")
    return request, fds


def _receive(source: socket.socket, size: int) -> tuple[bytes, list[int]]:
    data, fds, _, _ = socket.recv_fds(source, size, _MAX_DESCRIPTORS)
    for fd in fds:  # recv_fds ignores MSG_CMSG_CLOEXEC; with one thread, no fork can come in between
        os.set_inheritable(fd, False)
    return data, list(fds)


def _ignore_signals() -> None:
    """Ignore signals, here and in the supervisors: only the host ends servers.

    By handlers, not by SIG_IGN, because the servers would inherit SIG_IGN.
    """
    for number in (*(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP), *_IGNORED_BY_PYTHON):
        signal.signal(number, _ignore)


def _ignore(number: int, frame: object) -> None:
    pass


def _poll_with_signals() -> tuple["select.poll", int]:
    """A poll that also wakes on signals, such as the exit of a child; and the descriptor that is readable then."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    return poll, read_end


def _watch_peer(peer: socket.socket, poll: "select.poll") -> int:
    """Let `poll` wake when the process at the other end exits: a fork of the host may keep the socket open. Return its pidfd, or -1."""
    pid = int.from_bytes(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder)
    try:
        fd = os.pidfd_open(pid)
    except (OSError, AttributeError):  # not every build of Python has `pidfd_open`
        return -1
    poll.register(fd, select.POLLIN)
    return fd


def _drain(wakeup: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(wakeup, 512)


def _reap_children() -> Iterator[tuple[int, int]]:
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
    """The pids of all descendants of a process, parents first."""
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    descendants = children.get(ancestor, [])
    for pid in descendants:  # the list grows while it is read
        descendants.extend(children.get(pid, ()))
    return descendants


def _processes() -> Iterator[tuple[int, int]]:
    """The pid of every process, and that of its parent. Not with `Path`, which is much slower."""
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                fd = os.open(f"/proc/{name}/stat", os.O_RDONLY)
                try:
                    stat = os.read(fd, 4096)
                finally:
                    os.close(fd)
                # comm (field 2) may contain spaces and parentheses, so parse after the last ')'.
                yield int(name), int(stat.rpartition(b")")[2].split(None, 2)[1])


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


if __name__ == "__main__":
    main()
