"""What is kept about servers that were approved."""

import pytest

from holdfast.model.server import Source
from holdfast.resolve.server_entry import ServerEntry
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

ENTRY = ServerEntry(name="s", source=Source.PROJECT, origin="/work/.mcp.json", value={"command": "x"})


async def test_an_entry_that_is_too_large_to_be_kept_is_not_compared_with_the_one_before_it(
    make_host: HostFactory,
):
    async with make_host({}) as host:
        await host.approvals.approve_server(ENTRY, by="ann", shown="small")
        kept = await host.approvals.shown_entry(ENTRY)
        await host.approvals.approve_server(ENTRY, by="ann", shown="x" * 100_000)
        last = await host.approvals.shown_entry(ENTRY)

    assert (kept, last) == (("small", ENTRY.digest), None)
