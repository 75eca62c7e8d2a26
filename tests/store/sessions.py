"""A session and its events, for the tests of the store."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Replied
from holdfast.model.ids import SessionId
from holdfast.store.store import Store
from holdfast.testing.contract.given import create


async def new_session(store: Store) -> SessionId:
    return (await create(store)).context.session_id


def reply(number: int) -> Replied:
    return Replied(message_id="msg_0", text=f"piece {number} ")


async def texts(store: Store, session_id: SessionId) -> list[str]:
    return [
        stored.event.text async for stored in store.events(session_id) if isinstance(stored.event, Replied)
    ]


@contextmanager
def refused(code: Code) -> Iterator[pytest.ExceptionInfo[HoldfastError]]:
    with pytest.raises(HoldfastError) as caught:
        yield caught
    assert caught.value.code is code, caught.value
