"""Clients with the tokens of an OAuth issuer."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI
from starlette.applications import Starlette

from holdfast.toolkit.http_server import bind, serve_app
from tests.gateway.running import Client, running_gateway, try_to_open

pytestmark = pytest.mark.anyio

AUDIENCE = "https://mcp.example/mcp"
KEY = Ed25519PrivateKey.generate()


@asynccontextmanager
async def running_issuer() -> AsyncIterator[str]:
    """An authorization server: its metadata and its keys."""
    sock = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    public = json.loads(jwt.get_algorithm_by_name("EdDSA").to_jwk(KEY.public_key()))
    pages = {
        "/.well-known/oauth-authorization-server": {"issuer": url, "jwks_uri": f"{url}/keys"},
        "/keys": {"keys": [{**public, "kid": "one"}]},
    }

    async def app(scope: Any, receive: Any, send: Any) -> None:
        page = pages.get(scope["path"])
        status = 404 if page is None else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(page).encode()})

    async with serve_app(app, sock):
        yield url


def sign(issuer: str, **changes: Any) -> str:
    claims = {
        "iss": issuer,
        "aud": AUDIENCE,
        "sub": "ann",
        "client_id": "ide",
        "exp": time.time() + 60,
        **changes,
    }
    return jwt.encode(claims, KEY, "EdDSA", headers={"kid": "one"})


@pytest.mark.slow
@pytest.mark.promise("GW-07")
async def test_tokens_of_the_issuer_for_this_gateway_are_accepted_and_others_are_not(tmp_path: Path):
    async with running_issuer() as issuer:
        environ = {"HOLDFAST_GATEWAY_ISSUER": issuer, "HOLDFAST_GATEWAY_AUDIENCE": AUDIENCE}
        async with running_gateway(tmp_path, environ) as running, httpx.AsyncClient(trust_env=False) as http:
            async with Client(running.url, sign(issuer)) as client:
                who = await client.call("who")
            async with Client(running.url, running.token()) as client:
                own = await client.call("who")
            refused = [
                await try_to_open(running.url, sign(issuer, **changes))
                for changes in (
                    {"aud": "https://other.example"},
                    {"exp": 1.0},
                    {"iss": "https://evil.example"},
                )
            ]
            base = running.url.removesuffix("/mcp")
            metadata = (await http.get(f"{base}/.well-known/oauth-protected-resource/mcp")).json()
            evil = await http.get(
                f"{base}/.well-known/oauth-protected-resource", headers={"Host": "evil.example"}
            )

    assert (who["user"], own["user"], evil.status_code) == ("ann", "", 403)
    assert {answer.status_code for answer in refused} == {401}
    assert refused[0].headers["www-authenticate"] == (
        'Bearer realm="holdfast", resource_metadata="https://mcp.example/.well-known/oauth-protected-resource/mcp"'
    )
    assert (metadata["resource"], metadata["authorization_servers"]) == (AUDIENCE, [issuer])


@pytest.mark.parametrize("framework", [Starlette, FastAPI])
async def test_a_mounted_gateway_serves_its_metadata_where_the_challenge_says(framework: Any, tmp_path: Path):
    audience = "https://mcp.example/agents/mcp"
    async with running_issuer() as issuer:
        environ = {"HOLDFAST_GATEWAY_ISSUER": issuer, "HOLDFAST_GATEWAY_AUDIENCE": audience}
        application, sock = framework(), bind("127.0.0.1", 0)
        base = f"http://127.0.0.1:{sock.getsockname()[1]}"
        async with (
            running_gateway(tmp_path, environ) as running,
            serve_app(application, sock),
            httpx.AsyncClient(trust_env=False) as http,
        ):
            application.mount("/agents", running.gateway.asgi)
            accepted = await try_to_open(f"{base}/agents/mcp", sign(issuer, aud=audience))
            refused = await try_to_open(f"{base}/agents/mcp", None)
            challenge = refused.headers["www-authenticate"]
            public = challenge.partition('resource_metadata="')[2].rstrip('"')
            metadata = await http.get(public.replace("https://mcp.example", base))

    assert (accepted.status_code, refused.status_code) == (200, 401)
    assert public == "https://mcp.example/agents/.well-known/oauth-protected-resource/mcp"
    assert metadata.json()["resource"] == audience
