"""Attack 21: a confined server uses processes, files, memory, disk, and what the kernel counts per user, without end."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, ExitStack
from itertools import pairwise
from pathlib import Path, PurePath
from time import perf_counter
from typing import Any

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.model.guarded_names import GUARDED_IF_PRESENT, INSTRUCTION_FILES
from holdfast.model.process import ProcessSpec
from holdfast.model.quota import Quota
from holdfast.sandbox import guard_watch, kept_files, start_confined
from holdfast.sandbox.bwrap.cgroups import plan_cgroups
from holdfast.sandbox.keeper import client
from holdfast.sandbox.keeper.child import Child
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.kept_files import KeptFiles
from holdfast.sandbox.opened_path import OpenedPath, PathOpener
from holdfast.sandbox.start_confined import StartSlots, wait_for_cleanups
from tests.sandbox.support import PATH, confined, python, read_line, run, started, wait_unlocked, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

QUOTA = Quota(memory_bytes=256 << 20, processes=50, file_bytes=8 << 20, descriptors=100)
# Every process of the bomb holds the lock, so it is free once all have ended.
BOMB = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = open('lock', 'w')
fcntl.flock(lock, fcntl.LOCK_SH)
full = False
while True:
    try: os.fork()
    except OSError:
        if not full: print('full', flush=True); full = True
        time.sleep(0.05)
"""
MEMORY = "held = []\ntry:\n    while len(held) < 100: held.append(b'x' * (8 << 20))\nexcept MemoryError: held = held[:1]; print('full', flush=True)\nelse: print('endless', flush=True)"
FILES = "import os\nheld = []\ntry:\n    while len(held) < 1000: held.append(os.dup(1))\nexcept OSError: os.closerange(10, 200); print('full', flush=True)\nelse: print('endless', flush=True)"
DISK = "f = open('large', 'wb')\ntry:\n    for _ in range(64): f.write(b'x' * (1 << 20)); f.flush()\nexcept OSError: print('full', flush=True)\nelse: print('endless', flush=True)"
SCRATCH = "f = open('/tmp/%d' % 0, 'wb')\nn = 0\ntry:\n    while n < 200:\n        f = open('/tmp/%d' % n, 'wb'); f.write(b'x' * (1 << 20)); f.close(); n += 1\nexcept OSError: print('full', flush=True)\nelse: print('endless', flush=True)"


@pytest.mark.promise("BOX-03")
async def test_fork_bomb_is_contained_and_removed_while_another_server_answers(
    keeper: Keeper,
    root: Path,
) -> None:
    bomb = confined(
        ProcessSpec(argv=(sys.executable, "-I", "-c", BOMB), env=PATH, cwd=str(root)), root, quota=QUOTA
    )
    async with started(keeper, ProcessSpec(argv=("cat",), env=PATH, cwd="/")) as neighbour:
        async with started(keeper, bomb) as child:
            printed = await read_line(child)
            slowest = max([await time_call(neighbour) for _ in range(50)])

        await wait_unlocked(root / "lock")

    assert (printed, slowest < 1.0) == ("full", True)


async def time_call(neighbour: Child) -> float:
    began = perf_counter()
    neighbour.stdin.write(b"x\n")
    assert await read_line(neighbour) == "x"
    return perf_counter() - began


@pytest.mark.promise("BOX-03")
@pytest.mark.parametrize("code", [MEMORY, FILES, DISK, SCRATCH], ids=["memory", "files", "disk", "scratch"])
async def test_each_quota_stops_the_server_that_exceeds_it(keeper: Keeper, root: Path, code: str) -> None:
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root))

    completed = await run(keeper, confined(spec, root, quota=QUOTA))

    assert completed.out == "full\n", completed.err


@pytest.mark.slow
@pytest.mark.parametrize("code", [MEMORY, FILES, DISK], ids=["memory", "files", "disk"])
async def test_unconfined_server_exceeds_each_quota(keeper: Keeper, root: Path, code: str) -> None:
    completed = await run(
        keeper, ProcessSpec(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root))
    )

    assert completed.out == "endless\n"


async def test_unconfined_server_starts_more_processes_than_the_quota(keeper: Keeper, root: Path) -> None:
    code = "import os, signal\nfor n in range(120):\n    if os.fork() == 0: signal.pause()\nprint(n + 1, flush=True)"
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root))

    async with started(keeper, spec) as child:
        printed = await read_line(child)

    assert printed == "120"


@pytest.mark.promise("BOX-03")
async def test_kernel_ends_confined_servers_first_when_memory_runs_out(keeper: Keeper, root: Path) -> None:
    code = "print(open('/proc/self/oom_score_adj').read())"
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", code), env=PATH, cwd=str(root))

    inside, outside = await asyncio.gather(run(keeper, confined(spec, root)), run(keeper, spec))

    assert (int(inside.out), int(outside.out) < 1000) == (1000, True)


# What the kernel counts per user

PASS_TO_ITSELF = """
import socket
pairs, passed = [], 0
try:
    while passed < 5000:
        pairs.append(socket.socketpair())
        for _ in range(20): socket.send_fds(pairs[-1][0], [b'x'], [0] * 250); passed += 250
except OSError: pass
print(passed, flush=True)
input()
"""
PASS_ONE = """
import resource, socket
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
one, other = socket.socketpair()
try: socket.send_fds(one, [b'x'], [0])
except OSError as error: print(error.errno)
else: print('passed')
"""


@pytest.mark.promise("BOX-03")
@pytest.mark.parametrize("descriptors", [Quota().descriptors, 1024], ids=["attack", "control"])
async def test_descriptors_that_a_server_passes_to_itself_keep_no_other_program_from_passing_one(
    keeper: Keeper, open_folder: Path, descriptors: int
) -> None:
    uid = 4321 if os.geteuid() == 0 else os.geteuid()
    root = open_folder.resolve() / "root"
    root.mkdir()
    os.chown(root, uid, -1)
    spec = ProcessSpec(argv=("/usr/bin/python3", "-I", "-c", PASS_TO_ITSELF), env=PATH, cwd=str(root))

    async with started(keeper, confined(spec, root, quota=Quota(descriptors=descriptors))) as child:
        passed = int(await read_line(child))
        other = await asyncio.to_thread(
            subprocess.run,
            ["/usr/bin/python3", "-I", "-c", PASS_ONE],
            user=uid if os.geteuid() == 0 else None, capture_output=True, text=True, check=True, cwd="/",
        )  # fmt: skip

    is_attack = descriptors < 1024
    assert (passed > 500, other.stdout.strip()) == (
        True, "passed" if is_attack else str(errno.ETOOMANYREFS)
    )  # fmt: skip


SIGNALS = """
import ctypes, os, signal
libc = ctypes.CDLL(None); signal.pthread_sigmask(signal.SIG_BLOCK, [40])
print(sum(libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(0)) == 0 for _ in range(3000)))
"""
QUEUES = """
import ctypes, os
libc = ctypes.CDLL(None)
name = b'/holdfast-test-%d' % os.getpid()
print(libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None) >= 0); libc.mq_unlink(name)
"""
LOCKED = """
import ctypes, mmap
memory = mmap.mmap(-1, 1 << 20)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
print(ctypes.CDLL(None).mlock(address, ctypes.c_size_t(1 << 20)) == 0)
"""


@pytest.mark.promise("BOX-03")
@pytest.mark.parametrize(
    ("code", "inside", "outside"),
    [(SIGNALS, "1024", "3000"), (QUEUES, "False", "True"), (LOCKED, "False", "True")],
    ids=["waiting signals", "message queues", "locked memory"],
)
async def test_server_gets_a_small_part_of_what_the_kernel_counts_per_user(
    keeper: Keeper, root: Path, code: str, inside: str, outside: str
) -> None:
    printed = [(await run(keeper, spec)).out.strip() for spec in (confined(python(code), root), python(code))]

    assert printed == [inside, outside]  # the second one is the control


# Waits that never end, such as for a socket that the event loop cannot watch because the user's limit is reached


@pytest.mark.parametrize("is_limited", [True, False], ids=["attack", "control"])
async def test_start_ends_although_the_keeper_process_does_not_answer(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, is_limited: bool
) -> None:
    monkeypatch.setattr(client, "_START_SECONDS", 0.2 if is_limited else 60.0)
    pid = keeper.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(HoldfastError if is_limited else TimeoutError):
            async with asyncio.timeout(20 if is_limited else 0.5):
                await keeper.spawn(python("pass"))
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("is_polled", [True, False], ids=["attack", "control"])
async def test_end_of_a_server_is_seen_although_its_socket_is_not_watched(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, is_polled: bool
) -> None:
    monkeypatch.setattr(client, "_POLL_SECONDS", 0.05)
    child = await keeper.spawn(python("input()"))
    handle: Any = child._handle  # pyright: ignore[reportPrivateUsage]
    handle._transport.pause_reading()  # what a transport is like whose socket could not be watched
    if not is_polled:
        monkeypatch.setattr(handle, "_read_unwatched", lambda: None)

    try:
        async with asyncio.timeout(20 if is_polled else 0.5):
            await child.end(0.0)
        assert is_polled
    except TimeoutError:
        assert not is_polled
    finally:
        child.close()
        handle._transport.resume_reading()


async def test_start_fails_at_once_if_no_socket_can_be_watched(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: object, callback: Callable[[], object]) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)

    with pytest.raises(HoldfastError, match="max_user_watches"):
        await keeper.spawn(python("pass"))
    monkeypatch.undo()
    assert (await run(keeper, python("print(1)"))).out == "1\n"


# Descriptors of the host


@pytest.mark.parametrize("limit", [1024, 1 << 20], ids=["attack", "control"])
async def test_session_that_starts_many_servers_leaves_descriptors_for_another(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(start_confined, "descriptor_limit", lambda: limit)
    slots, release = StartSlots(), asyncio.Event()
    running: list[str] = []

    async def start(owner: str) -> None:
        async with slots.take(owner):
            running.append(owner)
            await release.wait()

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(start("greedy"))
        await asyncio.sleep(0)
        group.create_task(start("other"))
        await asyncio.sleep(0)
        at_once = list(running)
        release.set()

    expected = ["greedy", "other"] if limit == 1024 else ["greedy"] * 20 + ["other"]
    assert (at_once, sorted(running)) == (expected, ["greedy"] * 20 + ["other"])


async def test_deep_path_takes_one_descriptor(tmp_path: Path) -> None:
    deep = tmp_path.resolve().joinpath(*"d" * 300)
    deep.mkdir(parents=True)
    (deep / "link").symlink_to("../" * 100 + "d/" * 10)
    with ExitStack() as stack:
        before = len(os.listdir("/proc/self/fd"))
        found = PathOpener(stack).open(f"{deep}/link", links="follow")
        parents = list(found.self_and_parents())
        taken = len(os.listdir("/proc/self/fd")) - before
        naive = [os.open(step.path, os.O_PATH) for step in parents]
        taken_by_all_steps = len(os.listdir("/proc/self/fd")) - before - taken
        for fd in naive:
            os.close(fd)

    status = deep.parents[89].stat()
    assert (found.path, found.identity) == (str(deep.parents[89]), (status.st_dev, status.st_ino))
    assert (taken, taken_by_all_steps) == (1, len(deep.parents) - 89)  # the second one is the control


async def test_folder_on_the_way_that_was_replaced_is_not_opened_again(tmp_path: Path) -> None:
    file = tmp_path.resolve() / "a" / "b" / "file"
    file.parent.mkdir(parents=True)
    file.touch()
    with ExitStack() as stack:
        opener = PathOpener(stack)
        folder = opener.open(str(file), links="refuse").folder
        assert folder is not None
        assert opener.reopen(folder).identity == folder.identity  # the control
        file.parent.rename(tmp_path / "a" / "c")
        file.parent.mkdir()
        with pytest.raises(OSError, match="replaced"):
            opener.reopen(folder)


@pytest.mark.promise("BOX-03")
async def test_root_that_lies_too_deep_is_refused(keeper: Keeper, root: Path) -> None:
    deep = root.joinpath(*"d" * 70)
    deep.mkdir(parents=True)

    with pytest.raises(HoldfastError, match="64 folders deep"):
        await keeper.spawn(confined(python("pass"), deep))
    assert (await run(keeper, confined(python("print(1)"), deep.parents[30]))).out == "1\n"  # the control


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Unshared(KeptFiles):
    """Opens a file once for each server."""

    def keep(self, owner: str, files: Iterable[OpenedPath], resources: ExitStack) -> None:
        for file in files:
            resources.callback(os.close, os.dup(file.fd))


WAIT = "print('ready', flush=True); input()"


@pytest.mark.promise("BOX-03")
@pytest.mark.parametrize(
    ("names", "is_shared"),
    [(GUARDED_IF_PRESENT, True), (INSTRUCTION_FILES, False)],
    ids=["attack", "control"],
)
async def test_guarded_names_in_a_folder_take_descriptors_once_however_many_servers_run_there(
    keeper: Keeper, root: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], is_shared: bool
) -> None:
    if not is_shared:
        monkeypatch.setattr(guard_watch, "_KEPT_FILES", Unshared())
    for name in names:
        (root / name).touch()
    spec = confined(python(WAIT), root)
    await run(keeper, spec)
    await wait_for_cleanups()
    used = [count_descriptors()]
    async with AsyncExitStack() as servers:
        for _ in range(2):
            await read_line(await servers.enter_async_context(started(keeper, spec)))
            await wait_for_cleanups()  # of the start
            used.append(count_descriptors())
    await wait_for_cleanups()
    after = count_descriptors() - used[0]

    first, *others = [more - fewer for fewer, more in pairwise(used)]
    assert first >= len(names), "the first server's guards"
    assert (max(others) < 14, after) == (is_shared, 0), used


@pytest.mark.promise("BOX-03")
@pytest.mark.parametrize("limit", [150, 1 << 20], ids=["attack", "control"])
def test_folders_full_of_guarded_names_leave_descriptors_for_others(
    root: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """A third of 150 descriptors is 50: the first folder may keep half of them, the next one half of the rest."""
    monkeypatch.setattr(kept_files, "descriptor_limit", lambda: limit)
    kept = KeptFiles()
    refused: list[str] = []
    with ExitStack() as opened:
        opener = PathOpener(opened)
        for owner, number in (("a", 26), ("b", 25), ("c", 13), ("d", 12), ("usual", 6)):
            (root / owner).mkdir()
            folder = opener.open(f"{root}/{owner}", links="refuse")
            for index in range(number):
                (root / owner / f"{index}").touch()
            files = [file for index in range(number) if (file := opener.child(folder, f"{index}"))]
            try:
                for _ in range(3):  # the same files cost nothing more
                    kept.keep(owner, files, opened)
            except HoldfastError as error:
                refused.append(f"{owner}: {error.message}")

    assert [each[0] for each in refused] == (["a", "c"] if limit == 150 else [])
    assert all("too many for the limit of open files" in each for each in refused)


async def test_servers_get_the_limit_of_before_it_was_raised() -> None:
    code = """
import asyncio, resource, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
from holdfast.model.descriptor_limit import raise_descriptor_limit
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
raise_descriptor_limit()
async def main():
    async with Keeper() as keeper:
        show = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
        child = await keeper.spawn(ProcessSpec(argv=(sys.executable, "-I", "-c", show), env={}, cwd="/"))
        await child.wait()
        print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 512 or hard <= 512, child.stdout.read().decode().strip())
        child.close()
asyncio.run(main())
"""
    process = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert process.stdout.split() == ["True", "512"]


# Runs as root, as in a container: the control groups are read-only.
WITHOUT_CGROUPS = """
import asyncio, sys
from holdfast.model.errors import HoldfastError
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.keeper.keeper import Keeper

async def main():
    async with Keeper(BwrapSandbox()) as keeper:
        try:
            await keeper.spawn(ProcessSpec(argv=("true",), env={}, cwd=sys.argv[1], confinement=Confinement(roots=(sys.argv[1],))))
        except HoldfastError as error:
            print(error.code.name, error.message)
asyncio.run(main())
"""
FORKS = "import os\nfor n in range(20):\n    if os.fork() == 0: os.read(0, 1); os._exit(0)\nprint(n + 1, flush=True)"


@pytest.mark.promise("BOX-03")
@pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, whose number of processes the kernel does not limit"
)
def test_server_that_would_run_as_root_without_a_limit_of_processes_is_refused(root: Path) -> None:
    read_only = 'for m in /sys/fs/cgroup /sys/fs/cgroup/*; do mountpoint -q $m && mount -o remount,bind,ro $m; done; exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", read_only, "sh", sys.executable, "-c", WITHOUT_CGROUPS, root]

    refused = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    control = subprocess.run(
        ["prlimit", "--nproc=5", sys.executable, "-c", FORKS], capture_output=True, text=True, check=False
    )

    assert "may not create a pids control group here" in refused
    assert control.stdout == "20\n", "the limit per user does not stop root"


TAKE_ALL_AIO_SLOTS = """
import ctypes, errno
call, context = ctypes.CDLL(None, use_errno=True).syscall, ctypes.c_ulong(0)
number = {"x86_64": 206, "aarch64": 0}[__import__("platform").machine()]
print(call(number, 16, ctypes.byref(context)), errno.errorcode.get(ctypes.get_errno(), ""))
"""


@pytest.mark.promise("BOX-03")
async def test_asynchronous_requests_of_the_whole_machine_cannot_be_used_up(
    keeper: Keeper, root: Path
) -> None:
    """The kernel counts them for the machine (fs.aio-max-nr): a database of the user could not start."""
    spec = python(TAKE_ALL_AIO_SLOTS)

    confined_run, control = await run(keeper, confined(spec, root)), await run(keeper, spec)

    assert confined_run.out == "-1 ENOSYS\n"
    assert control.out in ("0 \n", "-1 ENOSYS\n")  # some kernels do not have it


HUGE_PAGES = """
import mmap, os
def attempt(how):
    try: how()
    except OSError as error: return error.strerror
    return "mapped"
# With MAP_NORESERVE, the control also works on a machine that has reserved no huge pages.
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000 | 0x4000
print(attempt(lambda: mmap.mmap(-1, 2 << 20, flags=flags)), attempt(lambda: os.memfd_create("huge", os.MFD_HUGETLB)), sep=", ")
"""


@pytest.mark.promise("BOX-03")
async def test_huge_pages_of_the_machine_cannot_be_used_up(keeper: Keeper, root: Path) -> None:
    """The machine reserves them (vm.nr_hugepages) for a program of its own, and no quota of the server counts them."""
    spec = python(HUGE_PAGES)

    confined_run, control = await run(keeper, confined(spec, root)), await run(keeper, spec)

    assert confined_run.out == "Cannot allocate memory, Operation not permitted\n"
    assert control.out in ("mapped, mapped\n", "Invalid argument, Function not implemented\n")


@pytest.mark.promise("BOX-03")
async def test_all_confined_servers_share_the_processor_time_of_one_program(
    keeper: Keeper, root: Path
) -> None:
    other = root.parent / "other"
    other.mkdir()
    wait = python("print('ready', flush=True); input()")
    planned = [group for group in plan_cgroups(QUOTA, limit_processes=False) if group.outer]
    if not planned:
        pytest.skip("no control groups can be created here")
    group = planned[0]
    name, limits = group.outer[0]
    async with (
        started(keeper, confined(wait, root)) as first,
        started(keeper, confined(wait, root)) as second,
        started(keeper, confined(wait, other)) as third,
        started(keeper, wait) as direct,
    ):
        groups = [find_group(child, group.parent) for child in (first, second, third, direct)]
        shares = {
            file: Path(group.parent, name, file).read_text().strip() for file in limits if "cpu" in file
        }

    assert len({*groups}) == 4
    assert [path.parents[1].name for path in groups[:3]] == [name] * 3
    assert groups[0].parent == groups[1].parent != groups[2].parent
    assert name not in groups[3].parts, "control"
    assert shares == {file: value for file, value in limits.items() if "cpu" in file}
    await wait_until(lambda: not Path(group.parent, name, groups[0].parent.name).exists())


def find_group(child: Child, parent: str) -> PurePath:
    """The group of a server, in the hierarchy of this folder."""
    controller = next((part for part in ("cpu", "memory") if f"/sys/fs/cgroup/{part}/" in f"{parent}/"), "")
    for line in Path(f"/proc/{child.pid}/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            return PurePath(group)
    raise AssertionError(controller)
