"""Attack 44: a confined server gives a file a second name, before the file is protected or approved, and changes it by that name later."""

import json
import os
from pathlib import Path

import pytest

from holdfast.model.process import ProcessSpec
from holdfast.sandbox.keeper.keeper import Keeper
from tests.sandbox.support import confined, python, run

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bwrap")]

WAYS = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
LINKAT = {'x86_64': 265, 'aarch64': 37}[os.uname().machine]
LINK = {'x86_64': 86, 'aarch64': None}[os.uname().machine]
AT_FDCWD, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = -100, 0x400, 0x1000
def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def by_path(name): os.link('tools/notes.py', name)
def by_a_folder(name):
    folder = os.open('tools', os.O_RDONLY)
    os.link('notes.py', name, src_dir_fd=folder)
def by_a_symbolic_link(name):
    os.symlink('tools/notes.py', 'leads-there')
    call(LINKAT, AT_FDCWD, b'leads-there', AT_FDCWD, name.encode(), AT_SYMLINK_FOLLOW)
def by_a_descriptor(name):
    fd = os.open('tools/notes.py', os.O_RDONLY)
    call(LINKAT, AT_FDCWD, b'/proc/self/fd/%d' % fd, AT_FDCWD, name.encode(), AT_SYMLINK_FOLLOW)
def by_an_empty_path(name):
    fd = os.open('tools/notes.py', os.O_RDONLY)
    call(LINKAT, fd, b'', AT_FDCWD, name.encode(), AT_EMPTY_PATH)
def by_the_old_call(name):
    call(LINK, b'tools/notes.py', name.encode()) if LINK else os.link('tools/notes.py', name)
def unnamed(name):
    fd = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o644)
    call(LINKAT, AT_FDCWD, b'/proc/self/fd/%d' % fd, AT_FDCWD, name.encode(), AT_SYMLINK_FOLLOW)
def try_it(how):
    try: how(how.__name__)
    except OSError as error: return error.strerror
    return 'linked'
print(json.dumps({how.__name__: try_it(how) for how in
    (by_path, by_a_folder, by_a_symbolic_link, by_a_descriptor, by_an_empty_path, by_the_old_call, unnamed)}))
"""
FALL_BACKS = """
import os, subprocess, sys, tempfile, venv
git = lambda *words: subprocess.run(['git', '-c', 'user.name=a', '-c', 'user.email=a@b', *words], check=True, stdout=2)
git('init', '-q'); git('add', 'tools'); git('commit', '-qm', 'one'); git('gc', '-q'); git('clone', '-q', '.', 'copy')
with tempfile.TemporaryFile(dir='.') as one, tempfile.NamedTemporaryFile(dir='.') as other: one.write(b'x'); other.write(b'x')
venv.create('environment', symlinks=True)
print(sorted(name for name in os.listdir() if name in ('copy', 'environment')))
"""


def append(file: str) -> ProcessSpec:
    code = "import sys\ntry: open(sys.argv[1], 'a').write('evil\\n'); print('changed')\nexcept OSError as error: print(error.strerror)"
    return python(code, file)


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize("confine", [True, False], ids=["attack", "control"])
async def test_a_confined_server_cannot_give_a_file_a_second_name(
    keeper: Keeper, root: Path, *, confine: bool
) -> None:
    program = root / "tools" / "notes.py"
    program.parent.mkdir()
    program.write_text("own\n")
    spec = python(WAYS, cwd=str(root))

    ways = json.loads((await run(keeper, confined(spec, root) if confine else spec)).out)

    if confine:
        assert set(ways.values()) == {"Operation not permitted"}
        assert program.stat().st_nlink == 1
        return
    # The control: a second name that exists is a way around the protection of the first one.
    assert (ways["by_path"], ways["by_a_folder"], ways["unnamed"]) == ("linked", "linked", "linked")
    beside = root.parent / "beside"
    beside.mkdir()
    (root / "by_path").rename(beside / "prepared")
    outputs = [
        (await run(keeper, confined(append("tools/notes.py"), root, executed=(str(program),)))).out,
        (await run(keeper, confined(append("prepared"), beside, executed=(str(program),)))).out,
    ]
    assert (outputs, program.read_text()) == (["Read-only file system\n", "changed\n"], "own\nevil\n")


@pytest.mark.promise("BOX-02")
@pytest.mark.parametrize("name", ["AGENTS.md", ".envrc", "lefthook.yml"])
async def test_root_is_read_only_while_a_guarded_file_has_a_second_name(
    keeper: Keeper, root: Path, name: str
) -> None:
    """Another program has made the hard link."""
    (root / ".cache").mkdir()
    (root / name).write_text("own\n")
    spec = confined(append(".cache/prepared"), root)

    before = (await run(keeper, spec)).out
    (root / ".cache/prepared").unlink()
    os.link(root / name, root / ".cache/prepared")
    completed = await run(keeper, spec)

    assert (before, completed.out) == ("changed\n", "Read-only file system\n")
    assert (root / name).read_text() == "own\n"


async def test_guarded_file_may_have_two_guarded_names(keeper: Keeper, root: Path) -> None:
    (root / "AGENTS.md").write_text("own\n")
    os.link(root / "AGENTS.md", root / "CLAUDE.md")

    outputs = [(await run(keeper, confined(append(file), root))).out for file in ("CLAUDE.md", "new")]

    assert outputs == ["Read-only file system\n", "changed\n"]


async def test_programs_that_prefer_hard_links_fall_back(keeper: Keeper, root: Path) -> None:
    (root / "tools").mkdir()
    (root / "tools" / "notes.py").write_text("own\n")

    completed = await run(keeper, confined(python(FALL_BACKS), root, writable=(".git",)))

    assert (completed.out, completed.code) == ("['copy', 'environment']\n", 0), completed.err
