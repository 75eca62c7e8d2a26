"""What an editor's answers mean to a session; whatever is no clear yes is a no."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.acp.door import EditorDoor
from holdfast.acp.shapes import ClientCapabilities
from holdfast.model import codes
from holdfast.model.call import ToolCall
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.limits import Limits
from holdfast.wire.frame import Request
from holdfast.wire.memory import joined
from holdfast.wire.peer import ACP, Peer, PeerError

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
    """A session's door to an editor that answers everything so."""

    async def handle(request: Request) -> Any:
        return answer()

    ours = Peer(dialect=ACP)
    async with joined(ours, Peer(handle=handle, dialect=ACP)):
        yield EditorDoor(ours, ClientCapabilities())


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
        (raises(ValueError("a bug of the editor's")), Decision.REJECT),
    ],
)
async def test_whatever_is_no_clear_yes_to_a_call_is_a_no(answer: Callable[[], Any], decision: Decision):
    async with door_to(answer) as door:
        assert await door.permit(CALL, "Do it") is decision


@pytest.mark.promise("ACP-09")
async def test_an_editor_that_leaves_while_it_is_asked_has_said_no():
    ours = Peer(dialect=ACP)
    async with joined(ours, theirs := Peer(dialect=ACP)):
        await theirs.close()

        assert await EditorDoor(ours, ClientCapabilities()).permit(CALL, "Do it") is Decision.REJECT


@pytest.mark.promise("ACP-09")
async def test_what_is_too_long_to_be_asked_is_nobodys_answer():
    ours = Peer(dialect=ACP, limits=Limits(line_bytes=1024))
    long = ToolCall(call_id="c1", server="s", tool="t", arguments=b'{"text":"' + b"x" * 1024 + b'"}')
    async with joined(ours, Peer(dialect=ACP)):
        with pytest.raises(HoldfastError) as refused:
            await EditorDoor(ours, ClientCapabilities()).permit(long, "Do it")

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
async def test_only_the_protocols_own_number_says_that_the_editor_has_no_such_file(
    answer: Callable[[], Any], code: Code
):
    async with door_to(answer) as door:
        with pytest.raises(HoldfastError) as refused:
            await door.read_text("/project/file")

    assert refused.value.code is code
