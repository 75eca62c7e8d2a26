"""Attack 27, in the gateway: a confined server sends its client a request under a name that no policy knows."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.connect.relay import Relay
from holdfast.connect.server_requests import ServerRequests
from holdfast.model.trust import Trust
from holdfast.wire.messages import Raw
from tests.gateway.running import running_gateway
from tests.safety.asking_client import AskingClient
from tests.safety.test_43_params_that_no_question_shows import server

pytestmark = pytest.mark.anyio
NAMES = ("Elicitation/create", "elicitation/create ", "sampling/CreateMessage", "example.org/ask")


async def pass_on(self: ServerRequests, relay: Relay, method: str, params: Raw) -> Any:
    return await relay.ask(self.spec, method, params)


@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
async def test_only_requests_that_a_policy_is_for_reach_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        monkeypatch.setattr(ServerRequests, "_relay_request", pass_on)
    async with (
        running_gateway(tmp_path, servers=server("handshake")) as running,
        AskingClient(running.url, running.token(trust=Trust.SANDBOXED)) as client,
    ):
        for name in NAMES:
            await client.send("request", {"method": name})

    assert [asked["method"] for asked in client.asked] == ([] if is_protected else [*NAMES])
