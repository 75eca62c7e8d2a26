"""An event may wait a moment for company: a quick call is one commit."""

import pytest

from holdfast.model.context import SessionContext
from holdfast.model.event import Replied
from holdfast.model.ids import new_session_id
from holdfast.model.trust import Trust
from holdfast.store.appender import Appender
from holdfast.store.memory import MemoryStore
from holdfast.store.rows import NewSession
from holdfast.store.store import Reads

pytestmark = pytest.mark.anyio


class Counting:
    """A store, and how often it was written to."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.commits = 0
        self.store.after_commit(self._count)

    def _count(self, reads: Reads) -> None:
        self.commits += 1

    async def appender(self) -> Appender:
        context = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)
        await self.store.create(NewSession(context=context))
        self.commits = 0
        return self.store.appender(context.session_id)


async def test_what_follows_soon_is_committed_along_with_it():
    counting = Counting()
    appender = await counting.appender()
    first = await appender.append(Replied(message_id="m", text="a"), patience=60)
    second = await appender.append(Replied(message_id="m", text="b"), patience=60)
    third = await appender.append(Replied(message_id="m", text="c"))

    assert [await ticket.durable() for ticket in (first, second, third)] == [1, 2, 3]
    assert counting.commits == 1


async def test_alone_it_waits_no_longer_than_that():
    counting = Counting()
    appender = await counting.appender()
    ticket = await appender.append(Replied(message_id="m", text="a"), patience=0.01)

    assert (ticket.is_durable, await ticket.durable(), counting.commits) == (False, 1, 1)


async def test_a_flush_waits_for_nobody():
    counting = Counting()
    appender = await counting.appender()
    ticket = await appender.append(Replied(message_id="m", text="a"), patience=60)
    await appender.flush()

    assert ticket.is_durable
