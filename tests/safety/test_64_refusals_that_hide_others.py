"""Attack 64: refused requests with ever new texts, so that the audit does not say who else was refused, and fills the disk."""

import asyncio
from pathlib import Path

import httpx
import pytest

from holdfast.gateway import refusal_audit
from tests.gateway.running import RunningGateway, running_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-08")]

FLOOD = 70
WRONG_TOKEN = f"hft_{'a' * 12}_{'A' * 43}"


async def refusals(folder: Path, flood: int) -> tuple[list[str], int]:
    """Flood the audit without a token, and try a token and the session of another. Return who was refused, and the number of records."""
    folder.mkdir()
    async with running_gateway(folder) as running:
        token = running.token("reader")
        limits = httpx.Limits(max_connections=16)
        async with httpx.AsyncClient(trust_env=False, timeout=60, limits=limits) as http:
            hosts = ({"Host": f"host{number}.example"} for number in range(flood))
            await asyncio.gather(*(http.post(running.url, headers=headers) for headers in hosts))
            await http.post(running.url, headers={"Authorization": f"Bearer {WRONG_TOKEN}"})
            foreign = {"Authorization": f"Bearer {token}", "Mcp-Session-Id": "0" * 32}
            await http.delete(running.url, headers=foreign)
        records = await _last_refusals(running)
    token_id = token.split("_")[1]
    senders = {f"token {token_id}": "the reader", "address 127.0.0.1): unknown token": "the one who guesses"}
    found = [
        name for text, name in senders.items() if any(f"MCP client ({text}" in record for record in records)
    ]
    return found, len(records)


async def _last_refusals(running: RunningGateway) -> list[str]:
    """The records, once the last refusal is among them."""
    records: list[str] = []
    while "UNKNOWN_MCP_SESSION" not in "".join(records):
        await asyncio.sleep(0.01)
        records = await running.denied()
    return records


async def test_a_flood_of_refusals_hides_no_other_sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found, number = await refusals(tmp_path / "protected", FLOOD)
    monkeypatch.setattr(refusal_audit, "_MAX_KEYS", 0)
    monkeypatch.setattr(refusal_audit, "_MAX_KEYS_WITH_TOKEN", 0)
    control, _ = await refusals(tmp_path / "control", 1)

    assert found == ["the reader", "the one who guesses"]
    assert number < FLOOD // 2
    assert control == []
