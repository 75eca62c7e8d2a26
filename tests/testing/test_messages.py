"""What an application is told about its mistakes."""

from typing import Any

import aiohttp
import pytest

from holdfast import Agent, HoldfastError
from holdfast.testing import FakeServer, assert_called, assert_not_called, host_of
from holdfast.testing.scripted_model import ScriptedModel, answer

pytestmark = pytest.mark.anyio


async def _message_of_opening(**options: Any) -> str:
    with pytest.raises(HoldfastError) as raised:
        async with host_of() as host, host.session(**options):
            pass
    return raised.value.message


async def test_a_tool_without_its_server_gets_a_suggestion():
    async with host_of(web=FakeServer({"search": "tea"})) as host, host.session() as session:
        result = await session.call("search")

    assert result.message == "There is no tool 'search'. Did you mean 'web.search'?"


@pytest.mark.parametrize("arguments", ["tea", ["tea"], 3, object])
async def test_arguments_that_are_no_object_are_named(arguments: Any):
    async with host_of(web=FakeServer({"search": "tea"})) as host, host.session() as session:
        with pytest.raises(HoldfastError) as raised:
            await session.call("web.search", arguments)

    kind = type(arguments).__name__
    expected = "The arguments must be a dict, a dataclass or a pydantic model"
    assert raised.value.message == f"{expected}, not a value of the type {kind}."


async def test_the_class_of_an_agent_is_refused():
    expected = "`agent` must be a holdfast.Agent, not a class. Give it an object: Agent(…)."
    assert await _message_of_opening(agent=Agent) == expected


async def test_assertions_fail_for_a_tool_that_no_server_has():
    async with host_of(web=FakeServer({"search": "tea"})) as host, host.session(tools=["web"]) as session:
        await session.call("web.search")
        with pytest.raises(AssertionError, match=r"has no tool 'wb.search'. Did you mean 'web.search'"):
            await assert_not_called(session, "wb.search")
        with pytest.raises(AssertionError, match=r"web.search was called. Its calls: {}"):
            await assert_not_called(session, "web.search")
        await assert_not_called(session, "files.write")  # the session has this server, but not its tools
        await assert_called(session, "web.search", times=1)


@pytest.mark.parametrize("script", ["hello", ["hello"], answer("hello"), 5])
def test_a_script_that_is_no_list_of_steps_is_refused(script: Any):
    with pytest.raises(TypeError, match=r"must be a (list of steps or a function|step such as answer)"):
        ScriptedModel(script)


def fail(request: object) -> Any:
    raise LookupError("there is no answer")


def answer_with_text(request: object) -> Any:
    return "hello"


SCRIPTS: dict[str, tuple[Any, str]] = {
    "raises": (fail, "there is no answer"),
    "wrong step": (answer_with_text, "returns must be a step such as answer"),
    "no more steps": ([], "the script of the model has no more steps: it has 0"),
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_script_that_fails_is_in_the_log(name: str, caplog: pytest.LogCaptureFixture):
    script, expected = SCRIPTS[name]
    async with (
        ScriptedModel(script) as endpoint,
        aiohttp.ClientSession() as http,
        http.post(f"{endpoint.base_url}/chat/completions", json={"messages": []}) as response,
    ):
        status = response.status

    assert (status, expected in caplog.text) == (400, True)


async def test_host_of_refuses_what_has_no_name():
    servers: Any = {"web": FakeServer()}
    with pytest.raises(HoldfastError, match="Give other servers by keyword"):
        async with host_of(servers):
            pass
