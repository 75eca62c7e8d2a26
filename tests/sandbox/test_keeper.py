"""A direct server started by the keeper: what it is given, what it keeps, how it ends."""

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Launch
from holdfast.sandbox.keeper import Keeper
from tests.sandbox.support import (
    DAEMON,
    PATH,
    STAY,
    STUBBORN,
    Done,
    children,
    confined,
    descriptors,
    gone,
    held,
    line,
    python,
    readable_source,
    released,
    run,
    started,
    until,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="wardens need Linux"),
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
    'ignored': status['SigIgn'], 'blocked': status['SigBlk'], 'leader': os.getsid(0) == os.getpid(),
    'groups': os.getgroups(), 'oom': open('/proc/self/oom_score_adj').read(),
}))
"""


@pytest.mark.promise("LNK-11")
async def test_a_direct_server_is_given_what_a_plain_child_is_given(keeper: Keeper, tmp_path: Path) -> None:
    launch = python(FACTS, cwd=str(tmp_path), env={"LC_ALL": "C.UTF-8", "A": "ä = $HOME"})

    ours = json.loads((await run(keeper, launch)).out)
    plain = subprocess.run(
        launch.argv, cwd=launch.cwd, env=launch.env, stdin=subprocess.DEVNULL, capture_output=True,
        start_new_session=True, check=True,
    )  # fmt: skip

    assert ours == json.loads(plain.stdout)


async def test_words_go_both_ways_and_the_exit_code_comes_back(keeper: Keeper) -> None:
    code = "import sys; print(sys.stdin.read().upper()); print('oh', file=sys.stderr); sys.exit(3)"

    assert await run(keeper, python(code), b"hi") == Done(code=3, out="HI\n", err="oh\n")


async def test_a_signal_that_ended_it_is_told_as_a_negative_code(keeper: Keeper) -> None:
    done = await run(keeper, python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))

    assert done.code == -signal.SIGSEGV


async def test_arguments_and_environment_of_any_size_and_bytes_arrive_whole(keeper: Keeper) -> None:
    env = {f"V{number}": chr(0xDC80 + number) + "x" * 60_000 for number in range(20)}
    code = "import hashlib, os; print(hashlib.md5(repr(sorted(os.environb.items())).encode()).hexdigest())"
    launch = Launch(argv=(sys.executable, "-I", "-c", code), env={**env, "LC_ALL": "C.UTF-8"}, cwd="/")

    ours = await run(keeper, launch)
    plain = subprocess.run(launch.argv, env=launch.env, capture_output=True, text=True, check=True)

    assert ours.out == plain.stdout


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (Launch(argv=("no-such-program",), env=PATH, cwd="/"), "Could not start 'no-such-program': there is no such program. Install it"),
        (Launch(argv=("/etc/passwd",), env=PATH, cwd="/"), "Could not start '/etc/passwd': it may not be executed."),
        (Launch(argv=("cat",), env=PATH, cwd="/no/such"), "Could not start 'cat': its working folder '/no/such' cannot be entered: no such file"),
        (Launch(argv=("c\0at",), env=PATH, cwd="/"), "Could not start 'c\\x00at': there is a NUL character"),
        (Launch(argv=("cat", "x" * 200_000), env=PATH, cwd="/"), "Could not start 'cat': its arguments and environment are too long"),
    ],
)  # fmt: skip
async def test_what_cannot_be_started_is_told_with_the_reason(
    keeper: Keeper, launch: Launch, message: str
) -> None:
    with pytest.raises(HoldfastError) as caught:
        await keeper.spawn(launch)

    assert (caught.value.code, caught.value.message[: len(message)]) == (codes.SPAWN_FAILED, message)


async def test_a_script_without_its_interpreter_says_so(keeper: Keeper, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)

    with pytest.raises(HoldfastError, match="the interpreter that its first line names is missing"):
        await keeper.spawn(Launch(argv=(str(script),), env=PATH, cwd="/"))


async def test_a_failed_start_leaves_no_process_and_no_descriptor(keeper: Keeper) -> None:
    await run(keeper, python("pass"))
    before = descriptors()

    for _ in range(20):
        with pytest.raises(HoldfastError):
            await keeper.spawn(Launch(argv=("no-such-program",), env=PATH, cwd="/"))

    assert keeper.pid is not None
    await until(lambda: descriptors() <= before and children(keeper.pid or 0) == [])


async def test_a_cancelled_start_leaves_no_process_and_no_descriptor(keeper: Keeper, tmp_path: Path) -> None:
    await run(keeper, python("pass"))
    before = descriptors()

    for turns in range(30):
        task = asyncio.create_task(keeper.spawn(python(STUBBORN + STAY)))
        for _ in range(turns % 6):
            await asyncio.sleep(0)
        if turns > 20:
            await asyncio.sleep(0.001 * (turns - 20))
        task.cancel()
        try:
            child = await task
        except asyncio.CancelledError:
            continue
        child.let_go()
        child.close()

    assert keeper.pid is not None
    await until(lambda: descriptors() <= before and children(keeper.pid or 0) == [])


async def test_a_cancelled_confined_start_leaves_no_process_and_no_descriptor(
    keeper: Keeper, bwrap: object, root: Path
) -> None:
    launch = confined(python(STAY), root, network=("example.org",))
    await run(keeper, confined(python("pass"), root))
    before = descriptors()

    for turns in range(12):
        task = asyncio.create_task(keeper.spawn(launch))
        await asyncio.sleep(0.006 * turns)
        task.cancel()
        try:
            child = await task
        except asyncio.CancelledError:
            continue
        child.let_go()
        child.close()

    assert keeper.pid is not None
    await until(lambda: descriptors() <= before and children(keeper.pid or 0) == [])


async def test_a_server_that_goes_at_the_end_of_its_input_is_not_signalled(
    keeper: Keeper, tmp_path: Path
) -> None:
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *a: sys.exit(9)); print(flush=True); sys.stdin.read()"
    async with started(keeper, python(code), grace=20) as child:
        await line(child)
        child.stdin.close()

    assert await child.wait() == 0


async def test_one_that_stays_is_asked_and_one_that_does_not_listen_is_made_to_go(keeper: Keeper) -> None:
    listening = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *a: sys.exit(9)); print(flush=True)" + STAY
    )
    deaf = STUBBORN + "print(flush=True)" + STAY
    codes_: list[int] = []

    for code in (listening, deaf):
        async with started(keeper, python(code)) as child:
            await line(child)
        codes_.append(await child.wait())

    assert codes_ == [9, -signal.SIGKILL]


@pytest.mark.promise("LNK-11")
async def test_a_daemon_does_not_outlive_the_end_of_its_server(keeper: Keeper, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    async with started(keeper, python(DAEMON + STAY, str(lock))) as child:
        await line(child)

    assert not held(lock)


@pytest.mark.promise("LNK-11")
async def test_a_daemon_does_not_outlive_a_server_that_exits_by_itself(
    keeper: Keeper, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"

    child = await keeper.spawn(python(DAEMON, str(lock)))
    await line(child)

    await released(lock)
    assert await child.wait() == 0
    await child.end(0)
    child.close()


@pytest.mark.promise("LNK-11")
async def test_closing_the_keeper_ends_every_server_and_its_own_process(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    async with Keeper() as keeper:
        child = await keeper.spawn(python(DAEMON + STUBBORN + STAY, str(lock)))
        await line(child)
        process = keeper.pid
    child.close()

    assert process is not None
    assert (held(lock), Path(f"/proc/{child.pid}").exists(), Path(f"/proc/{process}").exists()) == (
        False,
        False,
        False,
    )


HOST = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[1])
from holdfast.model.launch import Confinement, Launch
from holdfast.sandbox.bwrap import Bwrap
from holdfast.sandbox.keeper import Keeper

async def main():
    async with Keeper(Bwrap()) as keeper:
        walls = Confinement(roots=(sys.argv[3],)) if sys.argv[4] == 'confined' else None
        launch = Launch(argv=(sys.executable, '-I', '-c', sys.argv[2], sys.argv[3] + '/lock'), env={}, cwd=sys.argv[3], confinement=walls)
        child = await keeper.spawn(launch)
        child.stdout.read(1)
        if sys.argv[5] == 'forked' and os.fork() == 0:
            os.close(1)
            signal.pause()  # holds a copy of every socket of the host's
        print(keeper.pid, child.pid, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.mark.promise("LNK-11")
@pytest.mark.parametrize("walls", ["direct", "confined"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_outlives_a_host_that_is_killed(root: Path, walls: str, number: int) -> None:
    with _host(root, walls) as host:
        assert host.stdout is not None
        pids = [int(word) for word in (await asyncio.to_thread(host.stdout.readline)).split()]
        host.send_signal(number)
        host.wait()

    await released(root / "lock")
    for pid in pids:
        await gone(pid)


@pytest.mark.promise("LNK-11")
async def test_a_fork_of_the_host_that_holds_its_sockets_keeps_nothing_alive(root: Path) -> None:
    with _host(root, "direct", "forked") as host:
        assert host.stdout is not None
        await asyncio.to_thread(host.stdout.readline)
        (fork,) = [
            pid for pid in children(host.pid) if "warden.py" not in Path(f"/proc/{pid}/cmdline").read_text()
        ]
        host.kill()
        host.wait()
        try:
            await released(root / "lock")
        finally:
            os.kill(fork, signal.SIGKILL)


async def test_without_a_keeper_a_killed_host_leaves_its_server_and_daemon_behind(root: Path) -> None:
    lock = root / "lock"
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', *sys.argv[1:]], stdout=subprocess.PIPE); p.stdout.read(1); print(flush=True); p.wait()"
    host = subprocess.Popen([sys.executable, "-c", code, DAEMON + STAY, str(lock)], stdout=subprocess.PIPE)
    assert host.stdout is not None
    (server,) = await _first_children(host)
    host.kill()
    host.communicate()

    assert held(lock)
    for pid in (server, int(lock.read_text())):
        os.kill(pid, signal.SIGKILL)


async def test_when_the_keepers_process_is_killed_servers_go_on_and_the_next_start_replaces_it(
    keeper: Keeper,
) -> None:
    async with started(keeper, Launch(argv=("cat",), env=PATH, cwd="/")) as child:
        first = keeper.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await gone(first)

        child.stdin.write(b"still here\n")
        said = await line(child)
        done = await asyncio.gather(*(run(keeper, python("print('new')")) for _ in range(5)))

    assert (said, done, keeper.pid == first) == ("still here", [Done(code=0, out="new\n", err="")] * 5, False)


@pytest.mark.promise("LNK-11")
async def test_when_a_warden_is_killed_its_server_and_daemon_go_with_it(
    keeper: Keeper, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    assert keeper.pid is not None
    async with started(keeper, python(DAEMON + STUBBORN + STAY, str(lock))) as child:
        await line(child)
        (warden,) = children(keeper.pid)

        os.kill(warden, signal.SIGKILL)

        await released(lock)
        await gone(child.pid)
        assert await child.wait() == -signal.SIGKILL


async def test_without_descriptors_left_a_start_fails_in_a_sentence_and_the_next_one_works(
    keeper: Keeper,
) -> None:
    await run(keeper, python("pass"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir())
    fillers = [os.open(os.devnull, os.O_RDONLY)]
    while fillers[-1] < highest:  # no free number is left below
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


async def test_fifty_servers_start_and_end_at_once(keeper: Keeper) -> None:
    done = await asyncio.gather(
        *(run(keeper, Launch(argv=("cat",), env=PATH, cwd="/"), b"%d" % n) for n in range(50))
    )

    assert [one.out for one in done] == [str(number) for number in range(50)]


SETUID = '#include <stdio.h>\n#include <unistd.h>\nint main() { printf("%d %d\\n", getuid(), geteuid()); }\n'
AS_NOBODY = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from holdfast.model.launch import Launch
from holdfast.sandbox.keeper import Keeper

async def main():
    async with Keeper() as keeper:
        child = await keeper.spawn(Launch(argv=(sys.argv[2],), env={}, cwd='/'))
        print(child.stdout.read().decode(), end='')
        await child.end(1)
        child.close()

asyncio.run(main())
"""


@pytest.mark.promise("LNK-11")
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("gcc"), reason="needs root and gcc to make a setuid program"
)
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python that nobody can run")
def test_a_setuid_program_still_gains_its_rights_in_a_direct_server(open_folder: Path) -> None:
    program, source = open_folder / "gain", open_folder / "gain.c"
    source.write_text(SETUID)
    subprocess.run(["gcc", "-o", program, source], check=True)
    program.chmod(0o4755)

    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", AS_NOBODY, readable_source(open_folder), str(program)], user=65534, group=65534, extra_groups=[],
        cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("65534 0\n", "")


def _host(root: Path, walls: str, fork: str = "") -> subprocess.Popen[str]:
    words = [str(SRC), DAEMON + STUBBORN + STAY, str(root), walls, fork]
    return subprocess.Popen([sys.executable, "-c", HOST, *words], stdout=subprocess.PIPE, text=True)


async def _first_children(host: subprocess.Popen[bytes]) -> list[int]:
    assert host.stdout is not None
    await asyncio.to_thread(host.stdout.readline)
    return children(host.pid)
