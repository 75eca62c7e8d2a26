"""Cursors are accepted only exactly as they were given out, and only for their query."""

import random
import string
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.store.query import ALL_SESSIONS, SessionQuery, Visibility
from holdfast.store.sqlite import SqliteStore
from tests.store.sessions import new_session

MUTATIONS = 400


@pytest.mark.anyio
async def test_no_changed_cursor_is_accepted(tmp_path: Path):
    rng = random.Random(26)
    async with SqliteStore(tmp_path / "holdfast.db") as store:
        for _ in range(3):
            await new_session(store)
        query = SessionQuery(visibility=ALL_SESSIONS, limit=1)
        given = (await store.sessions(query)).cursor
        assert given is not None

        for changed in {_mutate(given, rng) for _ in range(MUTATIONS)} - {given}:
            with pytest.raises(HoldfastError, match="is not valid for this query"):
                await store.sessions(replace(query, cursor=changed))
        genuine = await store.sessions(replace(query, cursor=given))
        for other in (replace(query, limit=2), replace(query, visibility=Visibility(user_id="ann"))):
            with pytest.raises(HoldfastError, match="is not valid for this query"):
                await store.sessions(replace(other, cursor=given))

    assert len(genuine.items) == 1


def _mutate(cursor: str, rng: random.Random) -> str:
    letters = list(cursor)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(letters))
        match rng.choice(("replace", "delete", "insert")):
            case "replace":
                letters[at] = rng.choice(string.printable + "é")
            case "delete":
                del letters[at]
            case _:
                letters.insert(at, rng.choice(string.printable))
    return "".join(letters)
