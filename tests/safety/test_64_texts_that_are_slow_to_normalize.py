"""Attack 64: long rows of combining marks. Python sorts them in quadratic time, and no other thread runs until it has finished."""

import json
import re
import sys
import time
import unicodedata
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from holdfast.builtin.files.roots import comparable_name
from holdfast.connect import call as call_module
from holdfast.gateway import own_meta
from holdfast.model.message_text import escape_from_tags
from holdfast.model.normal_form import MAX_KEY, normalize
from holdfast.model.slug import slugify
from holdfast.resolve.server_names import skeleton
from holdfast.store.search import make_snippet
from holdfast.toolkit.argument_schema import ArgumentSchema, BadArgumentsError
from holdfast.toolkit.eval_keywords import check_keywords
from tests.cost import least_cpu_seconds
from tests.gateway.running import Client, running_gateway
from tests.safety.marking_server import KEYS

pytestmark = pytest.mark.promise("GW-08", "LNK-13")

SERVER = Path(__file__).parent / "marking_server.py"
SERVERS = {"marking": {"command": sys.executable, "args": [str(SERVER)], "trust_level": "sandboxed"}}
ALLOWED_FACTOR = 5  # the attacks took more than 20 times as long
PAIRS = 6000
MARKS = {
    "marks": "\u0315\u0300",
    "marks that are letters until they are decomposed": "\u0f73\u0f81",
    "a halfwidth letter that becomes a mark": "\u0300\uff9e",
}
LETTERS = "a" + "\u0430\u0431" * PAIRS


def old_fold_key(key: str) -> str:
    return unicodedata.normalize("NFKC", key).strip().casefold()


async def cpu_seconds(work: Callable[[], Awaitable[object]]) -> float:
    """The least CPU time of the event loop's thread in two tries."""
    seconds: list[float] = []
    for _ in range(2):
        began = time.thread_time()
        await work()
        seconds.append(time.thread_time() - began)
    return min(seconds)


async def slowdown(folder: Path, of_server: bool) -> float:
    """How many times as long the gateway works for a key of marks as for a key of letters."""
    seconds: dict[str, float] = {}
    async with (
        running_gateway(folder, servers=SERVERS) as running,
        Client(running.url, running.token()) as client,
    ):
        for kind, key in KEYS.items():
            arguments, meta = ({"key": kind}, {}) if of_server else ({"key": "letters"}, {key: 1})
            params: dict[str, Any] = {"name": "send", "arguments": arguments, "_meta": meta}
            assert '"content"' in (await client.post("tools/call", params)).text
            seconds[kind] = await cpu_seconds(lambda params=params: client.post("tools/call", params))
    return seconds["marks"] / seconds["letters"]


@pytest.mark.anyio
@pytest.mark.parametrize("of_server", [True, False], ids=["server", "client"])
async def test_a_long_key_of_a_server_or_a_client_does_not_stop_the_gateway(of_server: bool, tmp_path: Path):
    assert await slowdown(tmp_path, of_server) < ALLOWED_FACTOR


@pytest.mark.anyio
@pytest.mark.parametrize("of_server", [True, False], ids=["server", "client"])
async def test_control_normalized_by_python_the_key_stops_the_gateway(
    of_server: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(own_meta, "fold_key", old_fold_key)
    monkeypatch.setattr(call_module, "fold_key", old_fold_key)

    assert await slowdown(tmp_path, of_server) > ALLOWED_FACTOR


@pytest.mark.parametrize("key", ["dev.holdfast/", " ＤＥＶ.holdfast／", "\u3000" * 1000 + "dev.holdfast/"])
def test_a_key_of_ours_is_recognised_before_any_number_of_marks(key: str):
    params = own_meta.without_own_meta(Raw(f'{{"_meta":{{"{key}{KEYS["marks"]}":1,"b":2}}}}'.encode()))

    assert params == Raw(b'{"_meta":{"b":2}}')
    assert len(key.strip()) < MAX_KEY


def parse_argument(name: str) -> None:
    with pytest.raises(BadArgumentsError):
        ArgumentSchema([]).parse(json.dumps({name: 1}).encode())


WORK: dict[str, Callable[[str], object]] = {
    "the text of a message that a search finds": lambda text: make_snippet(text, (("needle",),)),
    "the name of an argument": parse_argument,
    "code to evaluate": lambda text: check_keywords("t", {"code": text}),
    "a file's name": comparable_name,
    "a workspace's name": slugify,
    "a server's name": skeleton.__wrapped__,
}


@pytest.mark.parametrize("marks", MARKS)
@pytest.mark.parametrize("what", WORK)
def test_marks_take_hardly_longer_than_letters(what: str, marks: str):
    def seconds(text: str) -> float:
        return least_cpu_seconds(lambda: WORK[what](text))

    assert seconds("a" + MARKS[marks] * PAIRS) < 4 * ALLOWED_FACTOR * seconds(LETTERS)


@pytest.mark.parametrize("start", ["<", "\uff1c", "\ufe64"])
def test_a_message_of_tags_that_only_begin_is_escaped_in_linear_time(start: str):
    def seconds(length: int) -> float:
        return least_cpu_seconds(lambda: escape_from_tags(start * length))

    assert seconds(20_000) < 8 * seconds(5_000) + 0.001
    assert escape_from_tags(f"{start * 3} f.r\u115fom") == f"{start * 2}&lt; f.r\u115fom"


def test_control_a_tag_that_may_contain_its_beginning_takes_quadratic_time():
    pattern = re.compile(r"[<\uff1c\ufe64][^\w<>]*f")

    def seconds(length: int) -> float:
        return least_cpu_seconds(lambda: pattern.sub("", "\ufe64" * length), 1)

    assert seconds(4_000) > 8 * seconds(1_000)


@pytest.mark.parametrize("marks", MARKS)
def test_control_python_takes_much_longer(marks: str):
    text = "a" + MARKS[marks] * PAIRS
    ours = least_cpu_seconds(lambda: normalize("NFKC", text))
    theirs = least_cpu_seconds(lambda: unicodedata.normalize("NFKC", text), 1)

    assert theirs > 10 * ours
