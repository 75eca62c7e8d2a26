"""Attack 64: a server that never starts, in the sessions of one client, keeps a change of the configuration from the others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

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
