"""What a program is told about its mistakes."""

from typing import Any

import pytest

from holdfast import Agent, HoldfastError
from holdfast.testing import FakeServer, host_of

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


async def test_host_of_refuses_what_has_no_name():
    servers: Any = {"web": FakeServer()}
    with pytest.raises(HoldfastError, match="Give other servers by keyword"):
        async with host_of(servers):
            pass
