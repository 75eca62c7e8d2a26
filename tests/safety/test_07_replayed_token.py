"""Attack 7: an intercepted token is sent again, or with other arguments, to a tool that changes something."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.token import ReplayCache, Signer, Verifier
from tests.token.tokens import BODY, CONTEXT, FILES, NOW

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
