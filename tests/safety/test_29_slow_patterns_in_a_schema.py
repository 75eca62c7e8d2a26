"""Attack 29, on the server's side: arguments that make a tool's pattern or argument parsing block the server."""

import asyncio
import re
import time
from typing import Annotated, Any

import msgspec
import pytest

from holdfast.model.errors import HoldfastError
from holdfast.toolkit import Call, Meta, Toolbox
from holdfast.wire.messages import Raw

pytestmark = pytest.mark.anyio

EVIL = "a" * 28 + "!"
PATTERN = r"^(a+)+$"


async def measure_stall(box: Toolbox, arguments: Any) -> float:
    """The longest CPU time between two steps of the event loop during a call; the best of five calls."""
    return min([await _measure_stall(box, arguments) for _ in range(5)])


async def _measure_stall(box: Toolbox, arguments: Any) -> float:
    longest, last, over = 0.0, time.thread_time(), False

    async def watch() -> None:
        nonlocal longest, last
        while not over:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await box.dispatcher().dispatch(Call(tool="search"), Raw(msgspec.json.encode(arguments)))
    await asyncio.sleep(0)
    over = True
    await watching
    return longest


def test_catastrophic_pattern_is_rejected_at_registration():
    box = Toolbox("box")

    async def search(text: Annotated[str, Meta(pattern=PATTERN, max_length=100)]) -> None:
        """Search."""

    with pytest.raises(HoldfastError, match="could take forever"):
        box.tool()(search)


@pytest.mark.parametrize("text", [EVIL, "a" * 1000, "a-" * 500, "\u0000" * 1000])
async def test_accepted_pattern_does_not_block_the_event_loop(text: str):
    box = Toolbox("box")

    @box.tool(operation="query")
    async def search(
        text: Annotated[str, Meta(pattern=r"^[a-z]+(-[a-z]{1,8}){0,5}\d*$", max_length=1000)],
    ) -> None:
        """Search."""

    assert await measure_stall(box, {"text": text}) < 0.05


@pytest.mark.parametrize(
    "arguments",
    [
        {f"key{number}": number for number in range(5000)},
        {"text": ["a"] * 20_000},
        {"text": {"a": {"b": [{"c": "d"}] * 5000}}},
    ],
    ids=["many unknown", "long list", "nested"],
)
async def test_invalid_arguments_do_not_block_the_event_loop(arguments: Any):
    box = Toolbox("box")

    @box.tool(operation="query")
    async def search(text: str) -> None:
        """Search."""

    assert await measure_stall(box, arguments) < 0.05


def test_control_catastrophic_pattern_is_slow():
    began = time.perf_counter()

    assert re.search(PATTERN, "a" * 22 + "!") is None
    assert time.perf_counter() - began > 0.05
