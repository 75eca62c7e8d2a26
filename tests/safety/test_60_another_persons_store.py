"""Attack 60: a store that another person made, given with `--path`, changes files or never ends; files of yours that others write."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.model import private_files
from holdfast.model.errors import HoldfastError
from holdfast.model.server import Source
from holdfast.resolve.load import read_config_file
from holdfast.settings import loader
from holdfast.store.open_store import open_read_only
from holdfast.store.query import ALL_SESSIONS, SessionQuery
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite import database as database_module
from holdfast.store.sqlite.schema import APPLICATION_ID

pytestmark = pytest.mark.anyio

ALL = SessionQuery(visibility=ALL_SESSIONS)
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT s0.* FROM c CROSS JOIN s0 WHERE c.x < 0"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program of the victim, which all users may run."""
    file = tmp_path / "program"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def old_store(tmp_path: Path, program: Path) -> Path:
    """A store of an `earlier version`, whose side files are links to the program."""
    path = tmp_path / "theirs" / "holdfast.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("CREATE TABLE notes (x TEXT)")
    return path


@pytest.mark.parametrize("suffix", ["-shm", "-wal", "-journal"])
async def test_link_beside_a_store_is_refused_and_its_target_unchanged(
    old_store: Path, program: Path, suffix: str
):
    old_store.with_name(old_store.name + suffix).symlink_to(program)

    for opened in (lambda: open_read_only(old_store, keep_unchanged=True), lambda: SqliteStore(old_store)):
        with pytest.raises(HoldfastError, match="is a link or not a regular file"):
            async with opened() as store:
                await store.sessions(ALL)

    assert (program.stat().st_mode & 0o777, program.read_text()) == (0o755, "#!/bin/sh\n")


async def test_control_a_command_that_follows_the_link_changes_its_target(
    old_store: Path, program: Path, monkeypatch: pytest.MonkeyPatch
):
    def check_nothing(_: Path) -> None:
        pass

    follow = private_files._make_private

    def follow_links(path: Path, **_: object) -> None:
        follow(path)

    monkeypatch.setattr(private_files, "check_side_files", check_nothing)
    monkeypatch.setattr(database_module, "check_side_files", check_nothing)
    monkeypatch.setattr(private_files, "_make_private", follow_links)
    old_store.with_name(f"{old_store.name}-shm").symlink_to(program)

    with pytest.raises(HoldfastError):
        async with SqliteStore(old_store) as store:
            await store.sessions(ALL)

    assert program.stat().st_mode & 0o777 == 0o600


async def test_store_of_an_earlier_version_is_read_in_a_copy(tmp_path: Path):
    path = _copy_of_version_1(tmp_path)
    before = path.read_bytes()

    async with open_read_only(path, keep_unchanged=True) as store:
        found = (await store.sessions(ALL)).items

    assert (len(found) > 0, path.read_bytes() == before) == (True, True)
    assert [*path.parent.glob("*.bak")] == []


async def test_control_the_users_own_store_is_upgraded(tmp_path: Path):
    path = _copy_of_version_1(tmp_path)
    before = path.read_bytes()

    async with open_read_only(path) as store:
        assert (await store.sessions(ALL)).items

    assert path.read_bytes() != before


@pytest.fixture
async def endless_store(tmp_path: Path) -> Path:
    path = tmp_path / "theirs.db"
    async with SqliteStore(path):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("ALTER TABLE sessions RENAME TO s0")
        db.execute(f"CREATE VIEW sessions AS {ENDLESS}")
    return path


@pytest.mark.parametrize(
    "words", ["sessions list", "audit list", "audit verify", "store check", "store backup"]
)
async def test_store_with_an_endless_view_is_refused(endless_store: Path, tmp_path: Path, words: str):
    more = [str(tmp_path / "copy.db")] if words == "store backup" else []

    done = _run(*words.split(), *more, "--path", str(endless_store))

    assert done.returncode in (1, 3)
    assert "The view sessions does not belong in a store." in done.stdout + done.stderr


async def test_table_with_a_column_that_is_computed_is_refused(tmp_path: Path):
    path = tmp_path / "theirs.db"
    async with SqliteStore(path):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DROP TABLE leases")
        db.execute("CREATE TABLE leases (session_n INTEGER, epoch AS (length(zeroblob(999999999))))")

    with pytest.raises(HoldfastError, match="The table leases differs from the one that Holdfast creates"):
        open_read_only(path, keep_unchanged=True)


async def test_closing_a_read_only_store_ends_an_endless_read(endless_store: Path):
    """Also the control: without the check of the views, the read never ends by itself."""
    import asyncio

    store = open_read_only(endless_store)
    async with store:
        read = asyncio.create_task(store.sessions(ALL))
        done, _ = await asyncio.wait([read], timeout=0.3)
        assert not done

    await asyncio.wait([read], timeout=10)
    assert read.exception() is not None


def test_own_files_that_others_can_change_are_not_believed(tmp_path: Path):
    servers, config = tmp_path / "my servers.json", tmp_path / "config.toml"
    servers.write_text('{"mcpServers": {}}')
    config.write_text("")
    for file in (servers, config):
        file.chmod(0o666)

    read = read_config_file(Source.USER, servers)
    assert read is not None
    assert read.problem == (
        f"It is not read: other users can change it. Check its content, then run: chmod go-w '{servers}'"
    )
    with pytest.raises(HoldfastError, match="other users can change it"):
        loader.load(config, {})


def test_control_a_file_of_ones_own_is_read(tmp_path: Path):
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    file.chmod(0o644)

    read = read_config_file(Source.USER, file)

    assert (read is not None, read and read.problem) == (True, "")


def _copy_of_version_1(folder: Path) -> Path:
    import shutil

    [fixture, *_] = sorted((Path(__file__).parent.parent / "store" / "v1").glob("*.db"))
    path = folder / "theirs" / fixture.name
    path.parent.mkdir()
    shutil.copy(fixture, path)
    return path


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    import sys

    return subprocess.run(
        [sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, timeout=30, check=False
    )
