"""Which folders the running confined servers can write."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.model.confined_folders import ConfinedFolders, ServersEndingError, lock_root, locks_folder
from holdfast.model.process import Confinement
from tests.sandbox.support import copy_source


def test_folder_counts_until_the_last_server_in_it_has_ended():
    folders, confinement = ConfinedFolders(), Confinement(roots=("/home/ann/blog",))

    with folders.add_while_running(confinement):
        with folders.add_while_running(confinement), folders.add_while_running(None):
            pass
        during = folders.is_changeable("/home/ann/blog/post.md")

    assert (during, folders.is_changeable("/home/ann/blog/post.md")) == (True, False)


def test_path_counts_if_it_is_anywhere_below_a_root():
    folders = ConfinedFolders()

    with folders.add_while_running(Confinement(roots=("/home/ann/blog", "/srv"))):
        found = [
            path
            for path in (
                "/home/ann/blog/a/b",
                "/srv/x",
                "/home/ann/blogger/a",
                "/home/ann/x",
                "/home/ann/blog",
            )
            if folders.is_changeable(path)
        ]

    assert found == ["/home/ann/blog/a/b", "/srv/x"]


def test_root_of_the_file_system_contains_everything():
    folders = ConfinedFolders()

    with folders.add_while_running(Confinement(roots=("/",))):
        assert folders.is_changeable(str(Path("/etc/passwd")))


def test_roots_that_a_server_can_only_read_do_not_count():
    folders, roots = ConfinedFolders(), ("/home/ann/blog", "/srv/app", "/home/ann/notes")
    confinement = Confinement(roots=roots, read_only=("/home/ann/blog",), executed=("/srv",))
    granted = Confinement(roots=roots, read_only=("/home/ann/blog",), writable=(".git",))

    with folders.add_while_running(confinement):
        reader = [folders.is_changeable(f"{root}/x") for root in roots]
    with folders.add_while_running(granted):
        writer = [folders.is_changeable(f"{root}/x") for root in roots]

    assert (reader, writer) == ([False, False, True], [True, True, True])


def test_guards_of_a_server_that_was_started_in_between_are_not_missed(tmp_path: Path):
    status = tmp_path.stat()
    with ExitStack() as held:
        one, two = (lock_root(str(tmp_path), [status]) for _ in range(2))
        for locks in (one, two):
            held.enter_context(locks.running_lock)
            held.enter_context(locks.writing_lock)
        known = two.guards.guarded_by_others()
        one.guards.write(("a",), (), ())
        with pytest.raises(ServersEndingError, match="Try again"):
            two.guards.write((), (), known)
        known_again = two.guards.guarded_by_others()
        two.guards.write(("a",), (), known_again)
        one.guards.check()
    left = list(locks_folder().glob(f"{status.st_dev:x}-{status.st_ino:x}.*"))

    assert (known, known_again, left) == (frozenset(), {"a"}, [])


def test_record_of_a_server_that_lacks_a_guard_is_removed_when_it_has_ended(tmp_path: Path):
    status = tmp_path.stat()
    with ExitStack() as held:
        one, two = (lock_root(str(tmp_path), [status]) for _ in range(2))
        for locks in (two, one):
            held.enter_context(locks.running_lock)
            held.enter_context(locks.writing_lock)
        one.guards.write(("a",), ("b",), ())
        for _ in range(2):  # it still runs
            with pytest.raises(ServersEndingError, match="Try again"):
                two.guards.write(("a", "b", "c"), (), ("a",))
        with pytest.raises(ServersEndingError):
            one.guards.check()
        one.writing_lock.close()
        two.guards.write(("a", "b", "c"), (), ("a",))
    left = list(locks_folder().glob(f"{status.st_dev:x}-{status.st_ino:x}.*"))

    assert left == []


# The folder of the locks, for a user who has neither a runtime folder nor a home

AS_USER = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
from holdfast.model.confined_folders import lock_root, locks_folder, can_confined_server_change
from holdfast.model.errors import HoldfastError

root = sys.argv[3]
found = [str(locks_folder())]
try:
    locks = lock_root(root, [os.stat(root)])
    found += ["locked", can_confined_server_change(root)]
    locks.running_lock.close()
    locks.writing_lock.close()
    locks.setup_locks.close()
except HoldfastError as error:
    found += [error.message, can_confined_server_change(root)]
print(json.dumps(found))
"""
UID = 3_000_000 + os.getpid()  # no account has this number


def _nothing(folder: Path) -> None:
    pass


def _own(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, UID, UID)


def _of_another_user(folder: Path) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)


def _open_to_others(folder: Path) -> None:
    _own(folder)
    folder.chmod(0o755)


def _link(folder: Path) -> None:
    target = folder.with_name(f"{folder.name}-target")
    _own(target)
    folder.symlink_to(target)


def _file(folder: Path) -> None:
    folder.touch()


_SAYS = "Confined servers cannot be started: the folder of their locks"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python that every user can run")
@pytest.mark.parametrize(
    ("prepare", "says", "runs"),
    [
        (_nothing, "locked", True),
        (_own, "locked", True),
        (_of_another_user, _SAYS, True),
        (_open_to_others, _SAYS, True),
        (_link, _SAYS, True),
        (_file, _SAYS, False),
    ],
)
def test_folder_of_the_locks_in_tmp_is_used_only_if_it_is_the_users_own(
    prepare: Callable[[Path], None], says: str, runs: bool, source: str
):
    folder = Path(f"/tmp/holdfast-{UID}")
    prepare(folder)
    try:
        done = subprocess.run(
            ["/usr/bin/python3", "-I", "-c", AS_USER, source, str(UID), "/usr"],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        for path in (folder, folder.with_name(f"{folder.name}-target")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    found_folder, message, found_running = json.loads(done.stdout)
    assert (found_folder, message.startswith(says), found_running) == (str(folder), True, runs)


@pytest.fixture(scope="module")
def source() -> Iterator[str]:
    """The source, where every user can read it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield copy_source(Path(folder))
