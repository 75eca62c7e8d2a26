"""What an editor offers the user: modes up to the limit in the settings, and *always allow* where it has an effect."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.acp.config_options import OptionValues, describe_options, describe_state
from holdfast.model.event import Decision
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust
from tests.acp.zed import connected
from tests.connect.conftest import HostFactory, counter_entry, make_host

__all__ = ["make_host"]
pytestmark = [pytest.mark.anyio, pytest.mark.promise("SES-04", "ACP-17")]


@pytest.mark.parametrize(
    ("mode", "max_mode", "offered"),
    [
        (Mode.ASK, Mode.AUTO, ["ask", "auto", "read-only"]),
        (Mode.ASK, Mode.ASK, ["ask", "read-only"]),
        (Mode.READ_ONLY, Mode.READ_ONLY, ["read-only"]),
        (Mode.AUTO, Mode.ASK, ["ask", "auto", "read-only"]),  # a terminal has chosen it
    ],
)
def test_modes_are_offered_up_to_the_limit(mode: Mode, max_mode: Mode, offered: list[str]):
    values = OptionValues(mode=mode, max_mode=max_mode, trust=Trust.DIRECT)
    state: Any = describe_state(values)
    options: Any = describe_options(values)

    assert [each["id"] for each in state["modes"]["availableModes"]] == offered
    assert [each["value"] for each in options[0]["options"]] == offered
    assert (state["modes"]["currentModeId"], options[0]["currentValue"]) == (mode, mode)


@pytest.mark.parametrize(
    ("rule", "offered"),
    [
        ({}, ["allow_once", "allow_always", "reject"]),
        ({"HOLDFAST_PERMISSION_ASK": "c.count"}, ["allow_once", "reject"]),
    ],
    ids=["mode", "ask rule"],
)
async def test_always_allow_is_not_offered_where_an_ask_rule_would_ask_again(
    make_host: HostFactory, tmp_path: Path, rule: dict[str, str], offered: list[str]
):
    async with make_host({"c": counter_entry()}, **rule) as host, connected(host) as zed:
        session = (await zed.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
        turn = asyncio.create_task(zed.prompt(session, "/call c.count"))
        await zed.is_asked.wait()
        zed.answer.set_result(Decision.ALLOW_ALWAYS)  # even if it was not offered
        await turn
        await zed.prompt(session, "/call c.count")

        options = [[option["optionId"] for option in question["options"]] for question in zed.asked]
        assert options == ([offered] if not rule else [offered, offered])
        assert zed.statuses().count("completed") == 2
