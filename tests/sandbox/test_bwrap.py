"""A real server behind bubblewrap's walls: what it sees, who it is, what it is told."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Confinement, Launch, Quota
from holdfast.sandbox.bwrap import Bwrap
from holdfast.sandbox.keeper import Keeper
from holdfast.sandbox.probes import probe
from holdfast.wire.mcp.client import Client, greet
from holdfast.wire.mcp.eras import Era, Implementation, Introduction
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import over_pipes
from tests.sandbox.support import PATH, Done, confined, python, readable_source, run, started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

PROJECT = Path(__file__).resolve().parents[2]
NODE_BIN = PROJECT / "peers" / "node_modules" / ".bin"
SERVER = NODE_BIN / "mcp-server-filesystem"
ME = Introduction(who=Implementation("holdfast-tests", "1"))
CONTEXT = {"HOLDFAST_SESSION_ID": "sess_0123456789abcdef", "HOLDFAST_WORKSPACE_ID": "kelp", "HOLDFAST_TRUST_LEVEL": "sandboxed"}  # fmt: skip


@pytest.mark.promise("BOX-01")
async def test_it_sees_its_root_the_system_its_runtime_and_nothing_else(keeper: Keeper, root: Path) -> None:
    (root / "mine").write_text("in reach")
    code = """
import json, os
print(json.dumps({
    'root': open('mine').read(), 'beside': os.listdir('..'), 'top': sorted(os.listdir('/')),
    'home': os.path.exists(os.path.expanduser('~root/.ssh')), 'tmp': os.listdir('/tmp'), 'run': os.listdir('/run'),
    'env': dict(os.environ), 'pids': [p for p in os.listdir('/proc') if p.isdecimal()],
    'fds': [f for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)], 'name': os.uname().nodename,
    'user': open('/etc/passwd').read().count(chr(10)), 'interfaces': open('/proc/net/dev').read().count(':'),
}))
"""
    found = json.loads(
        (await run(keeper, confined(python(code, env={**PATH, "LC_ALL": "C.UTF-8"}), root))).out
    )

    top = {name: found["top"].count(name) for name in ("etc", "proc", "usr", "tmp", "dev", "home", "srv", "opt", "boot", "sys")}  # fmt: skip
    assert top == {"etc": 1, "proc": 1, "usr": 1, "tmp": 1, "dev": 1, "home": 0, "srv": 0, "opt": 0, "boot": 0, "sys": 0}  # fmt: skip
    assert found["env"] == {**PATH, "LC_ALL": "C.UTF-8", "PWD": str(root)}
    assert (found["root"], found["beside"], found["home"], found["run"], found["fds"], found["name"], found["user"]) == (
        "in reach", [root.name], False, [], ["0", "1", "2"], "sandbox", 1,
    )  # fmt: skip
    assert (len(found["pids"]), found["interfaces"]) == (2, 1)


@pytest.mark.promise("CTX-11")
async def test_a_python_server_inside_reads_its_context(keeper: Keeper, root: Path) -> None:
    server = root / "server.py"
    server.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    context = {k: v for k, v in os.environ.items() if k.startswith('HOLDFAST_')}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': context}), flush=True)\n"
    )
    launch = Launch(argv=(sys.executable, str(server)), env={**PATH, **CONTEXT}, cwd=str(root))
    ask = b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}\n'

    done = await run(keeper, confined(launch, root), ask)

    assert (json.loads(done.out)["result"], done.err) == (CONTEXT, "")


@pytest.mark.promise("BOX-01", "BOX-02")
async def test_the_file_server_of_others_works_inside_its_root_and_not_outside(
    keeper: Keeper, root: Path
) -> None:
    if not SERVER.exists():
        pytest.fail("The Node peers are missing: run `make setup`.", pytrace=False)
    env = {"PATH": f"{NODE_BIN}:/usr/bin:/bin"}
    # It is told that it may serve everything, so that only the walls stand between it and the secret.
    launch = Launch(argv=(str(SERVER), "/"), env=env, cwd=str(root))
    async with speaking(keeper, confined(launch, root)) as client:
        written = await client.call("write_file", {"path": str(root / "a.txt"), "content": "hello"})
        read = await client.call("read_text_file", {"path": str(root / "a.txt")})
        outside = await client.call("read_text_file", {"path": str(root.parent / "secret")})
        home = await client.call("list_directory", {"path": "/home"})

    assert ((root / "a.txt").read_text(), text(read), written.is_error) == ("hello", "hello", False)
    assert (outside.is_error, text(outside)[:6], home.is_error) == (True, "ENOENT", True)


async def test_without_walls_the_same_server_reads_the_secret(keeper: Keeper, root: Path) -> None:
    launch = Launch(argv=(str(SERVER), "/"), env={"PATH": f"{NODE_BIN}:/usr/bin:/bin"}, cwd=str(root))
    async with speaking(keeper, launch) as client:
        outside = await client.call("read_text_file", {"path": str(root.parent / "secret")})

    assert text(outside) == "out of reach"


@pytest.mark.promise("BOX-02", "BOX-03", "BOX-04")
async def test_every_probe_is_stopped_inside_and_succeeds_outside(keeper: Keeper) -> None:
    inside, outside = await probe(keeper), await probe(keeper, confined=False)

    assert [outcome for outcome in inside if not outcome.held] == []
    stopped_outside = {outcome.attempt for outcome in outside if outcome.held}
    # The keeper ends daemons with or without walls; the rest needs root, or what a kernel may lack.
    perhaps = {"survive", "reach_hypervisor", "use_io_uring"}
    needs_root = {"mount_things", "write_to_system"} if os.geteuid() else set[str]()
    assert stopped_outside <= perhaps | needs_root


AS_NOBODY = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
from holdfast.sandbox.bwrap import Bwrap
from holdfast.sandbox.keeper import Keeper
from holdfast.sandbox.probes import probe

async def main():
    async with Keeper(Bwrap()) as keeper:
        print(json.dumps([outcome.attempt for outcome in await probe(keeper) if not outcome.held]))

asyncio.run(main())
"""


@pytest.mark.promise("BOX-02", "BOX-03")
@pytest.mark.skipif(os.geteuid() != 0, reason="the test above is run by a plain user already")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python that nobody can run")
def test_every_probe_is_stopped_for_a_host_without_rights_too(open_folder: Path) -> None:
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", AS_NOBODY, readable_source(open_folder)], user=65534, group=65534, extra_groups=[],
        cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.fixture
def anns() -> Iterator[Path]:
    """A folder of a plain user's, in a host that is root."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        home = Path(folder).resolve() / "anns"
        home.mkdir()
        os.chown(home, 4321, 4321)
        yield home


@pytest.mark.promise("BOX-01")
async def test_run_by_root_it_is_the_folders_owner_and_so_are_its_files(keeper: Keeper, anns: Path) -> None:
    code = "import os; open('new', 'w'); print(os.getuid(), os.getgid(), os.getgroups())"
    launch = Launch(argv=("/usr/bin/python3", "-I", "-c", code), env=PATH, cwd=str(anns))

    done = await run(keeper, confined(launch, anns))

    assert (done, (anns / "new").stat().st_uid) == (Done(code=0, out="4321 4321 []\n", err=""), 4321)


@pytest.mark.promise("BOX-03")
async def test_run_by_root_processes_are_limited_for_any_owner(
    keeper: Keeper, anns: Path, root: Path
) -> None:
    code = """
import os, signal
made = 0
try:
    while made < 60:
        if os.fork() == 0: signal.pause()
        made += 1
except OSError: pass
print(made < 40, flush=True)
"""
    made: list[str] = []
    for folder in (anns, root):
        launch = Launch(argv=("/usr/bin/python3", "-I", "-c", code), env=PATH, cwd=str(folder))
        made.append((await run(keeper, confined(launch, folder, quota=Quota(processes=40)))).out)

    assert made == ["True\n", "True\n"]


async def test_run_by_root_a_program_that_the_owner_cannot_reach_is_refused(
    keeper: Keeper, anns: Path
) -> None:
    hidden = anns.parent / "hidden"
    hidden.mkdir(mode=0o700)
    program = hidden / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    with pytest.raises(
        HoldfastError, match=r"owner of its folder \(uid 4321\), who may not enter '.*/hidden'"
    ):
        await keeper.spawn(confined(Launch(argv=(str(program),), env=PATH, cwd=str(anns)), anns))


async def test_variables_of_the_loader_do_not_reach_the_sandbox_itself(keeper: Keeper, root: Path) -> None:
    launch = python(
        "import os; print(os.environ['LD_PRELOAD'])", env={**PATH, "LD_PRELOAD": str(root / "evil.so")}
    )

    async with started(keeper, confined(launch, root)) as child:
        outer = Path(f"/proc/{child.pid}/environ").read_bytes()
        command = Path(f"/proc/{child.pid}/cmdline").read_bytes()
        said = child.stdout.read()

    assert (outer, b"evil.so" in command, said.decode()) == (b"", False, f"{root}/evil.so\n")


async def test_what_is_readable_can_be_read_and_not_written(
    keeper: Keeper, root: Path, tmp_path: Path
) -> None:
    script = tmp_path.resolve() / "script.py"
    script.write_text("print('ran'); open(__file__, 'a')")
    launch = Launch(argv=(sys.executable, str(script)), env=PATH, cwd=str(root))

    done = await run(keeper, confined(launch, root, readable=(str(script),)))

    assert (done.out, done.err.splitlines()[-1].partition(":")[0]) == ("ran\n", "OSError")
    assert "Read-only file system" in done.err


async def test_the_hosts_own_folders_are_empty_even_inside_a_root(keeper: Keeper, root: Path) -> None:
    (root / "data" / "holdfast").mkdir(parents=True)
    (root / "data" / "holdfast" / "key").write_text("secret")
    code = "import os; print(os.listdir('data/holdfast'))\nopen('data/holdfast/x', 'w')"

    hidden = (str(root / "data" / "holdfast"), str(root / "no-such"), "/home")
    done = await run(keeper, confined(python(code), root, hidden=hidden))

    assert (done.out, "Read-only file system" in done.err) == ("[]\n", True)
    assert sorted(path.name for path in root.iterdir()) == ["data"]


async def test_ten_first_starts_try_it_out_once(root: Path) -> None:
    sandbox = Bwrap()
    launch = confined(Launch(argv=("true",), env=PATH, cwd=str(root)), root)

    async with Keeper(sandbox) as keeper:
        done = await asyncio.gather(*(run(keeper, launch) for _ in range(10)))

    assert [one.code for one in done] == [0] * 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cwd": "/srv"}, "its working folder '/srv' is outside its roots"),
        ({"argv": ("no-such-program",)}, "there is no such program"),
        ({"confinement": Confinement(roots=("/",))}, "'/' cannot be a root: it belongs to the system"),
        ({"confinement": Confinement(roots=("/etc",))}, "'/etc' cannot be a root: it belongs to the system"),
        ({"confinement": Confinement(roots=("/no/such",))}, "'/no/such' cannot be opened: no such file"),
        ({"confinement": Confinement(roots=("relative",))}, "give the folder's absolute, normal path"),
        ({"confinement": Confinement(roots=("/tmp/../root",))}, "give the folder's absolute, normal path"),
    ],
)
async def test_walls_that_cannot_be_put_up_are_told(
    keeper: Keeper, root: Path, change: dict[str, object], message: str
) -> None:
    launch = confined(Launch(argv=("true",), env=PATH, cwd=str(root)), root)

    with pytest.raises(HoldfastError) as caught:
        await keeper.spawn(replace(launch, **change))  # pyright: ignore[reportArgumentType]

    assert (caught.value.code, message in caught.value.message) == (codes.SPAWN_FAILED, True), caught.value


async def test_it_is_tried_out_once_and_remembered() -> None:
    sandbox = Bwrap()

    first, second = await sandbox.check(), await sandbox.check()

    assert (first.works, first is second) == (True, True)


@asynccontextmanager
async def speaking(keeper: Keeper, launch: Launch) -> AsyncIterator[Client]:
    async with started(keeper, launch) as child, over_pipes(Peer(), child.stdout, child.stdin) as peer:
        yield await greet(peer, ME, era=Era.HANDSHAKE)


def text(result: object) -> str:
    content: list[bytes] = getattr(result, "content")  # noqa: B009 - the same for every result
    return msgspec.json.decode(content[0])["text"]
