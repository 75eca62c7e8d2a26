"""Attack 43, in the gateway: a client puts more into a call than the question about it shows, next to its arguments.

Some servers read names of members in any case: for them, `Arguments` adds to `arguments`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.gateway import request_handler
from holdfast.model.permission import Mode
from tests.gateway.running import modern_call, post_modern, read_answer, running_gateway
from tests.safety.asking_client import AskingClient

pytestmark = pytest.mark.anyio
HIDDEN = {"Arguments": {"force": True}, "ARGUMENTS": {"path": "/"}, "example": 1, "task": {"ttl": 1}}
SHOWN = {"name": "repeat", "arguments": {"path": "a"}}


def server(era: str) -> dict[str, dict[str, object]]:
    script = str(Path(__file__).parent / "unusual_server.py")
    return {"x": {"command": sys.executable, "args": [script, era], "trust_level": "sandboxed"}}


class Everything(frozenset[str]):
    def __contains__(self, _: object) -> bool:
        return True

    def union(self, *_: Any) -> "Everything":
        return self


def pass_on_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_handler, "_INTERRUPTIBLE", {"tools/call": Everything({"name"})})


REFERENCE = {"type": "ref/prompt", "name": "x"}
COMPLETE = {"ref": REFERENCE, "argument": {"name": "a", "value": "b"}, "context": {"arguments": {"c": "d"}}}
REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "completion/complete": (
        {
            **COMPLETE,
            "ref": {**REFERENCE, "Name": "y", "NAME": "z"},
            "Ref": {"type": "ref/prompt", "name": "y"},
            "argument": {**COMPLETE["argument"], "Value": "other"},
        },
        COMPLETE,
    ),
    "resources/subscribe": ({"uri": "a:b", "Uri": "c:d", "force": True}, {"uri": "a:b"}),
    "resources/unsubscribe": ({"uri": "a:b", "URI": "c:d"}, {"uri": "a:b"}),
}


def keep_everything(members: dict[str, Any], *names: str) -> dict[str, Any]:
    return members


@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
async def test_a_server_gets_only_the_params_that_mcp_defines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        monkeypatch.setattr(request_handler, "_only", keep_everything)
    got: dict[str, Any] = {}
    async with (
        running_gateway(tmp_path, servers=server("handshake")) as running,
        AskingClient(running.url, running.token()) as client,
    ):
        for method, (params, _) in REQUESTS.items():
            got[method] = read_answer(await client.post(method, params))["result"]["got"]
        notification: dict[str, Any] = {
            "jsonrpc": "2.0",
            "method": "notifications/roots/list_changed",
            "params": {"Roots": []},
        }
        await client.http.post(client.url, json=notification)
        notified = await client.send("notified", {})

    assert {method: got[method] == shown for method, (_, shown) in REQUESTS.items()} == dict.fromkeys(
        REQUESTS, is_protected
    )
    assert notified == [{} if is_protected else {"Roots": []}]


@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
async def test_a_server_gets_only_the_params_that_the_question_is_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        pass_on_everything(monkeypatch)
    async with running_gateway(tmp_path, servers=server("handshake")) as running:
        async with AskingClient(running.url, running.token(mode=Mode.ASK)) as client:
            got = await client.send("repeat", {"path": "a"}, **HIDDEN)
            questions = [asked["params"]["message"] for asked in client.asked]
        body, headers = modern_call("repeat", path="a")
        body["params"] |= HIDDEN
        answer = read_answer(await post_modern(running.url, running.token(), body, headers))
        by_modern_client = json.loads(answer["result"]["content"][0]["text"])

    assert [question.partition("\n")[2] for question in questions] == ['{"path":"a"}']
    assert (got == SHOWN, by_modern_client == SHOWN) == (is_protected, is_protected)
