"""Attack 68: the clock is set back by years, so that keys that an issuer has withdrawn look new."""

import json
from collections.abc import Callable
from contextlib import suppress

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.token.issuer_verifier import IssuerVerifier
from tests.token.test_issuer import AUDIENCE, ED, ISSUER, NOW, RSA, jwk, sign

pytestmark = pytest.mark.anyio

YEARS = 10 * 365 * 86_400


class Clocks:
    """The clock that can be set, and the one that cannot."""

    def __init__(self) -> None:
        self.wall = float(NOW)
        self.since_start = 0.0

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.since_start += seconds


async def is_accepted(clocks: Clocks, age_clock: Callable[[], float]) -> bool:
    """Whether a token of a withdrawn key is accepted a day after the clock was set back."""
    keys = [jwk(RSA, "rsa", "RS256")]

    async def fetch() -> bytes:
        return json.dumps({"keys": keys}).encode()

    verifier = IssuerVerifier(ISSUER, AUDIENCE, fetch, clock=lambda: clocks.wall, age_clock=age_clock)
    await verifier.prepare(sign(RSA, "rsa", "RS256"))
    clocks.wall -= YEARS
    keys[:] = [jwk(ED, "new", "EdDSA")]
    clocks.wait(86_400)
    token = sign(RSA, "rsa", "RS256", iat=clocks.wall, exp=clocks.wall + 60)
    await verifier.prepare(token)
    with suppress(HoldfastError):
        verifier.verify(token)
        return True
    return False


async def test_withdrawn_keys_are_not_used():
    found, control = Clocks(), Clocks()

    assert await is_accepted(found, lambda: found.since_start) is False
    assert await is_accepted(control, lambda: control.wall) is True
