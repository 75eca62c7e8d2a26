"""Attack 56: a server without a call in flight asks its question on the client's call to another server, which then waits for the answer."""

import sys
from pathlib import Path

import pytest

from holdfast.gateway.client_session import ClientSession
from tests.gateway.running import modern_call, post_modern, running_gateway

pytestmark = pytest.mark.anyio

SERVER = {
    "command": sys.executable,
    "args": [str(Path(__file__).parent / "later_server.py")],
    "trust_level": "sandboxed",
}


async def result_of_others_call(folder: Path, method: str) -> dict[str, object]:
    """The result of the call that is in flight at another server when the server asks."""
    folder.mkdir()
    files = {"started": str(folder / "started"), "answered": str(folder / "answered")}
    async with running_gateway(folder, servers={"asker": SERVER, "other": SERVER}) as running:
        token = running.token()
        body, headers = modern_call("asker__look", **files, method=method)
        body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["sampling"] = {}
        await post_modern(running.url, token, body, headers)
        body, headers = modern_call("other__wait", **files)
        body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["sampling"] = {}
        return (await post_modern(running.url, token, body, headers)).json()["result"]


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage"])
async def test_a_server_cannot_interrupt_the_call_of_another(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found = await result_of_others_call(tmp_path / "found", method)
    with monkeypatch.context() as patch:
        patch.setattr(ClientSession, "_call_to_ask_on", ClientSession._newest_call)  # pyright: ignore[reportPrivateUsage]
        control = await result_of_others_call(tmp_path / "control", method)

    assert (found["resultType"], found["content"]) == ("complete", [{"type": "text", "text": "error"}])
    assert (control["resultType"], "inputRequests" in control) == ("input_required", True)
