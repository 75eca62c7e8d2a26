"""Attack 64: a server that never starts, in the sessions of one client, keeps a change of the configuration from the others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.gateway.credential import Credential
from holdfast.gateway.credential_watch import CredentialWatch
from holdfast.host.config_watch import ConfigWatch
from tests.gateway.running import Client, running_gateway
from tests.gateway.test_config_changes import ENTRY, check_often, write_servers

__all__ = ["check_often"]

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-04")]

NEVER_STARTS = {"command": "sleep", "args": ["600"]}
SLOW = {"HOLDFAST_LINKS_CONNECT_SECONDS": "600"}


async def is_refused(client: Client) -> bool:
    return "count" not in await client.call("counter__add")


async def remove_counter(folder: Path, first: Client) -> None:
    """Replace the counter by a server that never starts, and wait until the first session has lost the counter."""
    write_servers(folder, {"other": ENTRY, "never": NEVER_STARTS})
    while not await is_refused(first):
        await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_a_server_that_never_starts_does_not_keep_a_change_from_other_sessions(tmp_path: Path):
    write_servers(tmp_path, {"counter": ENTRY, "other": ENTRY})
    async with (
        asyncio.timeout(60),
        running_gateway(tmp_path, SLOW, servers={}) as running,
        Client(running.url, running.token("attacker")) as attacker,
        Client(running.url, running.token("neighbour")) as neighbour,
    ):
        at_first = await is_refused(neighbour)
        await remove_counter(tmp_path, attacker)
        while not await is_refused(neighbour):
            await asyncio.sleep(0.01)
        # Nor does it keep the next change from its own session.
        write_servers(tmp_path, {"counter": ENTRY, "other": ENTRY})
        while await is_refused(attacker):
            await asyncio.sleep(0.01)

    assert not at_first


@pytest.mark.slow
async def test_control_if_sessions_are_changed_in_turn_the_others_keep_the_removed_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    in_turn, apply = asyncio.Lock(), ConfigWatch._apply  # pyright: ignore[reportPrivateUsage]

    async def apply_in_turn(*arguments: Any, **options: Any) -> None:
        async with in_turn:
            await apply(*arguments, **options)

    monkeypatch.setattr(ConfigWatch, "_apply", apply_in_turn)
    write_servers(tmp_path, {"counter": ENTRY, "other": ENTRY})
    async with (
        asyncio.timeout(60),
        running_gateway(tmp_path, SLOW, servers={}) as running,
        Client(running.url, running.token("attacker")) as attacker,
        Client(running.url, running.token("neighbour")) as neighbour,
    ):
        await remove_counter(tmp_path, attacker)
        still_used = [not await is_refused(neighbour) for _ in range(20)]

    assert all(still_used)


class _SlowEnds:
    """Sessions of two revoked credentials. Those of the first never end."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []

    async def end(self, credential_id: str, reason: str) -> None:
        self.began.append(credential_id)
        if credential_id == "a-slow":
            await asyncio.get_running_loop().create_future()
        self.ended.append(credential_id)


async def test_a_server_that_ends_slowly_delays_no_other_revoked_token():
    sessions, revoked = _SlowEnds(), {"a-slow", "b"}
    credentials = [Credential(id=name) for name in ("a-slow", "b", "c")]
    watch = CredentialWatch(
        lambda: [one for one in credentials if one.id not in sessions.began],
        lambda credential: "revoked" if credential.id in revoked else "",
        sessions.end,
    )
    watch.end_invalid()
    await asyncio.sleep(0)
    first = [*sessions.ended]
    revoked.add("c")  # revoked while the first one still ends
    watch.end_invalid()
    await asyncio.sleep(0)
    control = _SlowEnds()
    in_turn = asyncio.create_task(_end_in_turn(control, ["a-slow", "b", "c"]))
    await asyncio.sleep(0)

    assert (first, sessions.ended) == (["b"], ["b", "c"])
    assert control.ended == []  # one after the other, all wait for the first
    in_turn.cancel()


async def _end_in_turn(sessions: _SlowEnds, names: list[str]) -> None:
    for name in names:
        await sessions.end(name, "revoked")
