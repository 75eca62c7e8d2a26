"""Attack 41: two sessions change one file at the same time, and the change of one of them is lost, or its owner and rights."""

import asyncio
import fcntl
import os
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.builtin.files import disk
from holdfast.builtin.files.file_locks import FileLocks
from holdfast.builtin.files.roots import Roots
from holdfast.model.errors import HoldfastError
from tests.builtin.support import Buffers, Files

pytestmark = pytest.mark.anyio

EDITS = 20
SOURCE = Path(__file__).resolve().parents[2]
OTHER_PROCESS = """
import asyncio, sys
from pathlib import Path
from tests.builtin.support import Files
from tests.safety.test_41_updates_lost_between_sessions import edit_all
print('ready', flush=True); sys.stdin.readline()
asyncio.run(edit_all(Files(Path(sys.argv[1])), range(1, int(sys.argv[2]), 2)))
"""


async def edit_all(files: Files, numbers: Sequence[int], path: str = "list") -> None:
    """Mark these numbers in the list. A change that was refused is repeated."""
    for number in numbers:
        while (code := await files.code("edit", path=path, old=f"<{number}>", new=f"[{number}]")) != "OK":
            assert code == "FILE_CHANGED"


def new_list(folder: Path) -> Path:
    path = folder / "list"
    path.write_text("".join(f"<{number}>\n" for number in range(2 * EDITS)))
    return path


async def test_edits_of_two_sessions_are_all_kept(tmp_path: Path):
    path = new_list(tmp_path)

    await asyncio.gather(
        edit_all(Files(tmp_path), range(0, 2 * EDITS, 2)), edit_all(Files(tmp_path), range(1, 2 * EDITS, 2))
    )

    assert path.read_text().count("[") == 2 * EDITS


async def test_edits_of_two_processes_are_all_kept(tmp_path: Path):
    path = new_list(tmp_path)
    other = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OTHER_PROCESS, str(tmp_path), str(2 * EDITS)),
        cwd=SOURCE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    await other.stdout.readline()

    other.stdin.write(b"\n")
    await edit_all(Files(tmp_path), range(0, 2 * EDITS, 2))
    code = await other.wait()

    assert (code, path.read_text().count("[")) == (0, 2 * EDITS)


async def test_unsaved_text_that_changed_since_it_was_read_is_not_overwritten(tmp_path: Path):
    path = new_list(tmp_path)

    class Typing(Buffers):
        """An editor whose user types a line after each read."""

        async def read_text(self, path: str) -> str:
            text = await super().read_text(path)
            self.texts[path] += "typed\n"
            return text

    editor = Typing({str(path.resolve()): "<1>\n"})

    assert (
        await Files(tmp_path, door=editor).code("edit", path="list", old="<1>", new="[1]") == "FILE_CHANGED"
    )
    assert editor.texts[str(path.resolve())].startswith("<1>\ntyped\n")


def test_file_that_appears_during_a_write_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    roots, fsync = Roots((str(tmp_path.resolve()),)), os.fsync

    def create_meanwhile(descriptor: int) -> None:
        (tmp_path / "new").write_text("of another program")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", create_meanwhile)
    with pytest.raises(HoldfastError, match="has changed since it was read"):
        disk.write_file(roots, FileLocks(tmp_path / "locks"), "new", "mine", disk.read_file(roots, "new"))

    assert (tmp_path / "new").read_text() == "of another program"
    assert sorted(os.listdir(tmp_path)) == ["locks", "new"]


def test_check_then_replace_loses_a_change(tmp_path: Path):
    """Control: both writers check the version, then both replace the file."""
    path, both_have_checked = new_list(tmp_path), threading.Barrier(2)

    def edit(number: int) -> None:
        before, text = path.stat(), path.read_text()
        assert path.stat().st_mtime_ns == before.st_mtime_ns
        both_have_checked.wait(10)
        temporary = tmp_path / f".{number}"
        temporary.write_text(text.replace(f"<{number}>", f"[{number}]"))
        temporary.replace(path)

    threads = [threading.Thread(target=edit, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert path.read_text().count("[") == 1


async def test_server_that_locks_the_file_and_its_folder_blocks_no_session(tmp_path: Path):
    path = new_list(tmp_path)
    with path.open() as file, folder_descriptor(tmp_path) as folder:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.flock(folder, fcntl.LOCK_EX)

        await edit_all(Files(tmp_path), [0])

    assert path.read_text().count("[") == 1


# Owner and rights


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
async def test_file_of_a_user_stays_the_users_when_root_edits_it(tmp_path: Path):
    path = new_list(tmp_path)
    path.chmod(0o600)
    os.chown(path, 54321, 54322)
    os.chown(tmp_path, 54321, 54322)
    naive = tmp_path / "naive"
    naive.write_text("")
    naive.replace(control := tmp_path / "control")
    files = Files(tmp_path)

    await edit_all(files, [0])
    await files.call("write", path="new", text="new")
    await files.call("write", path="folder/inner/new", text="new")

    assert owner_and_mode(path) == (54321, 54322, 0o600)
    for new in ("new", "folder", "folder/inner", "folder/inner/new"):
        assert owner_and_mode(tmp_path / new)[:2] == (54321, 54322), new
    assert control.stat().st_uid == 0, "control"


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="Linux")
async def test_extended_attributes_and_access_lists_are_kept(tmp_path: Path):
    path = new_list(tmp_path)
    # An access-control list: version 2; rights of the owner, of user 54321, of the group, the mask, of others.
    entries = [(1, 6, 2**32 - 1), (2, 4, 54321), (4, 0, 2**32 - 1), (16, 4, 2**32 - 1), (32, 0, 2**32 - 1)]
    access = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + rights.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, rights, who in entries
    )
    try:
        os.setxattr(path, "user.tag", b"kept")
        os.setxattr(path, "system.posix_acl_access", access)
    except OSError:
        pytest.skip("the file system has no extended attributes")
    before = (attributes(path), owner_and_mode(path))

    await edit_all(Files(tmp_path), [0])

    assert (attributes(path), owner_and_mode(path)) == before
    (tmp_path / "control").write_text("")
    (tmp_path / "control").replace(path)
    assert attributes(path) == {}, "control"


def owner_and_mode(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def attributes(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


@contextmanager
def folder_descriptor(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
