import pytest

from holdfast.gateway.rate_limit import RateLimit
from holdfast.model.errors import HoldfastError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def count_allowed(limit: RateLimit, owner: str, tries: int) -> int:
    allowed = 0
    for _ in range(tries):
        try:
            limit.take(owner)
        except HoldfastError:
            continue
        allowed += 1
    return allowed


@pytest.mark.promise("GW-08")
def test_one_credential_that_floods_uses_up_only_its_own_rate():
    clock = Clock()
    limit = RateLimit("requests", 10, 1.0, clock=clock)

    assert count_allowed(limit, "flooder", 1000) == 10
    with pytest.raises(HoldfastError, match="its limit of 10 requests in 1 s"):
        limit.take("flooder")
    assert count_allowed(limit, "neighbour", 10) == 10


def test_the_rate_is_available_again_as_time_passes():
    clock = Clock()
    limit = RateLimit("requests", 10, 1.0, clock=clock)
    count_allowed(limit, "client", 1000)

    clock.now += 0.35
    assert count_allowed(limit, "client", 1000) == 3
    clock.now += 1000
    assert count_allowed(limit, "client", 1000) == 10


def test_many_owners_do_not_fill_the_memory():
    limit = RateLimit("requests", 10, 1.0)

    for number in range(5000):
        limit.take(str(number))

    assert len(limit._full_at) == 4096  # pyright: ignore[reportPrivateUsage]
