"""Attack 69: an impostor in place of a remote server, with a certificate that is not valid, old TLS, or none."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.connect.http.address_policy import AddressPolicy
from holdfast.connect.http.pools import Pool
from holdfast.connect.http.response import UnreachableError
from tests.connect.http.raw import RawServer, fetch, make_certificate, resolve_to, run_server, sized_response

pytestmark = pytest.mark.anyio

NAME = "there"


def server_tls(options: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options["ssl_certfile"], options["ssl_keyfile"])
    return context


@asynccontextmanager
async def serve_tls(
    folder: Path, kind: str, *, is_protected: bool = True
) -> AsyncIterator[tuple[RawServer, Pool]]:
    """A server whose TLS has this fault, and a pool that trusts its certificate unless it is the fault."""
    name = "other" if kind == "another name" else NAME
    valid_for = timedelta(hours=-1) if kind == "expired" else timedelta(days=1)
    certificate = make_certificate(folder, name, valid_for=valid_for)
    options: dict[str, Any] = {}
    if not kind.startswith("no TLS"):
        options["ssl"] = tls = server_tls(certificate)
        if kind == "only old versions":
            tls.minimum_version = tls.maximum_version = ssl.TLSVersion.TLSv1
            tls.set_ciphers("ALL:@SECLEVEL=0")
        if kind == "another protocol by ALPN":
            tls.set_alpn_protocols(["h2"])
    trusted = None if kind == "self-signed" else certificate["ssl_certfile"]
    server = RawServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match kind:
            case "no TLS, plain HTTP":
                writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            case "no TLS, garbage":
                writer.write(b"\x00" * 4096)
            case "no TLS, closes":
                writer.close()
            case "no TLS, never answers":
                await reader.read()
            case _:
                server.heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(sized_response(b"hello"))

    client_tls = ssl.create_default_context(cafile=trusted)
    if not is_protected:
        client_tls.check_hostname, client_tls.verify_mode = False, ssl.CERT_NONE
    async with run_server(talk, server, **options):
        pool = Pool(AddressPolicy(public_only=False), client_tls, look_up=resolve_to("127.0.0.1"))
        try:
            server.url = server.url.with_scheme("https")
            yield server, pool
        finally:
            await pool.close()


FAULTS = {
    "expired": "its certificate is not valid (certificate has expired)",
    "another name": "its certificate is not valid (Hostname mismatch",
    "self-signed": "its certificate is not valid (self",
    "only old versions": "",  # the error says that TLS failed, or that the server closed the connection
    "no TLS, plain HTTP": "TLS failed: it does not speak TLS at this port. If it has no TLS, its address begins",
    "no TLS, garbage": "TLS failed: ",
    "no TLS, closes": "onnection",  # reset by the server, or closed
    "no TLS, never answers": "no answer in time",
}


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1 is deprecated:DeprecationWarning")
@pytest.mark.parametrize("kind", FAULTS)
async def test_failing_tls_is_a_clear_error_and_nothing_is_sent(tmp_path: Path, kind: str):
    async with serve_tls(tmp_path, kind) as (server, pool):
        seconds = 0.3 if kind == "no TLS, never answers" else 20.0
        async with asyncio.timeout(30):
            with pytest.raises(UnreachableError) as failed:
                await fetch(pool, server.url, connect_seconds=seconds)

    assert (FAULTS[kind] in str(failed.value), str(failed.value), server.heads) == (
        True,
        str(failed.value),
        [],
    )


@pytest.mark.parametrize("kind", ["expired", "another name", "self-signed"])
async def test_control_without_the_check_an_impostor_gets_the_request(tmp_path: Path, kind: str):
    async with serve_tls(tmp_path, kind, is_protected=False) as (server, pool):
        assert await fetch(pool, server.url) == b"hello"
        assert len(server.heads) == 1


async def test_server_that_prefers_another_protocol_is_asked_for_http_1(tmp_path: Path):
    async with serve_tls(tmp_path, "another protocol by ALPN") as (server, pool):
        assert await fetch(pool, server.url) == b"hello"


async def test_control_valid_certificate_is_accepted(tmp_path: Path):
    async with serve_tls(tmp_path, "none") as (server, pool):
        assert await fetch(pool, server.url) == b"hello"
