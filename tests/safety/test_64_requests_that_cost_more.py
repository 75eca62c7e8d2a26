"""Attack 64: small requests and lists that cost the gateway far more than they cost their sender."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from holdfast.gateway import offer
from holdfast.model.errors import HoldfastError
from holdfast.model.limits import DEFAULT_LIMITS, META_LIMIT
from holdfast.wire.http.bodies import parse_body
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.mcp.server import read_meta
from tests.cost import count_calls, least_cpu_seconds
from tests.gateway.running import Client, modern_call, post_modern, read_answer, running_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08")]

SERVER = Path(__file__).parent / "costly_lists_server.py"
MANY = [0] * 2000


def error_of(answer: Any) -> str:
    return read_answer(answer).get("error", {}).get("message", "")


async def test_the_meta_of_a_request_is_small_and_its_progress_token_is_plain(tmp_path: Path):
    async with running_gateway(tmp_path) as running:
        token = running.token()
        body, headers = modern_call("add")
        metas: list[dict[str, Any]] = [
            {"progressToken": {"a": MANY[:900]}},
            {"progressToken": "x" * 300},
            {"junk": MANY},
            {"junk": "x" * 70_000},
            {"io.modelcontextprotocol/clientCapabilities": {"x": "y" * 5000}},
            {"progressToken": 7},
        ]
        errors: list[str] = []
        for extra in metas:
            sent = json.loads(json.dumps(body))
            sent["params"]["_meta"] |= extra
            errors.append(error_of(await post_modern(running.url, token, sent, headers)))
        sessions = len(running.gateway.app.open_sessions())

    plain, large = (
        "progressToken must be a number, or a string of at most 256",
        "_meta has more than 65536 bytes or 1000",
    )
    own = "The client's name, capabilities and _meta have more than 4096 bytes."
    for error, expected in zip(errors, [plain, plain, large, large, own, ""], strict=True):
        assert expected in error
    assert (errors[-1], sessions) == ("", 1)


@pytest.mark.parametrize("token", [None, True, [], {}, "x" * 257])
def test_only_numbers_and_short_strings_are_progress_tokens(token: object):
    params = Raw(json.dumps({"_meta": {"progressToken": token}}).encode())
    if token is None:
        assert read_meta(params) == {"progressToken": None}
    else:
        with pytest.raises(HoldfastError, match="must be a number"):
            read_meta(params)


def test_a_large_meta_is_refused_before_it_is_decoded():
    values = b"[]," * 30_000 + b"1"
    large = Raw(b'{"_meta":{"junk":[%b]},"arguments":{}}' % values)
    arguments = Raw(b'{"_meta":{"k":1},"arguments":{"junk":[%b]}}' % values)

    with pytest.raises(HoldfastError, match=f"more than {META_LIMIT.bytes} bytes"):
        read_meta(large)
    assert read_meta(arguments) == {"k": 1}  # the control: elsewhere, this many values are allowed


class _Charged(LoopThrottle):
    """A throttle that remembers what it was charged with."""

    def __init__(self) -> None:
        super().__init__("test")
        self.seconds = 0.0

    def charge(self, seconds: float, now: float | None = None) -> bool:
        self.seconds += seconds
        return False


async def test_a_caller_pays_for_the_later_work_on_many_values():
    def body(junk: bytes) -> bytes:
        return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"a":[%b]}}}' % junk

    many, few = _Charged(), _Charged()
    await parse_body(body(b"[]," * 40_000 + b"1"), DEFAULT_LIMITS, many)
    parsed = many.seconds
    await parse_body(body(b'"%b"' % (b"x" * 120_000)), DEFAULT_LIMITS, few)

    assert parsed > 80_000 * 4e-7  # the control, the same number of bytes in one text, costs less
    assert few.seconds < parsed


def test_a_template_of_open_braces_is_split_in_linear_time():
    calls = count_calls(lambda: offer._literal_parts("{" * 60_000))
    parts = offer._literal_parts("a{b}c{d}{e")

    def slow(length: int) -> float:
        return least_cpu_seconds(lambda: re.split(r"\{[^}]*\}", "{" * length))

    assert (calls < 10, parts) == (True, ["a", "c", "{e"])
    assert slow(8000) > 8 * slow(2000)  # the control: what it was before


@pytest.mark.slow
async def test_a_servers_costly_lists_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    servers = {"costly": {"command": sys.executable, "args": [str(SERVER)]}}
    async with (
        running_gateway(tmp_path, servers=servers) as running,
        Client(running.url, running.token()) as client,
    ):
        refused = [error_of(await client.post(method)) for method in ("resources/list", "prompts/list")]
        templates = read_answer(await client.post("resources/templates/list"))["result"]
        kept = [one.handler._offer._templates for one in running.gateway.app.sessions if one.handler._offer]
        monkeypatch.setattr(offer, "_MAX_ITEMS", 10**9)
        monkeypatch.setattr(offer, "MAX_LIST_VALUES", 10**9)
        control = [read_answer(await client.post(method)) for method in ("resources/list", "prompts/list")]

    assert ["too long" in error for error in refused] == [True, True]
    assert (templates["resourceTemplates"], kept) == ([], [[]])  # too long for a URI, so it is left out
    assert ["result" in answer for answer in control] == [True, True]
