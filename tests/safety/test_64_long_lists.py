"""Attack 64: a client lists thousands of prompts and resources, or asks for ones that do not exist, again and again."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.gateway.kept_lists import KeptLists
from holdfast.gateway.offer import Offer
from holdfast.gateway.paging import ITEMS_PER_STEP, MergedList
from holdfast.gateway.session_memory import SessionMemory
from holdfast.wire.http.limits import CallerQuota
from holdfast.wire.mcp.eras import Era
from holdfast.wire.messages import Raw
from tests.gateway.running import Client, read_answer, running_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08")]

ITEMS, REQUESTS = 300, 8
# A server that logs the method of each request. `prompts/get` of `grow` adds a prompt.
SERVER = """
import json, sys
name, count, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
prompts = [{"name": f"p{i}"} for i in range(count)]
resources = [{"uri": f"x://{name}/{i}", "name": f"r{i}"} for i in range(count)]
lists = {"prompts/list": {"prompts": prompts}, "resources/list": {"resources": resources},
    "resources/templates/list": {"resourceTemplates": []}, "tools/list": {"tools": []}}
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method = message["method"]
    with open(log, "a") as file:
        print(name, method, file=file)
    if "id" not in message:
        continue
    if method == "initialize":
        info = {"protocolVersion": "2025-11-25", "serverInfo": {"name": name, "version": "1"}}
        send(id=message["id"], result={**info, "capabilities": {"prompts": {"listChanged": True}, "resources": {}}})
    elif method in lists:
        send(id=message["id"], result=lists[method])
    elif method == "prompts/get":
        prompts.append({"name": "new"})
        send(method="notifications/prompts/list_changed")
        send(id=message["id"], result={"messages": []})
    else:
        send(id=message["id"], error={"code": -32602, "message": "no"})
"""


@asynccontextmanager
async def client_of_two_servers(folder: Path) -> AsyncIterator[tuple[Client, Callable[[], Counter[str]]]]:
    """A client, and a function that counts the requests that the servers got."""
    folder.mkdir(exist_ok=True)
    log = folder / "log"
    servers = {
        name: {"command": sys.executable, "args": ["-c", SERVER, name, str(ITEMS), str(log)]} for name in "ab"
    }
    async with (
        asyncio.timeout(60),
        running_gateway(folder, servers=servers) as running,
        Client(running.url, running.token()) as client,
    ):
        yield client, lambda: Counter(log.read_text().splitlines())


async def list_again_and_again(client: Client) -> None:
    for method in ("prompts/list", "resources/list"):
        for _ in range(REQUESTS // 2):
            await client.post(method)
        await asyncio.gather(*(client.post(method) for _ in range(REQUESTS // 2)))


async def name_what_does_not_exist(client: Client) -> None:
    for number in range(REQUESTS // 2):
        await client.post("prompts/get", {"name": f"no{number}"})
        await client.post("resources/read", {"uri": f"x://no/{number}"})
    await asyncio.gather(
        *(client.post("prompts/get", {"name": f"none{number}"}) for number in range(REQUESTS // 2)),
        *(client.post("resources/read", {"uri": f"x://none/{number}"}) for number in range(REQUESTS // 2)),
    )


Attack = Callable[[Client], Coroutine[Any, Any, None]]
ATTACKS: tuple[Attack, ...] = (list_again_and_again, name_what_does_not_exist)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_each_list_is_made_once(attack: Attack, tmp_path: Path):
    async with client_of_two_servers(tmp_path) as (client, count):
        await attack(client)
        requests = count()

    assert [requests[f"{name} {method}/list"] for name in "ab" for method in ("prompts", "resources")] == [
        1
    ] * 4


async def test_control_without_kept_lists_each_request_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def make_always(
        self: KeptLists,
        name: str,
        make: Callable[[], Coroutine[None, None, MergedList]],
        *,
        is_look_up: bool = False,
    ) -> MergedList:
        return await make()

    monkeypatch.setattr(KeptLists, "get", make_always)
    async with client_of_two_servers(tmp_path) as (client, count):
        await name_what_does_not_exist(client)
        requests = count()

    assert requests["a prompts/list"] >= REQUESTS // 2


async def test_a_client_that_hears_of_a_change_gets_the_new_list(tmp_path: Path):
    async def last_page(client: Client) -> Any:
        result: Any = {"nextCursor": None}
        while "nextCursor" in result:
            cursor = {"cursor": result["nextCursor"]} if result["nextCursor"] else {}
            result = read_answer(await client.post("prompts/list", cursor))["result"]
        return result["prompts"]

    async with client_of_two_servers(tmp_path) as (client, count):
        before = await last_page(client)
        await client.post("prompts/get", {"name": "b__p1"})
        after = await last_page(client)
        requests = count()

    assert (before[-1]["name"], after[-1]["name"]) == (f"b__p{ITEMS - 1}", "b__new")
    assert requests["a prompts/list"] == 2  # not once for each of the pages


def steps_for(count: int) -> dict[str, int]:
    """In how many steps each list is made."""
    memory = SessionMemory(CallerQuota(total=1, share=1), "a")
    offer = Offer(cast("Any", None), Era.MODERN, bare_names=True, memory=memory)
    lists = {"name": offer._prompt_steps, "uri": offer._resource_steps, "uriTemplate": offer._template_steps}
    return {
        key: sum(
            1 for _ in steps([("a", Raw(f'{{"{key}":"{number}"}}'.encode())) for number in range(count)])
        )
        for key, steps in lists.items()
    }


def test_a_step_never_handles_more_than_a_few_items():
    for count in (1000, 8000):
        assert min(steps_for(count).values()) >= count // ITEMS_PER_STEP
