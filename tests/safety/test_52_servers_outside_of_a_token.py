"""Attack 52: a client whose token is for some servers asks which others there are."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.gateway import offer, request_handler
from holdfast.gateway.status import has_missing, status_result
from holdfast.model.allowlist import ALLOW_ALL, Allowlist
from holdfast.session.session import Session
from tests.gateway.running import Client, read_answer, running_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.promise("GW-06")]
SERVERS: dict[str, Any] = {name: {"command": "no-such-program"} for name in ("notes", "merger-plans")}


async def what_the_client_is_told(folder: Path, servers: frozenset[str]) -> tuple[bool, str]:
    """Whether the tool that says what is missing is listed, and what it says."""
    async with (
        running_gateway(folder, servers=SERVERS) as running,
        Client(running.url, running.token(servers=servers)) as client,
    ):
        listed = read_answer(await client.post("tools/list"))["result"]["tools"]
        status = await client.post("tools/call", {"name": "holdfast__status", "arguments": {}})
        text = read_answer(status)["result"]["content"][0]["text"]
    return "holdfast__status" in [tool["name"] for tool in listed], text


async def test_a_client_is_told_of_no_server_outside_of_its_token(tmp_path: Path):
    is_listed, text = await what_the_client_is_told(tmp_path, frozenset({"notes"}))

    assert (is_listed, "notes: not offered" in text, "merger" in text) == (True, True, False)


async def test_nothing_is_missing_if_only_other_servers_are(tmp_path: Path):
    is_listed, text = await what_the_client_is_told(tmp_path, frozenset({"none"}))

    assert (is_listed, "No server was refused" in text) == (False, True)


async def test_control_without_the_protection_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def has_any_missing(session: Session, allowed: Allowlist) -> bool:
        return has_missing(session, ALLOW_ALL)

    def whole_result(session: Session, allowed: Allowlist) -> dict[str, object]:
        return status_result(session, ALLOW_ALL)

    monkeypatch.setattr(offer, "has_missing", has_any_missing)
    monkeypatch.setattr(request_handler, "status_result", whole_result)
    is_listed, text = await what_the_client_is_told(tmp_path, frozenset({"none"}))

    assert (is_listed, "merger-plans: not offered" in text) == (True, True)
