"""Attack 66: a confined server uses rare parts of the kernel, or leaves a file that runs with the rights of its owner."""

import json
from pathlib import Path

import pytest

from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import confined, python, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

CALLS = """
import ctypes, json, os, socket
SECCOMP = {'x86_64': 317, 'aarch64': 277}[os.uname().machine]
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(number), *arguments)
    return os.strerror(ctypes.get_errno())
def netlink(protocol):
    try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol).close(); return 'opened'
    except OSError as error: return error.strerror
def listen_to_a_filter():  # SECCOMP_SET_MODE_FILTER with SECCOMP_FILTER_FLAG_NEW_LISTENER, and no filter
    return os.strerror(ctypes.get_errno()) if libc.syscall(ctypes.c_long(SECCOMP), 1, 8, 0) < 0 else 'listening'
print(json.dumps({
    'open_tree_attr': call(467, -1, 0, 0, 0, 0), 'unknown': call(700), 'landlock': call(444, 0, 0, 1), 'memfd_secret': call(447, 0),
    'route': netlink(0), 'audit': netlink(9), 'kobject': netlink(15), 'diagnosis': netlink(4), 'listener': listen_to_a_filter(),
}))
"""
SETUID_FILES = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
def mode(name, how):
    try:
        how(name)
        return oct(os.stat(name).st_mode & 0o7000)
    except OSError as error: return error.strerror
def link_unnamed(name):
    unnamed = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)
    os.link('/proc/self/fd/%d' % unnamed, name, src_dir_fd=unnamed)
def change_unnamed(name):
    unnamed = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o755)
    os.fchmod(unnamed, 0o2755)
    os.link('/proc/self/fd/%d' % unnamed, name, src_dir_fd=unnamed)
def create(name):
    os.umask(0)
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o6755))
def change(name):
    open(name, 'w').close()
    os.chmod(name, 0o4755)
def make_node(name):
    os.mknod(name, 0o104755)
def make_folder(name):
    os.mkdir(name)
    os.chmod(name, 0o2755)
def rename_over(name):
    os.close(os.open('plain', os.O_CREAT | os.O_WRONLY, 0o755))
    os.chmod('plain', 0o4755)
    os.rename('plain', name)
def by_number(name):  # fchmodat2
    open(name, 'w').close()
    if libc.syscall(ctypes.c_long(452), -100, name.encode(), 0o4755, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
print(json.dumps({how.__name__: mode(how.__name__, how) for how in
    (link_unnamed, change_unnamed, create, change, make_node, make_folder, rename_over, by_number)}))
"""
NOTHING, DENIED, PROTOCOL = (
    "Function not implemented",
    "Operation not permitted",
    "Protocol not supported",
)


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize("confine", [True, False], ids=["attack", "control"])
async def test_calls_that_few_programs_need_are_denied(keeper: Keeper, root: Path, *, confine: bool):
    spec = python(CALLS, cwd=str(root))

    found = json.loads((await run(keeper, confined(spec, root) if confine else spec)).out)

    if not confine:  # the control: what depends on the kernel is left out
        assert (found["audit"], found["diagnosis"], found["route"]) == ("opened", "opened", "opened")
        if DENIED in (found["landlock"], found["memfd_secret"], found["listener"]):
            pytest.skip("this machine denies some of the calls to all programs")
        return
    assert found == {
        "open_tree_attr": NOTHING, "unknown": NOTHING, "landlock": DENIED, "memfd_secret": DENIED, "listener": DENIED,
        "route": "opened", "audit": PROTOCOL, "kobject": PROTOCOL, "diagnosis": PROTOCOL,
    }  # fmt: skip


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize("confine", [True, False], ids=["attack", "control"])
async def test_no_file_with_a_setuid_or_setgid_bit_is_left_behind(
    keeper: Keeper, root: Path, *, confine: bool
):
    spec = python(SETUID_FILES, cwd=str(root))

    found = json.loads((await run(keeper, confined(spec, root) if confine else spec)).out)

    left = sorted(path.name for path in root.iterdir() if path.stat().st_mode & 0o6000)
    refused = {name for name, mode in found.items() if not mode.startswith("0o")}
    assert (bool(left), bool(refused)) == ((False, True) if confine else (True, False))
    assert confine or {"link_unnamed", "change", "create"} <= set(left)
