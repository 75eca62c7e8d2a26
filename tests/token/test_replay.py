import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.token import Claims, ReplayCache
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
def test_token_is_accepted_once_until_no_verifier_would_accept_it() -> None:
    replays = ReplayCache()

    replays.check(CLAIMS, NOW)

    for later in (0, 1, 60, 90):
        with pytest.raises(HoldfastError, match="was used before") as caught:
            replays.check(CLAIMS, NOW + later)
        assert caught.value.code == codes.TOKEN_REPLAYED


def test_same_id_from_another_issuer_is_accepted() -> None:
    replays = ReplayCache()

    for claims in (CLAIMS, replace(CLAIMS, token_id="B" * 22), replace(CLAIMS, issuer="another")):
        replays.check(claims, NOW)

    assert len(replays) == 3


def test_expired_tokens_are_forgotten() -> None:
    replays = ReplayCache()
    for number in range(1000):
        replays.check(replace(CLAIMS, token_id=f"{number:022}", expires_at=NOW + number), NOW)

    replays.check(replace(CLAIMS, expires_at=NOW + 2000), NOW + 1059)

    assert len(replays) == 1


def test_full_cache_refuses_new_tokens_and_forgets_no_valid_one() -> None:
    replays = ReplayCache(capacity=2)
    for letter in "AB":
        replays.check(replace(CLAIMS, token_id=letter * 22), NOW)

    with pytest.raises(HoldfastError) as caught:
        replays.check(replace(CLAIMS, token_id="C" * 22), NOW)

    assert (caught.value.code, caught.value.code.retryable) == (codes.BUSY, True)
    with pytest.raises(HoldfastError, match="was used before"):
        replays.check(replace(CLAIMS, token_id="A" * 22), NOW)


def test_clock_set_back_does_not_revive_a_used_token() -> None:
    replays = ReplayCache()
    replays.check(CLAIMS, NOW)
    replays.check(replace(CLAIMS, token_id="B" * 22, expires_at=NOW + 3660), NOW + 3600)

    with pytest.raises(HoldfastError, match="no longer knows"):
        replays.check(CLAIMS, NOW + 10)


def test_only_one_of_many_threads_with_the_same_token_succeeds() -> None:
    replays, passed, start = ReplayCache(), list[int](), threading.Barrier(16)

    def use(number: int) -> None:
        start.wait()
        try:
            replays.check(CLAIMS, NOW)
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
def test_no_token_is_accepted_twice_in_any_order_of_tokens_and_times(uses: list[tuple[int, int]]) -> None:
    replays, passed = ReplayCache(), list[int]()

    for token, second in uses:
        try:
            replays.check(replace(CLAIMS, token_id=f"{token:022}", expires_at=NOW + 10 * token), NOW + second)
        except HoldfastError:
            continue
        passed.append(token)

    assert len(passed) == len(set(passed))
