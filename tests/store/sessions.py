"""Sessions, events and assertions for the tests of the store."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Replied
from holdfast.model.ids import SessionId
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from holdfast.testing.store_contract.factories import create_session, hold_session

__all__ = ["hold_session", "new_session", "raises_code", "reply", "texts", "write_session"]


async def new_session(store: Store) -> SessionId:
    return (await create_session(store)).context.session_id


async def write_session(path: Path, count: int) -> None:
    """Write a session with this many events to the file, and close the store."""
    async with SqliteStore(path) as store:
        hold = await hold_session(store)
        async with store.appender(hold) as appender:
            for number in range(count):
                await appender.append(reply(number))


def reply(number: int) -> Replied:
    return Replied(message_id="msg_0", text=f"piece {number} ")


async def texts(store: Store, session_id: SessionId) -> list[str]:
    return [
        stored.event.text async for stored in store.events(session_id) if isinstance(stored.event, Replied)
    ]


@contextmanager
def raises_code(code: Code) -> Iterator[pytest.ExceptionInfo[HoldfastError]]:
    with pytest.raises(HoldfastError) as caught:
        yield caught
    assert caught.value.code is code, caught.value
