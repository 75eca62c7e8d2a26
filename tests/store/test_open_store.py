"""Which store a URL opens."""

from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.store import maintenance
from holdfast.store.memory import MemoryStore
from holdfast.store.open_store import open_read_only, open_store, sqlite_file
from tests.store.sessions import hold_session, new_session, raises_code, reply

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:///srv/a.db", Path("/srv/a.db")),
        ("sqlite:////srv/a.db", Path("/srv/a.db")),
        ("sqlite:///srv/a%20b.db", Path("/srv/a b.db")),
        ("/srv/a%20b.db", Path("/srv/a%20b.db")),
        ("a.db", Path("a.db")),
        (Path("postgres:/a.db"), Path("postgres:/a.db")),
        ("memory:", None),
    ],
)
def test_url_names_a_file_or_the_memory(url: str | Path, file: Path | None) -> None:
    assert sqlite_file(url) == file


@pytest.mark.parametrize("url", ["postgres://db/holdfast", "sqlite:a.db", "memory:a", "http://x"])
def test_other_urls_are_refused(url: str) -> None:
    with raises_code(codes.BAD_ARGUMENT) as caught:
        open_store(url)

    assert repr(url) in caught.value.message


async def test_url_of_a_file_opens_the_same_store_as_its_path(tmp_path: Path) -> None:
    path = tmp_path / "a b.db"
    async with open_store(f"sqlite://{path}".replace(" ", "%20")) as store:
        hold = await hold_session(store)
        await store.append(hold, reply(1))
    async with open_store(path) as first, open_read_only(path) as second:
        for store in (first, second):
            assert len([stored async for stored in store.events(hold.session_id)]) == 1
        with raises_code(codes.STORE_READ_ONLY):
            await new_session(second)


async def test_stores_in_memory_are_separate_and_have_no_file() -> None:
    async with open_store("memory:") as first, open_store("memory:") as second:
        session_id = await new_session(first)

        assert isinstance(first, MemoryStore)
        assert await second.session(session_id) is None
    with raises_code(codes.BAD_ARGUMENT):
        maintenance.check("memory:")
