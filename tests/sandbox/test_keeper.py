"""Direct servers started by the keeper: what they inherit, and how they end."""

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.confined_folders import can_confined_server_change
from holdfast.model.errors import HoldfastError
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper import client, keeper_process
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.start_confined import wait_for_cleanups
from tests.sandbox.support import (
    DAEMON,
    IGNORE_SIGTERM,
    PATH,
    SLEEP_FOREVER,
    Completed,
    children,
    confined,
    copy_source,
    is_locked,
    open_descriptors,
    python,
    read_line,
    run,
    started,
    wait_exit,
    wait_unlocked,
    wait_until,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="supervisors need Linux"),
]

SRC = Path(__file__).resolve().parents[2] / "src"
FACTS = """
import json, os, resource, signal
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)
print(json.dumps({
    'cwd': os.getcwd(), 'env': dict(os.environb and {k.decode(): v.decode() for k, v in os.environb.items()}),
    'fds': sorted(f for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)),
    'limits': [resource.getrlimit(n) for n in range(16)], 'nice': os.nice(0), 'umask': os.umask(0),
    'no_new_privs': status['NoNewPrivs'], 'caps': status['CapEff'], 'seccomp': status['Seccomp'],
    'ignored': int(status['SigIgn'], 16) & ~7, 'blocked': status['SigBlk'], 'leader': os.getsid(0) == os.getpid(),
    'groups': os.getgroups(), 'oom': open('/proc/self/oom_score_adj').read(),
}))
"""


@pytest.mark.promise("LNK-11")
async def test_direct_server_inherits_the_same_as_a_plain_child(keeper: Keeper, tmp_path: Path) -> None:
    spec = python(FACTS, cwd=str(tmp_path), env={"LC_ALL": "C.UTF-8", "A": "ä = $HOME"})

    kept = json.loads((await run(keeper, spec)).out)
    plain = subprocess.run(
        spec.argv, cwd=spec.cwd, env=spec.env, stdin=subprocess.DEVNULL, capture_output=True,
        start_new_session=True, check=True,
    )  # fmt: skip

    assert kept == json.loads(plain.stdout)


async def test_input_output_and_exit_code_are_passed_on(keeper: Keeper) -> None:
    code = "import sys; print(sys.stdin.read().upper()); print('oh', file=sys.stderr); sys.exit(3)"

    assert await run(keeper, python(code), b"hi") == Completed(code=3, out="HI\n", err="oh\n")


async def test_signal_is_reported_as_a_negative_exit_code(keeper: Keeper) -> None:
    done = await run(keeper, python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))

    assert done.code == -signal.SIGSEGV


async def test_large_and_undecodable_environment_arrives_unchanged(keeper: Keeper) -> None:
    env = {f"V{number}": chr(0xDC80 + number) + "x" * 60_000 for number in range(20)}
    code = "import hashlib, os; print(hashlib.md5(repr(sorted(os.environb.items())).encode()).hexdigest())"
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", code), env={**env, "LC_ALL": "C.UTF-8"}, cwd="/")

    kept = await run(keeper, spec)
    plain = subprocess.run(spec.argv, env=spec.env, capture_output=True, text=True, check=True)

    assert kept.out == plain.stdout


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ProcessSpec(argv=("no-such-program",), env=PATH, cwd="/"), "Could not start 'no-such-program': there is no such program. Install it"),
        (ProcessSpec(argv=("/etc/passwd",), env=PATH, cwd="/"), "Could not start '/etc/passwd': it may not be executed."),
        (ProcessSpec(argv=("cat",), env=PATH, cwd="/no/such"), "Could not start 'cat': it cannot change to its working directory '/no/such': no such file"),
        (ProcessSpec(argv=("c\0at",), env=PATH, cwd="/"), "Could not start 'c\\x00at': there is a NUL character"),
        (ProcessSpec(argv=("cat", "x" * 200_000), env=PATH, cwd="/"), "Could not start 'cat': its arguments and environment are too long"),
    ],
)  # fmt: skip
async def test_failed_start_gives_the_reason(keeper: Keeper, spec: ProcessSpec, message: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        await keeper.spawn(spec)

    assert (caught.value.code, caught.value.message[: len(message)]) == (codes.SPAWN_FAILED, message)


async def test_script_with_a_missing_interpreter_gives_the_reason(keeper: Keeper, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)

    with pytest.raises(HoldfastError, match="the interpreter in its `#!` line is missing"):
        await keeper.spawn(ProcessSpec(argv=(str(script),), env=PATH, cwd="/"))


async def test_failed_start_leaves_no_process_and_no_descriptor(keeper: Keeper) -> None:
    await run(keeper, python("pass"))
    before = open_descriptors()

    for _ in range(20):
        with pytest.raises(HoldfastError):
            await keeper.spawn(ProcessSpec(argv=("no-such-program",), env=PATH, cwd="/"))

    assert keeper.pid is not None
    await wait_until(lambda: open_descriptors() <= before and children(keeper.pid or 0) == [])


async def test_cancelled_start_leaves_no_process_and_no_descriptor(keeper: Keeper, tmp_path: Path) -> None:
    await run(keeper, python("pass"))
    before = open_descriptors()

    for turns in range(30):
        task = asyncio.create_task(keeper.spawn(python(IGNORE_SIGTERM + SLEEP_FOREVER)))
        for _ in range(turns % 6):
            await asyncio.sleep(0)
        if turns > 20:
            await asyncio.sleep(0.001 * (turns - 20))
        task.cancel()
        try:
            child = await task
        except asyncio.CancelledError:
            continue
        child.terminate()
        child.close()

    assert keeper.pid is not None
    await wait_until(lambda: open_descriptors() <= before and children(keeper.pid or 0) == [])


async def test_cancelled_confined_start_leaves_no_process_and_no_descriptor(
    keeper: Keeper, bwrap: object, root: Path
) -> None:
    spec = confined(python(SLEEP_FOREVER), root, network=("example.org",))
    await run(keeper, confined(python("pass"), root))
    before = open_descriptors()

    for turns in range(12):
        task = asyncio.create_task(keeper.spawn(spec))
        await asyncio.sleep(0.006 * turns)
        task.cancel()
        try:
            child = await task
        except asyncio.CancelledError:
            continue
        child.terminate()
        child.close()

    assert keeper.pid is not None
    await wait_until(lambda: open_descriptors() <= before and children(keeper.pid or 0) == [])


async def test_server_that_exits_at_end_of_input_gets_no_signal(keeper: Keeper, tmp_path: Path) -> None:
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *a: sys.exit(9)); print(flush=True); sys.stdin.read()"
    async with started(keeper, python(code), grace=20) as child:
        await read_line(child)
        child.stdin.close()

    assert await child.wait() == 0


@pytest.mark.parametrize(
    ("setup", "code"),
    [
        ("import signal, sys; signal.signal(signal.SIGTERM, lambda *a: sys.exit(9))\n", 9),
        (IGNORE_SIGTERM, -signal.SIGKILL),
    ],
    ids=["handles SIGTERM", "ignores SIGTERM"],
)
async def test_server_gets_sigterm_and_then_sigkill(keeper: Keeper, setup: str, code: int) -> None:
    async with started(keeper, python(setup + "print(flush=True)" + SLEEP_FOREVER)) as child:
        await read_line(child)

    assert await child.wait() == code


@pytest.mark.promise("LNK-11")
async def test_daemon_ends_with_its_server(keeper: Keeper, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    async with started(keeper, python(DAEMON + SLEEP_FOREVER, str(lock))) as child:
        await read_line(child)

    assert not is_locked(lock)


@pytest.mark.promise("LNK-11")
async def test_daemon_ends_after_its_server_exits(keeper: Keeper, tmp_path: Path) -> None:
    lock = tmp_path / "lock"

    child = await keeper.spawn(python(DAEMON, str(lock)))
    await read_line(child)

    await wait_unlocked(lock)
    assert await child.wait() == 0
    await child.end(0)
    child.close()


HOLD_PROCESS = """
import ctypes, sys
PTRACE_SEIZE = 0x4206
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
print(ctypes.get_errno() if libc.ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None) else 0, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(pid: int) -> Iterator[None]:
    """Trace a process: its parent cannot reap it before the tracer has ended, even after SIGKILL."""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", HOLD_PROCESS, str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tracer:
        assert tracer.stdin is not None
        assert tracer.stdout is not None
        with tracer.stdin:
            if (error := tracer.stdout.readline().strip()) != "0":
                pytest.skip(f"processes cannot be traced here: {error}")
            yield


@pytest.mark.slow
@pytest.mark.promise("BOX-01")
@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("survives", [True, False], ids=["survivor", "control"])
async def test_locks_of_a_folder_stay_while_a_process_of_its_server_cannot_be_ended(
    keeper: Keeper, root: Path, *, survives: bool
) -> None:
    all_gone = asyncio.Event()
    child = await keeper.spawn(confined(python("print(flush=True)" + SLEEP_FOREVER), root))
    child.on_gone(all_gone.set)
    await read_line(child)
    with held(child.pid) if survives else contextlib.nullcontext():
        async with asyncio.timeout(30):
            await child.end(0.1)
        await wait_for_cleanups()
        is_gone, is_running = all_gone.is_set(), can_confined_server_change(str(root))
    await all_gone.wait()
    await wait_for_cleanups()
    child.close()

    assert (is_gone, is_running) == (not survives, survives)
    assert not can_confined_server_change(str(root))


@pytest.mark.promise("LNK-11")
async def test_closing_the_keeper_ends_servers_and_the_keeper_process(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    async with Keeper() as keeper:
        child = await keeper.spawn(python(DAEMON + IGNORE_SIGTERM + SLEEP_FOREVER, str(lock)))
        await read_line(child)
        process = keeper.pid
    child.close()

    assert process is not None
    assert (is_locked(lock), Path(f"/proc/{child.pid}").exists(), Path(f"/proc/{process}").exists()) == (
        False,
        False,
        False,
    )


HOST = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[1])
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.keeper.keeper import Keeper

async def main():
    async with Keeper(BwrapSandbox()) as keeper:
        confinement = Confinement(roots=(sys.argv[3],)) if sys.argv[4] == 'confined' else None
        spec = ProcessSpec(argv=(sys.executable, '-I', '-c', sys.argv[2], sys.argv[3] + '/lock'), env={}, cwd=sys.argv[3], confinement=confinement)
        child = await keeper.spawn(spec)
        child.stdout.read(1)
        if sys.argv[5] == 'forked' and os.fork() == 0:
            os.close(1)
            signal.pause()  # this process holds a copy of every socket of the host
        print(keeper.pid, child.pid, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.promise("LNK-11")
@pytest.mark.parametrize("trust", ["direct", "confined"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_process_outlives_a_killed_host(root: Path, trust: str, number: int) -> None:
    with _start_host(root, trust) as host:
        assert host.stdout is not None
        pids = [int(word) for word in (await asyncio.to_thread(host.stdout.readline)).split()]
        host.send_signal(number)
        host.wait()

    await wait_unlocked(root / "lock")
    for pid in pids:
        await wait_exit(pid)


@pytest.mark.promise("LNK-11")
async def test_fork_of_the_host_with_its_sockets_keeps_no_server_alive(root: Path) -> None:
    with _start_host(root, "direct", "forked") as host:
        assert host.stdout is not None
        await asyncio.to_thread(host.stdout.readline)
        (fork,) = [
            pid
            for pid in children(host.pid)
            if "keeper_process.py" not in Path(f"/proc/{pid}/cmdline").read_text()
        ]
        host.kill()
        host.wait()
        try:
            await wait_unlocked(root / "lock")
        finally:
            os.kill(fork, signal.SIGKILL)


async def test_without_a_keeper_server_and_daemon_outlive_a_killed_host(root: Path) -> None:
    lock = root / "lock"
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', *sys.argv[1:]], stdout=subprocess.PIPE); p.stdout.read(1); print(flush=True); p.wait()"
    host = subprocess.Popen(
        [sys.executable, "-c", code, DAEMON + SLEEP_FOREVER, str(lock)], stdout=subprocess.PIPE
    )
    assert host.stdout is not None
    (server,) = await _first_children(host)
    host.kill()
    host.communicate()

    assert is_locked(lock)
    for pid in (server, int(lock.read_text())):
        os.kill(pid, signal.SIGKILL)


async def test_servers_start_with_a_python_that_has_no_pidfd_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _change_keeper_process(
        tmp_path, monkeypatch, ("import os\n", "import os\n\nvars(os).pop('pidfd_open', None)\n")
    )

    async with Keeper() as keeper:
        completed = await run(keeper, python("print('new')"))

    assert completed == Completed(code=0, out="new\n", err="")


async def test_killed_keeper_process_is_replaced_and_servers_continue(
    keeper: Keeper,
) -> None:
    async with started(keeper, ProcessSpec(argv=("cat",), env=PATH, cwd="/")) as child:
        first = keeper.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await wait_exit(first)

        child.stdin.write(b"still here\n")
        echoed = await read_line(child)
        completed = await asyncio.gather(*(run(keeper, python("print('new')")) for _ in range(5)))

    assert (echoed, completed, keeper.pid == first) == (
        "still here",
        [Completed(code=0, out="new\n", err="")] * 5,
        False,
    )


@pytest.mark.promise("LNK-11")
async def test_server_and_daemon_end_when_their_supervisor_is_killed(keeper: Keeper, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert keeper.pid is not None
    async with started(keeper, python(DAEMON + IGNORE_SIGTERM + SLEEP_FOREVER, str(lock))) as child:
        await read_line(child)
        (supervisor,) = children(keeper.pid)

        os.kill(supervisor, signal.SIGKILL)

        await wait_unlocked(lock)
        await wait_exit(child.pid)
        assert await child.wait() == -signal.SIGKILL


async def test_supervisor_of_an_ended_server_supervises_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _change_keeper_process(tmp_path, monkeypatch, ("_IDLE_SECONDS = 5.0", "_IDLE_SECONDS = 600.0"))
    async with Keeper() as keeper:
        await run(keeper, python("pass"))
        assert keeper.pid is not None
        (supervisor,) = children(keeper.pid)
        descriptors = _descriptors_of(supervisor)

        facts = {(await run(keeper, python(FACTS))).out for _ in range(3)}

        assert (children(keeper.pid), _descriptors_of(supervisor)) == ([supervisor], descriptors)
        assert len(facts) == 1


async def test_idle_supervisors_that_were_killed_are_replaced(keeper: Keeper) -> None:
    await asyncio.gather(*(run(keeper, python("pass")) for _ in range(4)))
    process = keeper.pid
    assert process is not None
    for supervisor in children(process):
        os.kill(supervisor, signal.SIGKILL)
        await wait_exit(supervisor)

    completed = await run(keeper, python("print('new')"))

    assert (completed.out, keeper.pid) == ("new\n", process)


async def test_idle_supervisors_exit_with_the_keeper_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _change_keeper_process(tmp_path, monkeypatch, ("_IDLE_SECONDS = 5.0", "_IDLE_SECONDS = 600.0"))
    async with Keeper() as keeper:
        await asyncio.gather(*(run(keeper, python("pass")) for _ in range(4)))
        assert keeper.pid is not None
        supervisors = children(keeper.pid)
        assert supervisors

        os.kill(keeper.pid, signal.SIGKILL)

        for supervisor in supervisors:
            await wait_exit(supervisor)


async def test_few_supervisors_stay_idle_and_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ("_MAX_IDLE = 32", "_MAX_IDLE = 2"), ("_IDLE_SECONDS = 5.0", "_IDLE_SECONDS = 0.5")
    _change_keeper_process(tmp_path, monkeypatch, *changes)
    cat = ProcessSpec(argv=("cat",), env=PATH, cwd="/")
    async with Keeper() as keeper:
        process = keeper.pid
        assert process is not None
        async with started(keeper, cat), started(keeper, cat), started(keeper, cat), started(keeper, cat):
            assert len(children(process)) == 4

        await wait_until(lambda: len(children(process)) <= 2)
        await wait_until(lambda: not children(process))


async def test_start_without_free_descriptors_fails_and_the_next_works(
    keeper: Keeper,
) -> None:
    await run(keeper, python("pass"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir())
    fillers = [os.open(os.devnull, os.O_RDONLY)]
    while fillers[-1] < highest:  # until no lower descriptor is free
        fillers.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[-1] + 4, hard))
    try:
        with pytest.raises(HoldfastError, match="too many files are open"):
            await keeper.spawn(python("pass"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)

    assert (await run(keeper, python("print(1)"))).out == "1\n"


async def test_fifty_servers_start_and_end_concurrently(keeper: Keeper) -> None:
    done = await asyncio.gather(
        *(run(keeper, ProcessSpec(argv=("cat",), env=PATH, cwd="/"), b"%d" % n) for n in range(50))
    )

    assert [one.out for one in done] == [str(number) for number in range(50)]


SETUID = '#include <stdio.h>\n#include <unistd.h>\nint main() { printf("%d %d\\n", getuid(), geteuid()); }\n'
AS_NOBODY = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper

async def main():
    async with Keeper() as keeper:
        child = await keeper.spawn(ProcessSpec(argv=(sys.argv[2],), env={}, cwd='/'))
        print(child.stdout.read().decode(), end='')
        await child.end(1)
        child.close()

asyncio.run(main())
"""


@pytest.mark.promise("LNK-11")
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("gcc"), reason="needs root and gcc to make a setuid program"
)
@pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="needs a Python that the user nobody can run"
)
def test_setuid_program_works_in_a_direct_server(open_folder: Path) -> None:
    program, source = open_folder / "gain", open_folder / "gain.c"
    source.write_text(SETUID)
    subprocess.run(["gcc", "-o", program, source], check=True)
    program.chmod(0o4755)

    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", AS_NOBODY, copy_source(open_folder), str(program)], user=65534, group=65534, extra_groups=[],
        cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("65534 0\n", "")


def _change_keeper_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, str]
) -> None:
    """Let the next keeper run a copy of its script with these texts replaced."""
    source = Path(keeper_process.__file__).read_text(encoding="utf-8")
    for old, new in changes:
        assert source.count(old) == 1
        source = source.replace(old, new)
    script = tmp_path / "keeper.py"
    script.write_text(source, encoding="utf-8")
    monkeypatch.setattr(client, "_SCRIPT", script)


def _descriptors_of(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def _start_host(root: Path, trust: str, fork: str = "") -> subprocess.Popen[str]:
    arguments = [str(SRC), DAEMON + IGNORE_SIGTERM + SLEEP_FOREVER, str(root), trust, fork]
    return subprocess.Popen([sys.executable, "-c", HOST, *arguments], stdout=subprocess.PIPE, text=True)


async def _first_children(host: subprocess.Popen[bytes]) -> list[int]:
    assert host.stdout is not None
    await asyncio.to_thread(host.stdout.readline)
    return children(host.pid)
