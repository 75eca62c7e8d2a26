"""Attack 15, in the gateway: a server's instructions hide words, pose as those of another server, or leave no room for them."""

import re
import time
from pathlib import Path

import pytest

from holdfast.gateway import capabilities
from holdfast.wire.mcp import client as mcp_client
from tests.gateway.running import Client, read_answer, running_gateway
from tests.safety.test_43_params_that_no_question_shows import server

pytestmark = pytest.mark.anyio


def leave(text: str) -> str:
    return text


@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
async def test_instructions_hide_nothing_and_stay_below_the_name_of_their_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        monkeypatch.setattr(mcp_client, "strip_invisible", leave)
        monkeypatch.setattr(capabilities, "_below_heading", leave)
    servers = {"first": server("handshake")["x"], "second": server("modern")["x"]}
    async with (
        running_gateway(tmp_path, servers=servers) as running,
        Client(running.url, running.token()) as client,
    ):
        shown = read_answer(await client.initialize())["result"]["instructions"]

    headings = [line for line in shown.splitlines() if line.startswith("# ")]
    assert (headings == ["# first", "# second"]) is is_protected
    assert ("=====" in shown, "\u200b" in shown, "\U000e0041" in shown) == (not is_protected,) * 3


SHORT, LONG = 1000, 4000


def measured_seconds(text: str) -> float:
    def once() -> float:
        began = time.process_time()
        capabilities._below_heading(text)
        return time.process_time() - began

    return min(once() for _ in range(5))


@pytest.mark.parametrize("line", ["\n", " \n"], ids=["empty", "blank"])
def test_instructions_of_many_lines_take_linear_time(line: str):
    # The whole text of a server has 16 KiB.
    assert measured_seconds(line * 8000) < measured_seconds(line * LONG) * 4 + 0.02


def test_control_patterns_that_cross_lines_take_quadratic_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(capabilities, "_HEADING", re.compile(r"^(\s*#)", re.MULTILINE))

    assert measured_seconds("\n" * LONG) > measured_seconds("\n" * SHORT) * 8
