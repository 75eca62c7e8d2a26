"""FastMCP's client gets the same results from the toolkit, with `envelope="meta"`, as from FastMCP."""

import sys
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport

from benchmarks import model_tokens
from benchmarks.servers.typical_tools import CALLS
from tests.toolkit.server_process import ROOT

pytestmark = pytest.mark.anyio


@pytest.mark.slow
@pytest.mark.promise("KIT-21", "KIT-22")
async def test_typical_tools_give_fastmcps_client_the_same_results():
    fastmcp: FastMCP[Any] = FastMCP("typical")
    for function, _ in CALLS:
        fastmcp.tool(function)
    ours = StdioTransport(sys.executable, ["-m", "tests.peers.typical_server"], cwd=str(ROOT))

    assert await results_of(Client(ours)) == await results_of(Client(fastmcp))


async def results_of(client: "Client[Any]") -> list[Any]:
    async with client:
        found: list[Any] = []
        for function, arguments in CALLS:
            result = await client.call_tool(function.__name__, arguments)
            blocks = [block.model_dump(exclude_none=True) for block in result.content]
            found.append(
                (function.__name__, blocks, result.structured_content, str(result.data), result.is_error)
            )
    return found


@pytest.mark.promise("KIT-22")
def test_tokens_are_no_more_than_fastmcps_and_as_documented():
    rows = {row.name.removeprefix("toolkit.tokens."): row for row in model_tokens.results()}
    page = (ROOT / "docs" / "tool-results.md").read_text(encoding="utf-8")

    for name in ("answers", "manifest", "tools_list"):
        row = rows[name]
        assert row.goal == "<= 1.1"
        assert row.met
        assert f"| {row.ours:,.0f} ({row.ratio:.2f}×) | {row.peer:,.0f} |" in page
    for name in ("answers", "tools_list"):
        with_envelope = rows[f"{name}_with_envelope"]
        assert f"| {with_envelope.ours:,.0f} ({with_envelope.ratio:.2f}×) | {rows[name].ours:,.0f} (" in page
    assert rows["answers_with_envelope"].ratio > 1.3  # what the other envelope costs
