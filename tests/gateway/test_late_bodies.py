"""A token that is revoked while the body of a request is on its way opens nothing and calls nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.gateway.authentication import Authentication
from tests.gateway.running import modern_call, running_gateway

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("is_revoked", [True, False])
async def test_a_token_is_checked_again_when_the_body_has_arrived(
    is_revoked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    accepted, authenticate = asyncio.Event(), Authentication.__call__

    def note(self: Authentication, headers: Any, client_address: str) -> Any:
        credential = authenticate(self, headers, client_address)
        accepted.set()
        return credential

    monkeypatch.setattr(Authentication, "__call__", note)
    body, headers = modern_call("add")
    text = json.dumps(body).encode()
    async with running_gateway(tmp_path) as running, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        token = running.token("late")

        async def slow() -> AsyncIterator[bytes]:
            yield text[:10]
            await accepted.wait()
            if is_revoked:
                running.tokens.revoke("late")
            yield text[10:]

        more = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        answer = await http.post(running.url, content=slow(), headers={**headers, **more})
        opened = len(running.gateway.app.open_sessions())

    if is_revoked:
        assert (answer.status_code, opened) == (401, 0)
        assert "no longer valid" in answer.text
    else:
        assert (answer.status_code, opened) == (200, 1)  # control
