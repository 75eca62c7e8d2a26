"""Attack 7: an intercepted token is sent again, or with other arguments, to a tool that changes something."""

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.token import Claims, ReplayCache, Signer, Verifier, audience_of
from tests.token.tokens import BODY, CONTEXT, FILES, NOW
from tests.toolkit.clients import MODERN_META, PlainHttpTransport, mcp_headers
from tests.toolkit.server_process import run_http_server

COPIES = 20
PAY_MORE = BODY.replace(b'"euros":5', b'"euros":5000')


@dataclass
class Bank:
    """A server with one tool that changes something. If `careful`, it does the toolkit's checks."""

    verifier: Verifier
    careful: bool
    seen: ReplayCache = field(default_factory=ReplayCache)
    paid: list[bytes] = field(default_factory=list[bytes])

    def pay(self, token: str, body: bytes, now: float = NOW) -> None:
        claims = self.verifier.verify(token, FILES, request=body if self.careful else None, now=now)
        if self.careful:
            self.seen.check(claims, now)
        self.paid.append(body)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "keys", clock=lambda: NOW)


@pytest.fixture
def bank(signer: Signer) -> Callable[[bool], Bank]:
    return lambda careful: Bank(Verifier(signer.jwks()), careful)


@pytest.mark.promise("CTX-08")
@pytest.mark.parametrize("seconds", [0, 30, 64])
def test_used_token_is_refused(signer: Signer, bank: Callable[[bool], Bank], seconds: int) -> None:
    careful = bank(True)
    overheard = signer.sign(CONTEXT, FILES, BODY)
    careful.pay(overheard, BODY)

    with pytest.raises(HoldfastError) as caught:
        careful.pay(overheard, BODY, NOW + seconds)

    assert (caught.value.code, careful.paid) == (codes.TOKEN_REPLAYED, [BODY])


@pytest.mark.promise("CTX-08")
def test_token_with_other_arguments_is_refused_even_before_its_first_use(
    signer: Signer, bank: Callable[[bool], Bank]
) -> None:
    careful = bank(True)
    overheard = signer.sign(CONTEXT, FILES, BODY)

    with pytest.raises(HoldfastError) as caught:
        careful.pay(overheard, PAY_MORE)

    assert (caught.value.code, caught.value.details) == (codes.BAD_TOKEN, {"reason": "request"})
    careful.pay(overheard, BODY)
    assert careful.paid == [BODY]


def test_token_without_a_request_digest_is_refused(signer: Signer, bank: Callable[[bool], Bank]) -> None:
    careful = bank(True)

    with pytest.raises(HoldfastError, match="for another request, or for none"):
        careful.pay(signer.sign(CONTEXT, FILES), PAY_MORE)

    assert careful.paid == []


def test_host_can_repeat_a_request_with_a_new_token(signer: Signer, bank: Callable[[bool], Bank]) -> None:
    careful = bank(True)

    for _ in range(3):
        careful.pay(signer.sign(CONTEXT, FILES, BODY), BODY)

    assert careful.paid == [BODY] * 3


def test_control_server_that_checks_only_the_signature_pays_again(
    signer: Signer, bank: Callable[[bool], Bank]
) -> None:
    careless = bank(False)
    overheard = signer.sign(CONTEXT, FILES, BODY)

    for body in (BODY, BODY, PAY_MORE):
        careless.pay(overheard, body)

    assert careless.paid == [BODY, BODY, PAY_MORE]


def test_token_that_was_used_before_a_restart_is_refused(
    signer: Signer, bank: Callable[[bool], Bank]
) -> None:
    overheard = signer.sign(CONTEXT, FILES, BODY)
    after, control = bank(True), bank(True)
    after.seen = ReplayCache(since=NOW + 1.5)

    control.pay(overheard, BODY, NOW + 2)
    with pytest.raises(HoldfastError) as caught:
        after.pay(overheard, BODY, NOW + 2)

    assert (caught.value.code, after.paid, control.paid) == (codes.TOKEN_REPLAYED, [], [BODY])


# At a real server, by many at once


@pytest.mark.promise("CTX-08")
def test_of_many_copies_of_a_request_one_is_accepted(tmp_path: Path) -> None:
    signer = Signer(tmp_path / "keys")
    signer.jwks()
    with run_http_server("tests.toolkit.notes_server", "--keys", str(signer.public_file)) as url:
        changing, reading = (_statuses_of_copies(url, signer, tool) for tool in ("add_note", "picture"))

    assert (changing, reading) == (Counter({409: COPIES - 1, 200: 1}), Counter({200: COPIES}))  # a control


def test_server_refuses_what_was_signed_before_its_start(tmp_path: Path) -> None:
    signer = Signer(tmp_path / "keys")
    earlier = Signer(tmp_path / "keys", clock=lambda: time.time() - 30)
    signer.jwks()
    with run_http_server("tests.toolkit.notes_server", "--keys", str(signer.public_file)) as url:
        changing, reading = (_statuses_of_copies(url, earlier, tool) for tool in ("add_note", "picture"))
        new = _statuses_of_copies(url, signer, "add_note")

    assert (changing, reading, new[200]) == (Counter({409: COPIES}), Counter({200: COPIES}), 1)


def _statuses_of_copies(url: str, signer: Signer, tool: str) -> Counter[int]:
    arguments = {"title": "x"} if tool == "add_note" else {}
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": MODERN_META},
    }
    body = json.dumps(message).encode()
    headers = {"Holdfast-Context": signer.sign(CONTEXT, audience_of(url), body), **mcp_headers(message)}

    def post(_: int) -> int:
        with closing(PlainHttpTransport(url)) as transport:
            transport.post(body, headers)
            return transport.status

    with ThreadPoolExecutor(16) as threads:
        return Counter(threads.map(post, range(COPIES)))


def test_one_session_cannot_fill_the_memory_for_used_tokens() -> None:
    replays = ReplayCache(10, per_session=5)
    mine = [_use(replays, number, "sess_aaaaaaaaaaaaaaaa") for number in range(8)]
    other = _use(replays, 100, "sess_bbbbbbbbbbbbbbbb")

    assert (mine, other) == ([""] * 5 + ["BUSY"] * 3, "")


def test_control_without_shares_the_others_are_locked_out() -> None:
    replays = ReplayCache(10, per_session=10)
    for number in range(10):
        _use(replays, number, "sess_aaaaaaaaaaaaaaaa")

    assert _use(replays, 100, "sess_bbbbbbbbbbbbbbbb") == "BUSY"


def _use(replays: ReplayCache, number: int, session_id: str) -> str:
    """The code of the error, if the token is refused."""
    claims = Claims(
        context=replace(CONTEXT, session_id=SessionId(session_id)),
        issuer="holdfast",
        audience=FILES,
        issued_at=NOW,
        expires_at=NOW + 60,
        token_id=f"{number:022}",
    )
    try:
        replays.check(claims, NOW)
    except HoldfastError as error:
        return error.code.name
    return ""
