"""A `requestState` continues one call: with the same arguments, once, and at the server that asked."""

import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast.model.permission import Mode
from holdfast.wire.mcp.eras import CAPABILITIES_KEY
from tests.gateway.conftest import RawClient, Serve, counter_entry

pytestmark = pytest.mark.anyio
PERMIT = {"holdfast-1": {"action": "accept", "content": {"decision": "allow_once"}}}
ANSWER = {"it": {"action": "accept", "content": {"number": 7}}}
# Two modern servers, `a` and `b`, ask before a resource is read. Only `a` lists it; while the file `moved` exists, only `b`.
ASKING = """
import json, os, sys
name, folder = sys.argv[1:]
for line in sys.stdin:
    message = json.loads(line)
    params, is_moved = message.get("params", {}), os.path.exists(f"{folder}/moved")
    found = None
    if message["method"] == "server/discover":
        found = {"supportedVersions": ["2026-07-28"], "capabilities": {"resources": {}, "tools": {}}}
        found["serverInfo"] = {"name": name, "version": "1"}
    elif message["method"] == "tools/list":
        found = {"tools": []}
    elif message["method"] == "resources/list":
        found = {"resources": [{"uri": "x://account", "name": "x"}] if is_moved == (name == "b") else []}
    elif message["method"] == "resources/templates/list":
        found = {"resourceTemplates": []}
    elif message["method"] == "resources/read":
        with open(f"{folder}/{name}.log", "a") as log:
            print(json.dumps(params.get("inputResponses")), file=log)
        if "inputResponses" in params:
            found = {"contents": [{"uri": "x://account", "text": name}]}
        else:
            asked = {"method": "elicitation/create", "params": {"message": "PIN?", "requestedSchema": {"type": "object", "properties": {}}}}
            found = {"resultType": "input_required", "inputRequests": {"it": asked}, "requestState": f"state of {name}"}
    if "id" in message:
        answer = {"error": {"code": -32601, "message": "no"}}
        if found is not None:
            answer = {"result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **found}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


async def send(client: RawClient, method: str, params: dict[str, Any]) -> Any:
    named = {"mcp-name": params["uri"]} if "uri" in params else {}
    client.headers.update(named)
    async with client.post_modern(method, params, **{CAPABILITIES_KEY: {"elicitation": {}}}) as response:
        answer = await response.json()
    return answer.get("result") or answer["error"]


async def test_the_permission_of_a_call_covers_these_arguments_once(
    serve: Serve, http: aiohttp.ClientSession
):
    async with serve({"counter": counter_entry("--modern")}, mode=Mode.ASK) as gateway:
        client = RawClient(http, gateway.url)

        async def call(to: str, **more: Any) -> Any:
            arguments = {"method": "elicitation/create", "to": to}
            return await send(client, "tools/call", {"name": "wants", "arguments": arguments, **more})

        asked = await call("ann")
        changed_before = await call("eve", requestState=asked["requestState"], inputResponses=PERMIT)
        interim = await call("ann", requestState=asked["requestState"], inputResponses=PERMIT)
        state = interim["requestState"]
        changed_after = await call("eve", requestState=state, inputResponses=ANSWER)
        done = await call("ann", requestState=state, inputResponses=ANSWER)
        replays = [await call("ann", requestState=state, **more) for more in ({"inputResponses": ANSWER}, {})]
        again = await call("ann")

    assert "holdfast-1" in asked["inputRequests"]
    assert "it" in interim["inputRequests"]
    assert "7" in done["content"][0]["text"]  # control: the call that was permitted
    for refused in (changed_before, changed_after, *replays):
        assert "requestState is not valid" in refused["message"]
    assert "holdfast-1" in again["inputRequests"]  # a new call needs a new permission


async def test_an_answer_reaches_only_the_server_that_asked(
    serve: Serve, http: aiohttp.ClientSession, tmp_path: Path
):
    servers = {
        name: {"command": sys.executable, "args": ["-c", ASKING, name, str(tmp_path)]} for name in ("a", "b")
    }
    uri = {"uri": "x://account"}
    async with serve(servers) as gateway:
        client = RawClient(http, gateway.url)
        asked = await send(client, "resources/read", uri)
        (tmp_path / "moved").touch()
        await send(client, "resources/list", {})
        answered = await send(
            client, "resources/read", {**uri, "requestState": asked["requestState"], "inputResponses": ANSWER}
        )
        unasked = await send(client, "resources/read", {**uri, "inputResponses": ANSWER})
    logs = {name: (tmp_path / f"{name}.log").read_text().splitlines() for name in ("a", "b")}

    assert answered["contents"][0]["text"] == "a"
    assert [json.loads(line) for line in logs["a"]] == [None, ANSWER]
    assert "it" in unasked["inputRequests"]  # control: a new request goes to `b`, without answers
    assert [json.loads(line) for line in logs["b"]] == [None]
