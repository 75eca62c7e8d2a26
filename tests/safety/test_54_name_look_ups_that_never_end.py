"""Attack 54: a client or a confined server has names looked up whose name server never answers."""

import asyncio
import functools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.name_resolver import NameResolver

ROOT = Path(__file__).parents[2]
SET_UP = 'mount --bind "$1" /etc/resolv.conf && ip link set lo up && shift && exec "$@"'
# The system's resolver waits for two minutes, longer than any test may take.
RESOLV_CONF = "nameserver 127.0.0.53\noptions timeout:30 attempts:4\n"


@functools.cache
def has_namespaces() -> bool:
    command = ["unshare", "-rmn", "ip", "link", "set", "lo", "up"]
    return (
        all(map(shutil.which, ("unshare", "ip")))
        and not subprocess.run(command, capture_output=True, check=False).returncode
    )


def run_host(folder: Path, mode: str, attacker: str) -> str:
    """Run a host in a network of its own, where the only name server never answers."""
    if not has_namespaces():
        pytest.skip("this machine does not let us make namespaces")
    (folder / "resolv.conf").write_text(RESOLV_CONF)
    script = str(Path(__file__).with_name("slow_names.py"))
    in_namespaces = ["unshare", "-rmn", "sh", "-c", SET_UP, "sh", str(folder / "resolv.conf")]
    done = subprocess.run(
        [*in_namespaces, sys.executable, script, mode, attacker, str(folder)],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("attacker", ["client", "confined server"])
def test_other_session_looks_its_names_up_and_the_host_ends_at_once(tmp_path: Path, attacker: str):
    assert run_host(tmp_path, "protected", attacker) == "reached"


@pytest.mark.slow
def test_control_in_shared_threads_the_other_session_waits(tmp_path: Path):
    assert run_host(tmp_path, "unprotected", "client") == "not reached"


@pytest.mark.anyio
async def test_many_names_of_one_owner_take_few_threads(monkeypatch: pytest.MonkeyPatch):
    resolver, release, running = NameResolver(), asyncio.Event(), 0
    loop = asyncio.get_running_loop()

    def never(host: str, *rest: object, **more: object) -> list[object]:
        nonlocal running
        running += 1
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(60)
        return []

    monkeypatch.setattr("socket.getaddrinfo", never)
    look_ups = [asyncio.create_task(resolver.look_up(f"n{n}.example", owner="a")) for n in range(100)]
    other = asyncio.create_task(resolver.look_up("n.example", owner="b"))
    async with asyncio.timeout(30):
        while running < 5:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)  # no more of them begin
    at_once = running
    for task in look_ups:
        task.cancel()
    release.set()
    await asyncio.wait(look_ups)

    assert (await other, at_once) == ([], 5)
