import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.token import Claims, Seen
from tests.token.tokens import CONTEXT, FILES, NOW

CLAIMS = Claims(
    context=CONTEXT,
    issuer="holdfast",
    audience=FILES,
    issued_at=NOW,
    expires_at=NOW + 60,
    token_id="A" * 22,
)


@pytest.mark.promise("CTX-08")
def test_a_token_passes_once_as_long_as_anyone_would_accept_it() -> None:
    seen = Seen()

    seen.once(CLAIMS, NOW)

    for later in (0, 1, 60, 90):
        with pytest.raises(HoldfastError, match="was used before") as caught:
            seen.once(CLAIMS, NOW + later)
        assert caught.value.code == codes.TOKEN_REPLAYED


def test_other_tokens_and_other_issuers_pass() -> None:
    seen = Seen()

    for claims in (CLAIMS, replace(CLAIMS, token_id="B" * 22), replace(CLAIMS, issuer="another")):
        seen.once(claims, NOW)

    assert len(seen) == 3


def test_what_expired_is_forgotten() -> None:
    seen = Seen()
    for number in range(1000):
        seen.once(replace(CLAIMS, token_id=f"{number:022}", expires_at=NOW + number), NOW)

    seen.once(replace(CLAIMS, expires_at=NOW + 2000), NOW + 1059)

    assert len(seen) == 1


def test_a_full_memory_refuses_and_forgets_nothing_that_still_counts() -> None:
    seen = Seen(capacity=2)
    for letter in "AB":
        seen.once(replace(CLAIMS, token_id=letter * 22), NOW)

    with pytest.raises(HoldfastError) as caught:
        seen.once(replace(CLAIMS, token_id="C" * 22), NOW)

    assert (caught.value.code, caught.value.code.retryable) == (codes.BUSY, True)
    with pytest.raises(HoldfastError, match="was used before"):
        seen.once(replace(CLAIMS, token_id="A" * 22), NOW)


def test_a_clock_set_back_does_not_make_an_old_token_good_again() -> None:
    seen = Seen()
    seen.once(CLAIMS, NOW)
    seen.once(replace(CLAIMS, token_id="B" * 22, expires_at=NOW + 3660), NOW + 3600)

    with pytest.raises(HoldfastError, match="too old to tell"):
        seen.once(CLAIMS, NOW + 10)


def test_of_many_threads_with_one_token_one_passes() -> None:
    seen, passed, start = Seen(), list[int](), threading.Barrier(16)

    def use(number: int) -> None:
        start.wait()
        try:
            seen.once(CLAIMS, NOW)
        except HoldfastError:
            return
        passed.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(passed) == 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 400)), max_size=60))
def test_in_any_order_of_tokens_and_times_none_passes_twice(uses: list[tuple[int, int]]) -> None:
    seen, passed = Seen(), list[int]()

    for token, second in uses:
        try:
            seen.once(replace(CLAIMS, token_id=f"{token:022}", expires_at=NOW + 10 * token), NOW + second)
        except HoldfastError:
            continue
        passed.append(token)

    assert len(passed) == len(set(passed))
