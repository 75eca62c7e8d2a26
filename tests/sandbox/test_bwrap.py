"""Real servers in a bubblewrap sandbox: what they see, which user they run as, what they receive."""

import asyncio
import json
import os
import pwd
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
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.model.quota import Quota
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.escape_probe_runner import run_escape_probes
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.wire.mcp.client import Client, negotiate
from holdfast.wire.mcp.eras import Era, Implementation, OwnInfo
from holdfast.wire.peer import Peer
from holdfast.wire.pipe import connect_pipes
from tests.sandbox.support import PATH, Completed, confined, copy_source, python, read_line, run, started

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

PROJECT = Path(__file__).resolve().parents[2]
NODE_BIN = PROJECT / "peers" / "node_modules" / ".bin"
SERVER = NODE_BIN / "mcp-server-filesystem"
ME = OwnInfo(implementation=Implementation("holdfast-tests", "1"))
CONTEXT = {"HOLDFAST_SESSION_ID": "sess_0123456789abcdef", "HOLDFAST_WORKSPACE_ID": "kelp", "HOLDFAST_TRUST_LEVEL": "sandboxed"}  # fmt: skip

# If this clone is below /home, the sandbox shows the folders on the way to its interpreter, and nothing else in /home.
HOMES = [PROJECT.parts[2]] if PROJECT.parts[1] == "home" else []


@pytest.mark.promise("BOX-01")
async def test_server_sees_only_its_root_the_system_and_its_runtime(keeper: Keeper, root: Path) -> None:
    (root / "mine").write_text("in reach")
    code = """
import json, os
print(json.dumps({
    'root': open('mine').read(), 'beside': os.listdir('..'), 'top': sorted(os.listdir('/')),
    'home': os.path.exists(os.path.expanduser('~root/.ssh')), 'tmp': os.listdir('/tmp'), 'run': os.listdir('/run'),
    'env': dict(os.environ), 'pids': [p for p in os.listdir('/proc') if p.isdecimal()],
    'fds': [f for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)], 'name': os.uname().nodename,
    'user': open('/etc/passwd').read().count(chr(10)), 'interfaces': open('/proc/net/dev').read().count(':'),
    'homes': os.listdir('/home') if os.path.exists('/home') else [],
}))
"""
    found = json.loads(
        (await run(keeper, confined(python(code, env={**PATH, "LC_ALL": "C.UTF-8"}), root))).out
    )

    top = {name: found["top"].count(name) for name in ("etc", "proc", "usr", "tmp", "dev", "home", "srv", "opt", "boot", "sys")}  # fmt: skip
    assert found["homes"] == HOMES
    assert top == {"etc": 1, "proc": 1, "usr": 1, "tmp": 1, "dev": 1, "home": len(HOMES), "srv": 0, "opt": 0, "boot": 0, "sys": 0}  # fmt: skip
    assert found["env"] == {**PATH, "LC_ALL": "C.UTF-8", "PWD": str(root)}
    assert (found["root"], found["beside"], found["home"], found["run"], found["fds"], found["name"], found["user"]) == (
        "in reach", [root.name], False, [], ["0", "1", "2"], "sandbox", 1,
    )  # fmt: skip
    assert (len(found["pids"]), found["interfaces"]) == (2, 1)


REACH = """
import json, os, sys
seen, own, *folders = sys.argv[1:]
with open(own, 'w') as file: file.write('mine')
print(json.dumps({'sees': os.path.exists(seen), 'kept': open(own).read(), 'writable': [f for f in folders if os.access(f, os.W_OK)]}))
"""


@pytest.mark.promise("BOX-01")
@pytest.mark.parametrize("confine", [True, False], ids=["attack", "control"])
async def test_tmp_is_private_and_system_and_runtime_are_read_only(
    keeper: Keeper, root: Path, *, confine: bool
) -> None:
    folders = ("/usr", "/etc", str(Path(sys.prefix) / "lib"), sys.base_prefix, str(Path(os.__file__).parent))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        seen, own = Path(folder) / "seen", Path(f"{folder}-own")
        seen.touch()
        spec = python(REACH, str(seen), str(own), *folders, cwd=str(root))
        found = json.loads((await run(keeper, confined(spec, root) if confine else spec)).out)
        left = own.exists()
        own.unlink(missing_ok=True)

    if confine:
        assert (found, left) == ({"sees": False, "kept": "mine", "writable": []}, False)
    else:
        assert (found["sees"], found["kept"], left) == (True, "mine", True)
        assert os.geteuid() or found["writable"] == [*folders]


@pytest.mark.promise("CTX-11")
async def test_python_server_reads_its_session_context(keeper: Keeper, root: Path) -> None:
    server = root / "server.py"
    server.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    context = {k: v for k, v in os.environ.items() if k.startswith('HOLDFAST_')}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': context}), flush=True)\n"
    )
    spec = ProcessSpec(argv=(sys.executable, str(server)), env={**PATH, **CONTEXT}, cwd=str(root))
    ask = b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}\n'

    done = await run(keeper, confined(spec, root), ask)

    assert (json.loads(done.out)["result"], done.err) == (CONTEXT, "")


@pytest.mark.promise("BOX-01", "BOX-02")
async def test_third_party_file_server_works_inside_its_root_only(keeper: Keeper, root: Path) -> None:
    if not SERVER.exists():
        pytest.fail("The Node peers are missing: run `make setup`.", pytrace=False)
    env = {"PATH": f"{NODE_BIN}:/usr/bin:/bin"}
    # The server is configured to serve everything, so only the sandbox keeps it from the secret.
    spec = ProcessSpec(argv=(str(SERVER), "/"), env=env, cwd=str(root))
    async with connect(keeper, confined(spec, root)) as client:
        written = await client.call_tool("write_file", {"path": str(root / "a.txt"), "content": "hello"})
        read = await client.call_tool("read_text_file", {"path": str(root / "a.txt")})
        outside = await client.call_tool("read_text_file", {"path": str(root.parent / "secret")})
        home = await client.call_tool("list_directory", {"path": "/home"})

    assert ((root / "a.txt").read_text(), text(read), written.is_error) == ("hello", "hello", False)
    assert (outside.is_error, text(outside)[:6]) == (True, "ENOENT")
    assert (home.is_error, text(home)) == (False, f"[DIR] {HOMES[0]}") if HOMES else home.is_error


async def test_control_unconfined_file_server_reads_the_secret(keeper: Keeper, root: Path) -> None:
    spec = ProcessSpec(argv=(str(SERVER), "/"), env={"PATH": f"{NODE_BIN}:/usr/bin:/bin"}, cwd=str(root))
    async with connect(keeper, spec) as client:
        outside = await client.call_tool("read_text_file", {"path": str(root.parent / "secret")})

    assert text(outside) == "out of reach"


@pytest.mark.promise("BOX-02", "BOX-03", "BOX-04")
async def test_escape_probes_are_stopped_inside_and_succeed_outside(keeper: Keeper) -> None:
    inside, outside = await run_escape_probes(keeper), await run_escape_probes(keeper, confined=False)

    assert [result for result in inside if not result.stopped] == []
    stopped_outside = {result.probe for result in outside if result.stopped}
    # The keeper ends the daemons of unconfined servers, too. The other attempts need root, or a kernel feature.
    may_fail = {"survive", "reach_hypervisor", "use_io_uring"}
    needs_root = {"mount_filesystem", "write_to_system"} if os.geteuid() else set[str]()
    assert stopped_outside <= may_fail | needs_root


AS_NOBODY = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
from holdfast.sandbox.bwrap.bwrap import BwrapSandbox
from holdfast.sandbox.keeper.keeper import Keeper
from holdfast.sandbox.escape_probe_runner import run_escape_probes

async def main():
    async with Keeper(BwrapSandbox()) as keeper:
        print(json.dumps([result.probe for result in await run_escape_probes(keeper) if not result.stopped]))

asyncio.run(main())
"""


@pytest.mark.promise("BOX-02", "BOX-03")
@pytest.mark.skipif(os.geteuid() != 0, reason="the test above already runs as a plain user")
@pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="needs a Python that the user nobody can run"
)
def test_escape_probes_are_stopped_for_an_unprivileged_host(open_folder: Path) -> None:
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", AS_NOBODY, copy_source(open_folder)], user=65534, group=65534, extra_groups=[],
        cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.fixture
def anns_folder() -> Iterator[Path]:
    """A folder owned by a plain user, for a host that runs as root."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to change the owner")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        home = Path(folder).resolve() / "anns"
        home.mkdir()
        os.chown(home, 4321, 4321)
        yield home


@pytest.mark.promise("BOX-01")
async def test_root_host_runs_a_server_as_the_folders_owner(keeper: Keeper, anns_folder: Path) -> None:
    code = "import os; open('new', 'w'); print(os.getuid(), os.getgid(), os.getgroups())"
    spec = ProcessSpec(argv=("/usr/bin/python3", "-I", "-c", code), env=PATH, cwd=str(anns_folder))

    done = await run(keeper, confined(spec, anns_folder))

    assert (done, (anns_folder / "new").stat().st_uid) == (
        Completed(code=0, out="4321 65534 []\n", err=""),
        4321,
    )


@pytest.mark.promise("BOX-01")
async def test_server_does_not_get_the_group_of_its_folder(keeper: Keeper, anns_folder: Path) -> None:
    owner = pwd.getpwnam("daemon")
    os.chown(anns_folder, owner.pw_uid, 4321)
    code = "import os; print(os.getuid(), os.getgid(), os.getgroups())"
    spec = ProcessSpec(argv=("/usr/bin/python3", "-I", "-c", code), env=PATH, cwd=str(anns_folder))

    completed = await run(keeper, confined(spec, anns_folder))

    assert completed.out == f"{owner.pw_uid} {owner.pw_gid} []\n"


@pytest.mark.promise("BOX-01")
@pytest.mark.skipif(os.geteuid() != 0, reason="a plain user's servers run as this user")
@pytest.mark.parametrize("confine", [True, False], ids=["attack", "control"])
async def test_root_host_runs_a_server_without_roots_as_nobody(keeper: Keeper, *, confine: bool) -> None:
    # The user is read outside of the sandbox: inside, a server that runs as root also sees itself as nobody.
    spec = ProcessSpec(
        argv=("/bin/sh", "-c", "echo started; read line"),
        env=PATH,
        cwd="/",
        confinement=Confinement() if confine else None,
    )

    async with started(keeper, spec) as child:
        await read_line(child)
        status = Path(f"/proc/{child.pid}/status").read_text().splitlines()

    ids = {name: values.split() for name, _, values in (line.partition(":") for line in status)}
    expected = ["65534"] * 4 if confine else ["0"] * 4
    assert (ids["Uid"], ids["Gid"]) == (expected, expected)
    assert not confine or ids["Groups"] == []


@pytest.mark.promise("BOX-03")
async def test_root_host_limits_processes_for_any_owner(
    keeper: Keeper, anns_folder: Path, root: Path
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
    for folder in (anns_folder, root):
        spec = ProcessSpec(argv=("/usr/bin/python3", "-I", "-c", code), env=PATH, cwd=str(folder))
        made.append((await run(keeper, confined(spec, folder, quota=Quota(processes=40)))).out)

    assert made == ["True\n", "True\n"]


async def test_root_host_refuses_a_program_that_the_owner_cannot_reach(
    keeper: Keeper, anns_folder: Path
) -> None:
    hidden = anns_folder.parent / "hidden"
    hidden.mkdir(mode=0o700)
    program = hidden / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    with pytest.raises(
        HoldfastError,
        match=r"it needs '.*/hidden/program', but runs as uid 4321, which may not enter '.*/hidden'",
    ):
        await keeper.spawn(
            confined(ProcessSpec(argv=(str(program),), env=PATH, cwd=str(anns_folder)), anns_folder)
        )


async def test_loader_variables_do_not_reach_bubblewrap_itself(keeper: Keeper, root: Path) -> None:
    spec = python(
        "import os; print(os.environ['LD_PRELOAD'])", env={**PATH, "LD_PRELOAD": str(root / "evil.so")}
    )

    async with started(keeper, confined(spec, root)) as child:
        outer = Path(f"/proc/{child.pid}/environ").read_bytes()
        command = Path(f"/proc/{child.pid}/cmdline").read_bytes()
        output = child.stdout.read()

    assert (outer, b"evil.so" in command, output.decode()) == (b"", False, f"{root}/evil.so\n")


async def test_readable_path_is_read_only(keeper: Keeper, root: Path, tmp_path: Path) -> None:
    script = tmp_path.resolve() / "script.py"
    script.write_text("print('ran'); open(__file__, 'a')")
    spec = ProcessSpec(argv=(sys.executable, str(script)), env=PATH, cwd=str(root))

    done = await run(keeper, confined(spec, root, readable=(str(script),)))

    assert (done.out, done.err.splitlines()[-1].partition(":")[0]) == ("ran\n", "OSError")
    assert "Read-only file system" in done.err


@pytest.mark.slow
async def test_concurrent_first_starts_all_succeed(root: Path) -> None:
    sandbox = BwrapSandbox()
    spec = confined(ProcessSpec(argv=("true",), env=PATH, cwd=str(root)), root)

    async with Keeper(sandbox) as keeper:
        done = await asyncio.gather(*(run(keeper, spec) for _ in range(10)))

    assert [one.code for one in done] == [0] * 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cwd": "/srv"}, "its working directory '/srv' is outside its roots"),
        ({"argv": ("no-such-program",)}, "there is no such program"),
        ({"confinement": Confinement(roots=("/",))}, "'/' cannot be a root: it belongs to the system"),
        ({"confinement": Confinement(roots=("/etc",))}, "'/etc' cannot be a root: it belongs to the system"),
        ({"confinement": Confinement(roots=("/no/such",))}, "'/no/such' cannot be opened: no such file"),
        ({"confinement": Confinement(roots=("relative",))}, "use the folder's absolute, normalized path"),
        ({"confinement": Confinement(roots=("/tmp/../root",))}, "use the folder's absolute, normalized path"),
    ],
)
async def test_impossible_confinement_gives_the_reason(
    keeper: Keeper, root: Path, change: dict[str, object], message: str
) -> None:
    spec = confined(ProcessSpec(argv=("true",), env=PATH, cwd=str(root)), root)

    with pytest.raises(HoldfastError) as caught:
        await keeper.spawn(replace(spec, **change))  # pyright: ignore[reportArgumentType]

    assert (caught.value.code, message in caught.value.message) == (codes.SPAWN_FAILED, True), caught.value


async def test_availability_is_checked_once() -> None:
    sandbox = BwrapSandbox()

    first, second = await sandbox.check(), await sandbox.check()

    assert (first.works, first is second) == (True, True)


@asynccontextmanager
async def connect(keeper: Keeper, spec: ProcessSpec) -> AsyncIterator[Client]:
    async with started(keeper, spec) as child, connect_pipes(Peer(), child.stdout, child.stdin) as peer:
        yield await negotiate(peer, ME, era=Era.HANDSHAKE)


def text(result: object) -> str:
    content: list[bytes] = getattr(result, "content")  # noqa: B009 - the same for every result
    return msgspec.json.decode(content[0])["text"]
