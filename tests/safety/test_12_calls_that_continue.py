"""Attack 12: a client keeps calls that wait for input, and continues them after a rule or the mode asks for permission."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast.model.call import Forwarding
from holdfast.model.permission import Mode
from holdfast.session.calls import Calls
from holdfast.session.session import Session
from tests.gateway.conftest import RawClient, counter_entry, http
from tests.gateway.running import RunningGateway, running_gateway
from tests.gateway.test_config_changes import check_often
from tests.gateway.test_request_states import ANSWER, PERMIT, send

__all__ = ["check_often", "http"]

pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-04")]

Call = Callable[..., Awaitable[Any]]
HELD = 3


@asynccontextmanager
async def client_of_a_gateway(
    folder: Path, http: aiohttp.ClientSession, mode: Mode
) -> AsyncIterator[tuple[RunningGateway, Call]]:
    """A gateway, and a function that calls a tool that asks its client for a number."""
    (folder / "config.toml").write_text("")
    environ = {"HOLDFAST_CONFIG": str(folder / "config.toml")}
    servers = {"counter": counter_entry("--modern")}
    async with asyncio.timeout(60), running_gateway(folder, environ, servers=servers) as running:
        client = RawClient(http, running.url, running.token(mode=mode))

        async def call(to: str, **more: Any) -> Any:
            arguments = {"method": "elicitation/create", "to": to}
            return await send(client, "tools/call", {"name": "wants", "arguments": arguments, **more})

        yield running, call


def asked_by_holdfast(result: Any) -> bool:
    return "holdfast-1" in result.get("inputRequests", {})


async def hold(call: Call) -> dict[str, str]:
    """Calls whose server has asked for input, each with its state."""
    return {name: (await call(name))["requestState"] for name in map(str, range(HELD))}


def session_of(running: RunningGateway) -> Session:
    (session,) = running.host._parts.live._sessions.values()  # pyright: ignore[reportPrivateUsage]
    return session


async def add_ask_rule(folder: Path, running: RunningGateway) -> None:
    permission = session_of(running).permission
    before = permission.rules
    (folder / "config.toml").write_text('[permission]\nask = ["counter.*"]\n')
    while permission.rules == before:
        await asyncio.sleep(0.01)


async def continue_all(call: Call, held: dict[str, str]) -> list[bool]:
    """Continue the calls. Return which of them Holdfast asks about. The user then allows each, and all of them run."""
    asked: list[bool] = []
    for name, state in held.items():
        result = await call(name, requestState=state, inputResponses=ANSWER)
        asked.append(asked_by_holdfast(result))
        if asked[-1]:
            result = await call(name, requestState=result["requestState"], inputResponses=PERMIT)
        assert "7" in result["content"][0]["text"]
    return asked


async def test_calls_kept_before_an_ask_rule_are_asked_about(tmp_path: Path, http: aiohttp.ClientSession):
    async with client_of_a_gateway(tmp_path, http, Mode.AUTO) as (running, call):
        held = await hold(call)
        await add_ask_rule(tmp_path, running)
        asked = await continue_all(call, held)

    assert asked == [True] * HELD


async def test_calls_kept_before_the_mode_was_lowered_are_asked_about(
    tmp_path: Path, http: aiohttp.ClientSession
):
    async with client_of_a_gateway(tmp_path, http, Mode.AUTO) as (running, call):
        held = await hold(call)
        await session_of(running).permission.change_mode(Mode.ASK)
        asked = await continue_all(call, held)

    assert asked == [True] * HELD


async def test_an_answer_from_before_the_rule_does_not_count(tmp_path: Path, http: aiohttp.ClientSession):
    async with client_of_a_gateway(tmp_path, http, Mode.ASK) as (running, call):
        held: dict[str, str] = {}
        for name in ("before", "after"):
            asked = await call(name)
            interim = await call(name, requestState=asked["requestState"], inputResponses=PERMIT)
            held[name] = interim["requestState"]
        unchanged = await call("before", requestState=held["before"], inputResponses=ANSWER)
        await add_ask_rule(tmp_path, running)
        changed = await call("after", requestState=held["after"], inputResponses=ANSWER)

    assert "7" in unchanged["content"][0]["text"]
    assert asked_by_holdfast(changed)


async def test_control_if_a_call_that_continues_counts_as_permitted_it_runs(
    tmp_path: Path, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
):
    def continues(self: Calls, forwarding: Forwarding, tool: Any) -> bool:
        return "inputResponses" in forwarding.params

    monkeypatch.setattr(Calls, "_is_still_permitted", continues)
    async with client_of_a_gateway(tmp_path, http, Mode.AUTO) as (running, call):
        held = await hold(call)
        await add_ask_rule(tmp_path, running)
        asked = await continue_all(call, held)

    assert asked == [False] * HELD
