"""Commands that only read create no store, and work on full and read-only disks."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.sqlite.store import open_database
from tests.cli.test_sessions import home, listed, run
from tests.store.disks import Ballast, small_disk

__all__ = ["home", "small_disk"]


@pytest.fixture
def read_only(home: Path) -> Iterator[Path]:
    """A home on a read-only disk; skips if it cannot be mounted."""
    data = home / "data"
    for arguments in (("--bind", str(data), str(data)), ("-o", "remount,bind,ro", str(data))):
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"may not mount here: {done.stderr.strip()}")
    yield home
    subprocess.run(["umount", str(data)], check=True)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("sessions", "list"), 0),
        (("sessions", "search", "login"), 0),
        (("sessions", "show", "abcd"), 1),
        (("sessions", "replay", "abcd"), 1),
        (("sessions", "export", "abcd"), 1),
        (("sessions", "move", "abcd", "."), 1),
        (("sessions", "delete", "abcd"), 1),
        (("chat", "--resume"), 1),
        (("audit", "verify"), 3),
    ],
    ids=str,
)
def test_reading_creates_no_store(tmp_path: Path, command: tuple[str, ...], code: int):
    done = run(tmp_path, *command)

    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (code, "", False)
    assert not (tmp_path / "data").exists()


@pytest.mark.promise("AUD-02")
def test_a_store_without_audit_records_is_not_reported_as_tampered_with(tmp_path: Path):
    open_database(tmp_path / "data" / "holdfast.db").close()

    done = run(tmp_path, "audit", "verify")

    assert (done.returncode, done.stdout, done.stderr) == (0, "There are no records yet.\n", "")


@pytest.mark.slow
def test_a_read_only_disk_can_be_read(read_only: Path, tmp_path: Path):
    (_, stored) = listed(read_only)
    copy = tmp_path / "copy.jsonl"

    for command in ("show", "replay", "export"):
        assert run(read_only, "sessions", command, stored["id"]).returncode == 0
    exported = run(read_only, "sessions", "export", stored["id"], "--output", str(copy))
    found = run(read_only, "sessions", "search", "login")
    moved = run(read_only, "sessions", "move", stored["id"], str(tmp_path))

    assert (exported.returncode, len(copy.read_text().splitlines())) == (0, stored["events"] + 1)
    assert "the login bug" in found.stdout
    assert (moved.returncode, "cannot be written to. Nothing was changed." in moved.stderr) == (1, True)


@pytest.mark.slow
def test_a_full_disk_can_be_read(home: Path, small_disk: Path, tmp_path: Path):
    (_, stored) = listed(home)
    for file in (home / "data").iterdir():
        shutil.move(file, small_disk)
    (home / "data").rmdir()
    (home / "data").symlink_to(small_disk)
    Ballast(small_disk).take_all()
    before = (small_disk / "holdfast.db").read_bytes()

    for command in ("show", "replay", "export"):
        assert run(home, "sessions", command, stored["id"]).returncode == 0
    copy = tmp_path / "copy.jsonl"
    exported = run(home, "sessions", "export", stored["id"], "--output", str(copy))
    found = run(home, "sessions", "search", "login")
    verified = run(home, "audit", "verify")
    checked = run(home, "store", "check")
    moved = run(home, "sessions", "move", stored["id"], str(tmp_path))

    assert (exported.returncode, len(copy.read_text().splitlines())) == (0, stored["events"] + 1)
    assert "the login bug" in found.stdout
    assert (verified.returncode, checked.returncode) == (0, 0), (verified.stderr, checked.stdout)
    assert (moved.returncode, "No space is left to write" in moved.stderr) == (1, True)
    assert (small_disk / "holdfast.db").read_bytes() == before


def test_search_finds_messages_that_a_crash_left_unindexed(home: Path):
    (_, stored) = listed(home)
    code = (
        "import asyncio, os, sys; from pathlib import Path\n"
        "from holdfast.model.event import Prompted\n"
        "from holdfast.store.sqlite import SqliteStore\n"
        "async def main():\n"
        "    async with SqliteStore(Path(sys.argv[1])) as store:\n"
        "        said = {'type': 'text', 'text': 'unfinished business'}\n"
        "        await store.append(await store.acquire(sys.argv[2]), Prompted(turn_id='t', message_id='m', blocks=(said,)))\n"
        "        os._exit(9)\n"
        "asyncio.run(main())\n"
    )

    subprocess.run(
        [sys.executable, "-c", code, str(home / "data" / "holdfast.db"), stored["id"]], check=False
    )

    assert "unfinished business" in run(home, "sessions", "search", "unfinished").stdout
