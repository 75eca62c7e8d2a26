"""Tests of messages between sessions: which sessions they reach, and that each message is delivered once."""

from holdfast.model.event import MessageReceived, MessageSent
from holdfast.model.ids import SessionId, new_message_id, new_turn_id
from holdfast.model.trust import Trust
from holdfast.store.store import MAX_UNDELIVERED, Store, Tx
from holdfast.store.types import Hold, InboxMessage
from holdfast.testing.store_contract.factories import OpenStore, hold_session


class InboxTests:
    """Part of `StoreContract`."""

    async def test_message_is_delivered_once_with_an_event_of_the_target(self, open_store: OpenStore) -> None:
        async with open_store() as store, open_store() as other:
            sender = await hold_session(store, workspace_id="garden")
            target = await hold_session(other, workspace_id="garden")

            sent = await _send(store, sender, target.session_id, "first")
            await _send(store, sender, target.session_id, "second")
            waiting = await other.read(lambda tx: tx.sessions_with_messages())
            before = await other.read(lambda tx: tx.inbox(target.session_id))
            first = await _deliver(other, target, before[0])
            again = await other.write(lambda tx: tx.deliver(target, before[0].message_id))
            after = await other.read(lambda tx: tx.inbox(target.session_id))
            everything = await other.read(lambda tx: tx.inbox(target.session_id, only_undelivered=False))

        assert sent
        assert waiting == {target.session_id}
        assert [(one.text, one.sender, one.delivered) for one in before] == [
            ("first", sender.session_id, 0),
            ("second", sender.session_id, 0),
        ]
        assert (first, again) == (True, False)
        assert [one.text for one in after] == ["second"]
        assert [(one.text, one.delivered) for one in everything] == [("first", 1), ("second", 0)]

    async def test_message_stays_in_the_workspace_and_user_and_never_reaches_a_more_trusted_session(
        self, open_store: OpenStore
    ) -> None:
        async with open_store() as store:
            sandboxed = await hold_session(store, workspace_id="garden", user_id="ada")
            direct = await hold_session(store, workspace_id="garden", user_id="ada", trust_level=Trust.DIRECT)
            others = {
                "another workspace": await hold_session(store, workspace_id="shed", user_id="ada"),
                "another user": await hold_session(store, workspace_id="garden", user_id="bob"),
                "no user": await hold_session(store, workspace_id="garden"),
                "no workspace": await hold_session(store, user_id="ada"),
            }

            refused = [
                name for name, one in others.items() if not await _send(store, sandboxed, one.session_id)
            ]
            upwards = await _send(store, sandboxed, direct.session_id)
            downwards = await _send(store, direct, sandboxed.session_id)
            to_itself = await _send(store, direct, direct.session_id)
            unknown = await _send(store, direct, SessionId("sess_0123456789abcdef"))
            without_workspace = await hold_session(store)
            between_strangers = await _send(store, without_workspace, (await hold_session(store)).session_id)
            events = [event.event async for event in store.events(sandboxed.session_id)]

        assert refused == [*others]
        assert (upwards, downwards, to_itself, unknown, between_strangers) == (
            False,
            True,
            False,
            False,
            False,
        )
        assert events == []

    async def test_full_inbox_accepts_no_more_messages(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            sender = await hold_session(store, workspace_id="garden")
            target = await hold_session(store, workspace_id="garden")

            def fill(tx: Tx) -> list[bool]:
                return [
                    tx.send(sender, _message(sender, target.session_id, "x")) for _ in range(MAX_UNDELIVERED)
                ]

            assert all(await store.write(fill))
            assert not await _send(store, sender, target.session_id)

    async def test_messages_are_deleted_with_their_target(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            sender = await hold_session(store, workspace_id="garden")
            target = await hold_session(store, workspace_id="garden")
            await _send(store, sender, target.session_id)

            await store.write(lambda tx: tx.delete(target))

            assert await store.read(lambda tx: tx.inbox(target.session_id)) == ()
            assert await store.read(lambda tx: tx.sessions_with_messages()) == frozenset()


def _message(sender: Hold, target: SessionId, text: str) -> InboxMessage:
    return InboxMessage(
        message_id=new_message_id(), sender=sender.session_id, sender_title="", target=target, text=text
    )


async def _send(store: Store, sender: Hold, target: SessionId, text: str = "hello") -> bool:
    message = _message(sender, target, text)

    def send(tx: Tx) -> bool:
        if not tx.send(sender, message):
            return False
        tx.append(sender, MessageSent(message_id=message.message_id, target=target, text=text))
        return True

    return await store.write(send)


async def _deliver(store: Store, target: Hold, message: InboxMessage) -> bool:
    def deliver(tx: Tx) -> bool:
        received = MessageReceived(
            turn_id=new_turn_id(),
            message_id=message.message_id,
            sender=message.sender,
            sender_title=message.sender_title,
            text=message.text,
        )
        tx.append(target, received)
        return tx.deliver(target, message.message_id)

    return await store.write(deliver)
