"""Attack 16: a confined server reads private keys, the host's environment, and other processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import PATH, confined, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

ATTACK = """
import json, os, sys
home, secret = sys.argv[1], sys.stdin.readline().strip().encode()
def read(path):
    try: return open(path, 'rb').read()
    except OSError: return b''
processes = [p for p in os.listdir('/proc') if p.isdecimal() and p != str(os.getpid())]
print(json.dumps({
    'key': read(home + '/.ssh/id_ed25519').decode(),
    'own environment': [k for k, v in os.environb.items() if secret in v] != [],
    'environments': any(secret in read('/proc/%s/environ' % p) for p in processes),
    'memory': any(os.access('/proc/%s/mem' % p, os.W_OK) and p != '1' for p in processes),
    'siblings': any(secret in read('/proc/%s/cmdline' % p) for p in processes),
}))
"""


async def attack(keeper: Keeper, folder: Path, *, confine: bool) -> dict[str, object]:
    secret = os.urandom(8).hex()
    home = folder.parent / "home"
    (home / ".ssh").mkdir(parents=True, exist_ok=True)
    (home / ".ssh" / "id_ed25519").write_text("a private key")
    sibling = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", secret], stdin=subprocess.PIPE, env={**os.environ, "TOKEN": secret}
    )  # fmt: skip
    try:
        spec = ProcessSpec(argv=(sys.executable, "-I", "-c", ATTACK, str(home)), env=PATH, cwd=str(folder))
        done = await run(keeper, confined(spec, folder) if confine else spec, secret.encode() + b"\n")
    finally:
        sibling.communicate()
    return json.loads(done.out)


ROOT_ONLY = """
import os
found = []
for path in ('/proc/kmsg', '/proc/slabinfo', '/proc/kpagecount', '/proc/timer_list', '/proc/vmallocinfo', '/proc/tty/driver/serial'):
    try: os.close(os.open(path, os.O_RDONLY)); found.append(path)
    except OSError: pass
print(found != [])
"""


@pytest.mark.promise("BOX-02")
@pytest.mark.skipif(os.geteuid() != 0, reason="only in a folder owned by root does a server have uid 0")
@pytest.mark.parametrize("confine", [True, False])
async def test_root_only_files_of_proc_cannot_be_read_in_a_folder_of_root(
    keeper: Keeper, root: Path, *, confine: bool
) -> None:
    spec = ProcessSpec(argv=(sys.executable, "-I", "-c", ROOT_ONLY), env=PATH, cwd=str(root))

    done = await run(keeper, confined(spec, root) if confine else spec)

    assert done.out == f"{not confine}\n"


@pytest.mark.promise("BOX-02")
async def test_confined_server_finds_no_secret(keeper: Keeper, root: Path) -> None:
    assert await attack(keeper, root, confine=True) == {
        "key": "", "own environment": False, "environments": False, "memory": False, "siblings": False,
    }  # fmt: skip


async def test_control_unconfined_server_finds_the_secrets(keeper: Keeper, root: Path) -> None:
    assert await attack(keeper, root, confine=False) == {
        "key": "a private key", "own environment": False, "environments": True, "memory": True, "siblings": True,
    }  # fmt: skip
