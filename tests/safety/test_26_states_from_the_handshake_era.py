"""Attack 26 in the handshake era: a client sends the state of another session, or answers to questions that no one was asked."""

from pathlib import Path

import pytest

from tests.gateway.running import running_gateway
from tests.safety.asking_client import AskingClient
from tests.safety.test_43_params_that_no_question_shows import SHOWN, pass_on_everything, server

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
async def test_a_client_of_the_handshake_era_cannot_continue_a_call_that_it_was_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        pass_on_everything(monkeypatch)
    answers = {"c": {"action": "accept", "content": {"ok": True}}}
    async with (
        running_gateway(tmp_path, servers=server("modern")) as running,
        AskingClient(running.url, running.token()) as client,
    ):
        stolen = await client.send("repeat", {"path": "a"}, requestState="of another session")
        await client.send("question", {}, inputResponses=answers)

    assert (stolen == SHOWN) is is_protected
    assert (len(client.asked) == 1) is is_protected  # the user was asked
