"""Tasks are not passed on, in any combination of the eras: neither side is told of them, and what needs them is left out or refused."""

from typing import Any

import aiohttp
import pytest

from tests.gateway import tasks_server
from tests.gateway.conftest import RawClient, Serve, counter_entry

pytestmark = pytest.mark.anyio
ERAS = ("handshake", "modern")
OFFERED: dict[str, Any] = {"tasks": {"requests": {}}, "extensions": {tasks_server.EXTENSION: {}}}


async def request(client: RawClient, era: str, method: str, params: dict[str, Any]) -> Any:
    if era == "handshake":
        posting = client.post(method, params)
    else:
        capabilities: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": OFFERED}
        posting = client.post_modern(method, params, **capabilities)
    async with posting as response:
        return await response.json()


@pytest.mark.promise("GW-04")
@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_tasks_end_at_the_gateway_by_name(
    era: str, server: str, serve: Serve, http: aiohttp.ClientSession
):
    entry = counter_entry()
    entry["args"] = ["-m", tasks_server.__name__, f"--{server}"]
    async with serve({"worker": entry}) as gateway:
        client = RawClient(http, gateway.url)
        if era == "handshake":
            await client.initialize(**OFFERED)
            told: Any = None
        else:
            told = (await request(client, era, "server/discover", {}))["result"]["capabilities"]
        tools = (await request(client, era, "tools/list", {}))["result"]["tools"]
        either = {"name": "either", "arguments": {}, "task": {"ttl": 1000}}
        seen = (await request(client, era, "tools/call", either))["result"]["content"][0]["text"]
        refused = (await request(client, era, "tasks/get", {"taskId": "7"}))["error"]
        created = await request(client, era, "tools/call", {"name": "created", "arguments": {}})

    assert "tasks" not in str(told)
    assert [tool["name"] for tool in tools] == ["plain", "either", "created"]
    assert "task" not in seen  # neither in the params nor in the client's capabilities
    assert (refused["code"], "does not pass on tasks" in refused["message"]) == (-32601, True)
    assert "does not pass on tasks" in str(created)
