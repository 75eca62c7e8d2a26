"""Name look-ups: one per name, a few per owner, and a name server that never answers delays no other owner."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from holdfast.model.name_resolver import NameResolver

pytestmark = pytest.mark.anyio


class SlowNames:
    """Replaces the system's resolver: names that begin with `slow` are not answered before `release` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.release = threading.Event()
        real = socket.getaddrinfo

        def look_up(host: str, *rest: Any, **more: Any) -> Any:
            self.asked.append(host)
            if host.startswith("slow"):
                self.release.wait(60)
            return real("192.0.2.1", *rest, **more)

        monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> SlowNames:
    return SlowNames(monkeypatch)


async def wait_until_asked(names: SlowNames, count: int) -> None:
    async with asyncio.timeout(30):
        while len(names.asked) < count:
            await asyncio.sleep(0.001)


async def test_callers_of_one_name_share_a_look_up(names: SlowNames):
    resolver = NameResolver()
    callers = [asyncio.create_task(resolver.look_up("slow.example", owner="a")) for _ in range(50)]
    await wait_until_asked(names, 1)
    names.release.set()

    assert await asyncio.gather(*callers) == [["192.0.2.1"]] * 50
    assert names.asked == ["slow.example"]


async def test_answer_is_not_kept_for_the_next_look_up(names: SlowNames):
    resolver = NameResolver()
    for _ in range(2):
        await resolver.look_up("a.example", owner="a")

    assert names.asked == ["a.example", "a.example"]


async def test_look_up_without_an_answer_fails_in_time_and_keeps_one_thread(names: SlowNames):
    resolver = NameResolver(seconds=0.01)
    try:
        for _ in range(3):
            with pytest.raises(OSError, match="its name server did not answer within"):
                await resolver.look_up("slow.example", owner="a")
        assert names.asked == ["slow.example"]
    finally:
        names.release.set()


async def test_abandoned_look_ups_do_not_delay_the_next_one_of_their_owner(names: SlowNames):
    resolver = NameResolver()
    callers = [asyncio.create_task(resolver.look_up(f"slow{n}.example", owner="a")) for n in range(12)]
    await wait_until_asked(names, 4)
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    names.release.set()

    assert await resolver.look_up("a.example", owner="a") == ["192.0.2.1"]
    assert (len(names.asked), names.asked[-1]) == (5, "a.example")


async def test_caller_that_leaves_does_not_take_the_answer_from_another(names: SlowNames):
    resolver = NameResolver()
    first = asyncio.create_task(resolver.look_up("slow.example", owner="a"))
    await wait_until_asked(names, 1)
    second = asyncio.create_task(resolver.look_up("slow.example", owner="a"))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    names.release.set()

    assert await second == ["192.0.2.1"]


async def test_name_that_cannot_be_encoded_is_an_os_error():
    with pytest.raises(OSError, match="not a valid host name"):
        await NameResolver().look_up("a" * 64 + ".example", owner="a")
