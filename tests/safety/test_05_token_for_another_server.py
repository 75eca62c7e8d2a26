"""Attack 5: a server sends a token that it received to another server, to act as the caller."""

import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.connect.http.login_store import login_file
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.token import Signer, Verifier, audience_of
from tests.connect.conftest import HostFactory, make_host
from tests.safety.naive_verifier import verify_naively
from tests.token.tokens import CONTEXT, NOW
from tests.toolkit.clients import MODERN_META, mcp_headers
from tests.toolkit.contexts import ANN
from tests.toolkit.server_process import run_http_server

__all__ = ["make_host"]
BANK, EVIL = "https://bank.example/mcp", "https://evil.example/mcp"


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "keys", clock=lambda: NOW)


@pytest.mark.promise("CTX-08")
@pytest.mark.parametrize(
    "url",
    [
        EVIL,
        "https://bank.example.evil.example/mcp",
        "https://bank.example@evil.example/mcp",
        "https://bank.example/other",
        "http://bank.example/mcp",
        "https://bank.example:8443/mcp",
        "https://evil.example/?https://bank.example/mcp",
        "https://bank.example/mcp?tenant=evil",
    ],
)
def test_token_for_one_server_is_refused_by_another(signer: Signer, url: str) -> None:
    token = signer.sign(CONTEXT, audience_of(url))

    with pytest.raises(HoldfastError) as caught:
        Verifier(signer.jwks()).verify(token, BANK, now=NOW)

    assert (caught.value.code, caught.value.details) == (codes.BAD_TOKEN, {"reason": "audience"})


def test_server_with_another_ones_name_gets_no_token_for_it(signer: Signer) -> None:
    """Names come from configs; the audience is the address that the token is sent to."""
    config = {"bank": EVIL}
    token = signer.sign(CONTEXT, audience_of(config["bank"]))

    with pytest.raises(HoldfastError, match="for another server"):
        Verifier(signer.jwks()).verify(token, BANK, now=NOW)


def test_control_without_the_check_the_other_server_accepts_it(signer: Signer) -> None:
    token = signer.sign(CONTEXT, audience_of(EVIL))

    accepted: Any = verify_naively(token, dict(signer.jwks()))

    assert accepted["sub"] == CONTEXT.session_id


def test_control_the_right_server_accepts_it(signer: Signer) -> None:
    token = signer.sign(CONTEXT, audience_of(BANK))

    assert Verifier(signer.jwks()).verify(token, BANK, now=NOW).context == CONTEXT


# Servers at one address that are told apart by the query

TENANT_A, TENANT_B = f"{BANK}?tenant=a", f"{BANK}?tenant=b"


@pytest.mark.promise("CTX-08")
@pytest.mark.parametrize(
    "url", [TENANT_B, BANK, f"{BANK}?tenant=a&tenant=b", f"{BANK}?tenant=A", f"{BANK}?tenant%3Da"]
)
def test_token_for_one_tenant_is_refused_by_another(signer: Signer, url: str) -> None:
    token = signer.sign(CONTEXT, audience_of(TENANT_A))

    with pytest.raises(HoldfastError, match=r"for another server, not for 'https://bank\.example/mcp'"):
        Verifier(signer.jwks()).verify(token, audience_of(url), now=NOW)


@pytest.mark.parametrize("url", [TENANT_A, f"{BANK}?%74enant=%61", f"{BANK}/?tenant=a#top"])
def test_other_spellings_of_a_query_are_the_same_tenant(signer: Signer, url: str) -> None:
    token = signer.sign(CONTEXT, audience_of(TENANT_A))

    assert Verifier(signer.jwks()).verify(token, audience_of(url), now=NOW).context == CONTEXT


@pytest.mark.anyio
@pytest.mark.promise("CTX-08")
async def test_toolkit_server_compares_the_audience_with_the_query_of_the_request(
    make_host: HostFactory, tmp_path: Path
) -> None:
    signer = Signer(tmp_path / "data" / "keys")
    signer.jwks()
    with run_http_server("tests.toolkit.notes_server", "--keys", str(signer.public_file)) as url:
        statuses = {
            (audience, query): _list_tools(url + query, signer.sign(ANN, audience_of(url + audience)))
            for audience in ("", "?tenant=a")
            for query in ("", "?tenant=a", "?tenant=b")
        }
        entry = {"type": "http", "url": f"{url}?tenant=a%20b%2bc&ü=%FC&flag"}
        async with make_host({"notes": entry}) as host, host.session(cwd=tmp_path) as session:
            of_the_host = (await session.call("notes.add_note", {"title": "one"})).ok

    assert statuses == {
        ("", ""): 200,
        ("", "?tenant=a"): 401,
        ("", "?tenant=b"): 401,
        ("?tenant=a", ""): 401,
        ("?tenant=a", "?tenant=a"): 200,
        ("?tenant=a", "?tenant=b"): 401,
    }
    assert of_the_host


def test_tenants_do_not_share_a_login(tmp_path: Path) -> None:
    files = {login_file(tmp_path, url) for url in (BANK, TENANT_A, TENANT_B)}

    assert len(files) == 3


def test_control_an_audience_without_the_query_serves_every_tenant(signer: Signer) -> None:
    def without_query(url: str) -> str:
        return audience_of(url.partition("?")[0])

    token = signer.sign(CONTEXT, without_query(TENANT_A))

    assert Verifier(signer.jwks()).verify(token, without_query(TENANT_B), now=NOW).context == CONTEXT


def _list_tools(url: str, token: str) -> int:
    parts = urlsplit(url)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": MODERN_META}}
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    with closing(connection):
        headers = {"Content-Type": "application/json", "Holdfast-Context": token, **mcp_headers(message)}
        connection.request("POST", f"{parts.path}?{parts.query}", json.dumps(message), headers)
        return connection.getresponse().status
