"""The container backend with real podman, in an image built from this machine. Runs in `make test-containers`."""

import asyncio
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.ids import new_session_id
from holdfast.model.process import KeptFor, ProcessSpec
from holdfast.sandbox.container.container import ContainerSandbox
from holdfast.sandbox.container.engine import Engine
from holdfast.sandbox.container.kept_containers import KeptContainers
from holdfast.sandbox.escape_probe_runner import run_escape_probes
from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import DAEMON, SLEEP_FOREVER, confined, read_line, run, started, wait_unlocked

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not os.environ.get("HOLDFAST_CONTAINERS"), reason="run by make test-containers"),
]

IMAGE = "holdfast-tests:1"
OPTIONS = ("--runtime", "runc")  # as root, podman's other runtimes do not work everywhere
SRC = Path(__file__).resolve().parents[2] / "src"
HOST = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from holdfast.model.process import Confinement, ProcessSpec
from holdfast.sandbox.container.container import ContainerSandbox
from holdfast.sandbox.keeper.keeper import Keeper

async def main():
    async with Keeper(ContainerSandbox(engine='podman', image=sys.argv[2], options=('--runtime', 'runc'))) as keeper:
        root = sys.argv[3]
        child = await keeper.spawn(ProcessSpec(argv=('python3', '-c', sys.argv[4], root + '/lock'), env={}, cwd=root, confinement=Confinement(roots=(root,))))
        child.stdout.read(1)
        print(flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """An image with only the system's Python and its libraries."""
    program = os.path.realpath("/usr/bin/python3")
    version = re.sub(r"\D*(\d+\.\d+).*", r"\1", program)
    library = f"/usr/lib/python{version}"
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder in ("tmp", "proc", "dev", "sys", "run", "etc", "var"):
            tar.addfile(_folder(folder))
        modules = [str(path) for path in Path(library, "lib-dynload").glob("*.so")]
        libraries = {library for module in modules for library in _libraries(module)}
        for path in sorted({program, *_libraries(program), *libraries}):
            tar.add(os.path.realpath(path), path)
        tar.add(library, library)
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, program
        tar.addfile(link)
    subprocess.run(
        ["podman", "import", "-", IMAGE], input=content.getvalue(), check=True, capture_output=True
    )
    yield IMAGE
    subprocess.run(["podman", "rmi", "--force", IMAGE], check=False, capture_output=True)


@pytest.fixture
def podman(image: str) -> ContainerSandbox:
    return ContainerSandbox(engine="podman", image=image, options=OPTIONS)


@pytest.mark.promise("BOX-05")
async def test_every_escape_probe_is_stopped(podman: ContainerSandbox) -> None:
    async with Keeper(podman) as keeper:
        results = await run_escape_probes(keeper, python="python3")

    assert [result for result in results if not result.stopped] == []


@pytest.mark.promise("BOX-05")
async def test_input_files_and_environment_are_passed_on(podman: ContainerSandbox, root: Path) -> None:
    code = "import os, sys; open('new', 'w').write(sys.stdin.read()); print(os.environ['A'])"
    spec = ProcessSpec(argv=("python3", "-c", code), env={"A": "x y = z"}, cwd=str(root))

    async with Keeper(podman) as keeper:
        done = await run(keeper, confined(spec, root), b"hello")

    assert (done.code, done.out, (root / "new").read_text(), containers()) == (0, "x y = z\n", "hello", "")


@pytest.mark.promise("BOX-05")
async def test_daemon_ends_with_its_container(podman: ContainerSandbox, root: Path) -> None:
    spec = ProcessSpec(
        argv=("python3", "-c", DAEMON + SLEEP_FOREVER, str(root / "lock")), env={}, cwd=str(root)
    )

    async with Keeper(podman) as keeper, started(keeper, confined(spec, root)) as child:
        await read_line(child)

    await wait_unlocked(root / "lock")
    assert containers() == ""


@pytest.mark.promise("BOX-05")
async def test_container_is_removed_when_the_host_is_killed(image: str, root: Path) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, str(SRC), image, str(root), DAEMON + SLEEP_FOREVER],
        stdout=subprocess.PIPE,
    )
    assert host.stdout is not None
    await asyncio.to_thread(host.stdout.readline)
    host.send_signal(signal.SIGKILL)
    host.communicate()

    await wait_unlocked(root / "lock")
    async with asyncio.timeout(30):
        while containers():
            await asyncio.sleep(0.1)


@pytest.mark.promise("BOX-05")
async def test_container_left_by_a_dead_host_is_removed_at_the_next_check(podman: ContainerSandbox) -> None:
    left = ["run", "--detach", "--network", "none", "--ulimit", "nofile=64:64", "--ulimit", "nproc=64:64"]
    label = [
        "--label",
        "dev.holdfast.host=1.999999999",
        IMAGE,
        "/usr/bin/python3",
        "-c",
        SLEEP_FOREVER.strip(),
    ]
    subprocess.run(["podman", *OPTIONS, *left, *label], check=True, capture_output=True)
    before = containers()

    availability = await podman.check()

    assert (before != "", availability.works, containers()) == (True, True, "")


@pytest.mark.promise("BOX-05")
async def test_kept_container_has_its_files_again_until_it_is_removed(
    image: str, root: Path, tmp_path: Path
) -> None:
    keeping = ContainerSandbox(engine="podman", image=image, options=OPTIONS, keep_in=tmp_path)
    code = "file = open('/var/file', 'a'); file.write('x'); file.flush(); print(file.tell())"
    kept_for = KeptFor(session_id=new_session_id(), server="notes")
    spec = confined(ProcessSpec(argv=("python3", "-c", code), env={"A": "1"}, cwd=str(root)), root)
    spec = replace(spec, kept_for=kept_for)
    kept = KeptContainers(Engine("podman", OPTIONS), tmp_path)

    async with Keeper(keeping) as keeper:
        counted = [(await run(keeper, spec)).out for _ in range(2)]
        listed = await kept.sessions()
        counted.append((await run(keeper, replace(spec, env={"A": "2"}))).out)

    assert (counted, listed) == (["1\n", "2\n", "1\n"], {kept_for.session_id})
    assert (await kept.remove([kept_for.session_id]), await kept.sessions()) == ("", set())


def containers() -> str:
    words = ["podman", "ps", "--all", "--filter", "label=dev.holdfast.host", "--format", "{{.ID}}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _folder(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    return info


def _libraries(path: str) -> list[str]:
    if not shutil.which("ldd"):
        pytest.skip("needs ldd")
    output = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+) \(0x", output)
