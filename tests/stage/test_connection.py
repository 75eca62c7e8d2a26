"""Commands to a browser, and what it answers while it replaces a page."""

import msgspec
import pytest

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.cdp.connection import CdpError, Connection

pytestmark = pytest.mark.anyio


class ScriptedBrowser:
    """Answers each command with the next of these messages, and keeps the commands."""

    def __init__(self, connection: Connection, answers: list[dict[str, object]]) -> None:
        self.sent: list[str] = []
        self._connection = connection
        self._answers = answers
        connection.open(self)

    def send(self, message: bytes) -> None:
        command = msgspec.json.decode(message)
        self.sent.append(command["method"])
        answer = {"id": command["id"], **self._answers.pop(0)}
        self._connection.receive(msgspec.json.encode(answer))

    def close(self) -> None: ...


async def test_a_command_is_sent_again_while_the_page_is_being_replaced():
    connection = Connection()
    refused: dict[str, object] = {"error": {"code": -32000, "message": "Not attached to an active page"}}
    history: dict[str, object] = {"result": {"currentIndex": 0, "entries": []}}
    browser = ScriptedBrowser(connection, [refused, refused, history])

    result = await connection.send(cdp.PageGetNavigationHistory())

    assert result.current_index == 0
    assert browser.sent == ["Page.getNavigationHistory"] * 3


async def test_a_command_that_fails_for_another_reason_is_sent_once():
    connection = Connection()
    browser = ScriptedBrowser(connection, [{"error": {"code": -32000, "message": "No node found"}}])

    with pytest.raises(CdpError, match="No node found"):
        await connection.send(cdp.PageReload())

    assert browser.sent == ["Page.reload"]
