"""The editor's answers to a session's requests; anything but a clear yes is a rejection."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast.acp.door import EditorDoor
from holdfast.acp.messages import ClientCapabilities
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.codes import Code
from holdfast.model.door import PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.limits import Limits
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.incoming_requests import ACP_CANCEL
from holdfast.wire.messages import PeerError, Request
from holdfast.wire.peer import Peer

pytestmark = pytest.mark.anyio

CALL = ToolCall(call_id="c1", server="s", tool="t", arguments=b"{}")


def raises(error: Exception) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


def selected(option: Any) -> Callable[[], Any]:
    return lambda: {"outcome": {"outcome": "selected", "optionId": option}}


@asynccontextmanager
async def door_to(answer: Callable[[], Any]) -> AsyncIterator[EditorDoor]:
    """The door to an editor that gives this answer to every request."""

    async def handle(request: Request) -> Any:
        return answer()

    ours = Peer(cancel_method=ACP_CANCEL)
    async with connect_memory(ours, Peer(on_request=handle, cancel_method=ACP_CANCEL)):
        yield EditorDoor(ours, ClientCapabilities(), "s")


@pytest.mark.promise("ACP-09")
@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (selected("allow_once"), Decision.ALLOW_ONCE),
        (selected("allow_always"), Decision.ALLOW_ALWAYS),
        (selected("reject"), Decision.REJECT),
        (selected("yes, do"), Decision.REJECT),
        (selected(None), Decision.REJECT),
        (lambda: {"outcome": {"outcome": "cancelled"}}, Decision.REJECT),
        (lambda: {"outcome": {"outcome": "cancelled", "optionId": "allow_once"}}, Decision.REJECT),
        (lambda: {"outcome": {"outcome": "selected"}}, Decision.REJECT),
        (lambda: {"outcome": "allow_once"}, Decision.REJECT),
        (dict, Decision.REJECT),
        (lambda: None, Decision.REJECT),
        (list, Decision.REJECT),
        (raises(PeerError(-32000, "allow_once")), Decision.REJECT),
        (raises(HoldfastError(codes.METHOD_NOT_FOUND, "What?")), Decision.REJECT),
        (raises(ValueError("a bug in the editor")), Decision.REJECT),
    ],
)
async def test_anything_but_a_clear_yes_rejects_the_call(answer: Callable[[], Any], decision: Decision):
    async with door_to(answer) as door:
        assert (
            await door.request_permission(PermissionQuestion(call=CALL, title="Do it", can_remember=True))
            is decision
        )


@pytest.mark.promise("ACP-09", "SES-03")
async def test_editor_that_disconnects_while_asked_has_not_answered():
    ours = Peer(cancel_method=ACP_CANCEL)
    async with connect_memory(ours, theirs := Peer(cancel_method=ACP_CANCEL)):
        await theirs.close()
        with pytest.raises(HoldfastError) as closed:
            await EditorDoor(ours, ClientCapabilities(), "s").request_permission(
                PermissionQuestion(call=CALL, title="Do it", can_remember=True)
            )

    assert closed.value.code is codes.CONNECTION_CLOSED


async def test_questions_wait_until_the_editor_knows_the_session():
    asked = list[str]()

    async def handle(request: Request) -> Any:
        asked.append(msgspec.json.decode(request.params)["sessionId"])
        return {"outcome": {"outcome": "cancelled"}}

    ours = Peer(cancel_method=ACP_CANCEL)
    async with connect_memory(ours, Peer(on_request=handle, cancel_method=ACP_CANCEL)):
        door = EditorDoor(ours, ClientCapabilities())
        asking = asyncio.create_task(
            door.request_permission(PermissionQuestion(call=CALL, title="Do it", can_remember=True))
        )
        done, _ = await asyncio.wait([asking], timeout=0.01)
        door.set_session_id("s")
        await asking

    assert (done, asked) == (set(), ["s"])


@pytest.mark.promise("ACP-09")
async def test_question_that_is_too_long_raises_instead_of_rejecting():
    ours = Peer(cancel_method=ACP_CANCEL, limits=Limits(line_bytes=1024))
    long = ToolCall(call_id="c1", server="s", tool="t", arguments=b'{"text":"' + b"x" * 1024 + b'"}')
    async with connect_memory(ours, Peer(cancel_method=ACP_CANCEL)):
        with pytest.raises(HoldfastError) as refused:
            await EditorDoor(ours, ClientCapabilities(), "s").request_permission(
                PermissionQuestion(call=long, title="Do it", can_remember=True)
            )

    assert refused.value.code is codes.TOO_LARGE


@pytest.mark.promise("ACP-15")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (raises(PeerError(-32002, "Resource not found")), codes.NO_FILE),
        (raises(PeerError(-32603, "Internal error")), codes.PEER_ERROR),
        (lambda: {"content": 5}, codes.BAD_ANSWER),
        (dict, codes.BAD_ANSWER),
    ],
)
async def test_only_the_protocols_error_code_means_that_the_file_does_not_exist(
    answer: Callable[[], Any], code: Code
):
    async with door_to(answer) as door:
        with pytest.raises(HoldfastError) as refused:
            await door.read_text("/project/file")

    assert refused.value.code is code
