"""Attack 41: a search that takes long, such as a phrase of thousands of pieces."""

from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.store import search
from holdfast.store.memory import MemoryStore
from holdfast.store.query import ALL_SESSIONS, MAX_QUERY_TAGS, SearchQuery, SessionQuery
from holdfast.store.search import MAX_LENGTH, MAX_WORDS, parse_words
from holdfast.store.sqlite import SqliteStore

PIECES = "_".join("a" for _ in range(3000))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "words",
    [PIECES, "-".join("ab" for _ in range(MAX_WORDS + 1)), " ".join(f"w{n}" for n in range(MAX_WORDS + 1)), "x" * (MAX_LENGTH + 1)],
)  # fmt: skip
async def test_phrase_of_many_pieces_is_refused_before_it_reaches_the_database(tmp_path: Path, words: str):
    async with SqliteStore(tmp_path / "holdfast.db") as store, MemoryStore() as memory:
        refused: list[object] = []
        for each in (store, memory):
            with pytest.raises(HoldfastError) as error:
                await each.search(SearchQuery(visibility=ALL_SESSIONS, words=words))
            refused.append(error.value.code)

    assert refused == [codes.BAD_ARGUMENT] * 2


def test_control_without_the_limit_the_database_gets_a_phrase_of_all_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "MAX_WORDS", 10_000)
    monkeypatch.setattr(search, "MAX_LENGTH", 10_000)

    (phrase,) = parse_words(PIECES)

    assert len(phrase) == 3000


def test_tags_of_a_query_are_limited():
    tags = ("t",) * (MAX_QUERY_TAGS + 1)

    with pytest.raises(HoldfastError, match="at most 32 tags"):
        SessionQuery(visibility=ALL_SESSIONS, tags=tags)
    with pytest.raises(HoldfastError, match="at most 32 tags"):
        SearchQuery(visibility=ALL_SESSIONS, words="x", tags=tags)
