"""Requests through a real HTTP proxy on loopback, and requests that must not use it."""

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from holdfast.connect.http.address_policy import AddressPolicy
from holdfast.connect.http.pools import Pool
from holdfast.connect.http.proxies import Proxies
from holdfast.connect.http.response import BrokenResponseError, UnreachableError
from holdfast.host.open_options import OpenOptions
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.trust import Trust
from tests.connect.conftest import HostFactory, open_for_block
from tests.connect.http.raw import (
    FakeProxy,
    fetch,
    make_certificate,
    resolve_to,
    serve_answers,
    serve_proxy,
    sized_response,
)
from tests.connect.http.test_address_policy import NAME, FakeResolver, entry_by_name, names
from tests.connect.web import HEADER, ScriptedServer, connect_options, http_entry, open_session, serve

pytestmark = pytest.mark.anyio

assert names  # a fixture

ANYWHERE = AddressPolicy(public_only=False)
TOKEN = "eyJ.token.sig"


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run each test on both event loops that a host may use."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@asynccontextmanager
async def open_pool(
    proxy: str, *, tls: ssl.SSLContext | None = None, policy: AddressPolicy = ANYWHERE
) -> AsyncIterator[Pool]:
    proxies = Proxies({"http": proxy, "https": proxy})
    pool = Pool(policy, tls or ssl.create_default_context(), proxies=proxies, look_up=resolve_to("127.0.0.1"))
    try:
        yield pool
    finally:
        await pool.close()


def proxy_with_login(proxy: FakeProxy) -> str:
    return proxy.url.replace("http://", "http://user:hunter2@")


# Choosing a proxy

PROXY = "http://proxy.example.com:3128"

CHOSEN: dict[str, tuple[dict[str, str], str, str | None]] = {
    "none": ({}, "https://there/", None),
    "https": ({"https": PROXY}, "https://there/", PROXY),
    "http": ({"http": PROXY}, "http://there/", PROXY),
    "another scheme": ({"http": PROXY}, "https://there/", None),
    "all": ({"all": PROXY}, "https://there/", PROXY),
    "own before all": ({"all": "http://other/", "https": PROXY}, "https://there/", PROXY),
    "without a scheme": ({"https": "proxy.example.com:3128"}, "https://there/", PROXY),
    "exempt": ({"https": PROXY, "no": "other,there"}, "https://there/", None),
    "exempt by domain": ({"https": PROXY, "no": ".example.com"}, "https://a.example.com/", None),
    "exempt by port": ({"https": PROXY, "no": "there:8443"}, "https://there:8443/", None),
    "exempt by another port": ({"https": PROXY, "no": "there:8443"}, "https://there/", PROXY),
    "exempt by network": ({"https": PROXY, "no": "10.0.0.0/8"}, "https://10.1.2.3/", None),
    "a longer name": ({"https": PROXY, "no": "here"}, "https://there/", PROXY),
    "an empty entry": ({"https": PROXY, "no": ",."}, "https://there/", PROXY),
    "everything exempt": ({"https": PROXY, "no": "*"}, "https://there/", None),
    "loopback": ({"http": PROXY}, "http://127.0.0.1:8080/", None),
    "loopback, version 6": ({"http": PROXY}, "http://[::1]:8080/", None),
    "loopback by name": ({"http": PROXY}, "http://localhost:8080/", None),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_proxy_is_chosen_by_scheme_and_host(case: str):
    variables, url, chosen = CHOSEN[case]

    found = Proxies(variables).find(URL(url))

    assert found == (URL(chosen) if chosen else None)


@pytest.mark.parametrize("proxy", ["socks5://proxy:1080", "ftp://proxy", "http://"])
def test_proxy_of_another_kind_is_an_error_and_not_a_direct_connection(proxy: str):
    with pytest.raises(HoldfastError, match="only http:// and https:// proxies are supported"):
        Proxies({"all": proxy}).find(URL("https://there/"))


# Requests


async def test_http_request_goes_to_the_proxy_in_absolute_form():
    async with (
        serve_proxy() as proxy,
        serve_answers(sized_response(b"one")) as server,
        open_pool(proxy.url) as pool,
    ):
        proxy.names["there"] = ("127.0.0.1", server.port)
        answer = await fetch(pool, server.url)

    assert (answer, proxy.lines) == (b"one", [b"GET %b HTTP/1.1" % str(server.url).encode()])


def tls_contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The TLS contexts of a server named `there` and of a client that trusts it."""
    files = make_certificate(folder, "there")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(files["ssl_certfile"], files["ssl_keyfile"])
    return server, ssl.create_default_context(cafile=files["ssl_certfile"])


@pytest.mark.parametrize(
    "established",
    [
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ],
)
async def test_tunnel_is_used_after_any_successful_answer_from_the_proxy(tmp_path: Path, established: bytes):
    ours, tls = tls_contexts(tmp_path)
    async with (
        serve_proxy() as proxy,
        serve_answers(sized_response(b"one"), sized_response(b"two"), ssl=ours) as server,
        open_pool(proxy.url, tls=tls) as pool,
    ):
        proxy.established = established
        proxy.names["there"] = ("127.0.0.1", server.port)
        answers = [await fetch(pool, server.url) for _ in range(2)]

    assert (answers, server.request_connections) == ([b"one", b"two"], [1, 1])


@pytest.mark.parametrize("name", ["there", "elsewhere"])
async def test_https_request_goes_through_a_tunnel_and_the_certificate_is_checked(tmp_path: Path, name: str):
    ours, tls = tls_contexts(tmp_path)
    headers = {HEADER: TOKEN, "authorization": "Bearer secret", "cookie": "a=1"}
    async with (
        serve_proxy() as proxy,
        serve_answers(sized_response(b"one"), sized_response(b"two"), ssl=ours) as server,
        open_pool(proxy.url, tls=tls) as pool,
    ):
        port = server.port
        proxy.names[name] = ("127.0.0.1", port)
        url = server.url.with_host(name)
        if name == "there":
            answers = [await fetch(pool, url, headers=headers) for _ in range(2)]
        else:
            with pytest.raises(UnreachableError, match="certificate is not valid"):
                await fetch(pool, url, headers=headers)
            answers = []

    assert answers == ([b"one", b"two"] if name == "there" else [])
    (tunnel,) = proxy.heads
    assert tunnel.startswith(b"CONNECT %b:%d HTTP/1.1\r\n" % (name.encode(), port))
    assert {line.partition(b":")[0] for line in tunnel.split(b"\r\n")[1:-2]} == {
        *(b"Host", b"Accept", b"Accept-Encoding", b"User-Agent"),
    }


async def test_proxy_password_is_sent_only_to_the_proxy():
    async with (
        serve_proxy() as proxy,
        serve_answers(sized_response(b"one")) as server,
        open_pool(proxy_with_login(proxy)) as pool,
    ):
        proxy.names["there"] = ("127.0.0.1", server.port)
        await fetch(pool, server.url)
        with pytest.raises(UnreachableError):
            await fetch(pool, server.url.with_scheme("https"))

    assert [b"Proxy-Authorization: Basic dXNlcjpodW50ZXIy" in head for head in proxy.heads] == [True, True]


ANSWERS = {
    "refused": b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
    "not HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "endless": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 100_000,
    "interim without end": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10_000,
}


@pytest.mark.parametrize("kind", [*ANSWERS, "not reachable"])
async def test_proxy_failure_is_reported_without_the_password(caplog: pytest.LogCaptureFixture, kind: str):
    caplog.set_level(logging.DEBUG)
    async with serve_proxy() as proxy:
        proxy.answer = ANSWERS.get(kind, b"")
        address = proxy_with_login(proxy) if proxy.answer else "http://user:hunter2@127.0.0.1:9"
        async with open_pool(address) as pool:
            with pytest.raises((UnreachableError, BrokenResponseError)) as error:
                await fetch(pool, URL("https://there:8443/"), headers={HEADER: TOKEN})

    assert "hunter2" not in str(error.value) + caplog.text
    assert TOKEN.encode() not in b"".join(proxy.heads)
    if kind == "refused":
        assert str(error.value) == f"the proxy {proxy.url} answered 407 Proxy Authentication Required"


# Links. Their names are set in Python's resolver, which uvloop does not use.

ASYNCIO_ONLY = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@ASYNCIO_ONLY
@pytest.mark.parametrize("exempt", [False, True], ids=["through the proxy", "exempt by NO_PROXY"])
async def test_call_goes_through_the_proxy_unless_no_proxy_names_the_host(
    make_host: HostFactory, folder: Path, names: FakeResolver, monkeypatch: pytest.MonkeyPatch, exempt: bool
):
    scripted = ScriptedServer()
    async with serve_proxy() as proxy, serve(scripted) as url:
        port = URL(url).port or 0
        proxy.names[NAME] = ("127.0.0.1", port)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        if exempt:
            names.set(NAME, "127.0.0.1")
            monkeypatch.setenv("NO_PROXY", f"other.example.com, {NAME}")
        async with open_session(make_host, folder, {"web": entry_by_name(url)}, connect_options()) as session:
            answer = await session.call("web.go")

    assert (answer.text, len(scripted.calls())) == ("gone", 1)
    assert {line.split()[1] for line in proxy.lines} == (
        set() if exempt else {f"http://{NAME}:{port}/mcp".encode()}
    )


GUARDED = {
    "sandboxed": (Trust.SANDBOXED, False, ""),
    "brought by a client": (Trust.DIRECT, True, ""),
    "allowed by the host": (Trust.SANDBOXED, False, NAME),
}


@pytest.mark.promise("RES-05")
@ASYNCIO_ONLY
@pytest.mark.parametrize("case", GUARDED)
async def test_link_limited_to_public_addresses_uses_the_proxy_only_for_reachable_hosts(
    make_host: HostFactory, folder: Path, names: FakeResolver, monkeypatch: pytest.MonkeyPatch, case: str
):
    """The proxy would look the name up itself, and could connect to a private address."""
    trust, brought, reachable = GUARDED[case]
    names.set(NAME, "127.0.0.1")
    names.set("proxy.example.com", "127.0.0.1")
    async with serve_proxy() as proxy, serve(ScriptedServer()) as url:
        proxy.names[NAME] = ("127.0.0.1", URL(url).port or 0)
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("127.0.0.1", "proxy.example.com"))
        entry: dict[str, Json] = (
            entry_by_name(url, headers=[], name="web")
            if brought
            else entry_by_name(url, trust_level="sandboxed")
        )
        async with (
            make_host(
                {} if brought else {"web": entry},
                options=connect_options(),
                HOLDFAST_SERVERS_REACHABLE=reachable,
            ) as host,
            open_for_block(
                host, OpenOptions(cwd=folder, trust=trust, client_servers=(entry,) if brought else ())
            ) as session,
        ):
            reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    if reachable:
        assert (reasons, bool(proxy.heads)) == ([], True)
    else:
        assert ("which may not be reached" in reasons[0], proxy.heads) == (True, [])


@ASYNCIO_ONLY
async def test_login_in_netrc_is_not_sent(
    make_host: HostFactory, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    netrc = tmp_path / ".netrc"
    netrc.write_text("default login me password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    scripted = ScriptedServer()
    async with serve_proxy() as proxy, serve(scripted) as url:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        proxy.names[NAME] = ("127.0.0.1", URL(url).port or 0)
        async with open_session(
            make_host, folder, {"web": entry_by_name(url), "local": http_entry(url)}, connect_options()
        ) as session:
            answers = [(await session.call(f"{name}.go")).text for name in ("web", "local")]

    sent = [*proxy.heads, *(repr(headers).encode() for _, headers, _ in scripted.requests)]
    assert answers == ["gone", "gone"]
    assert [head for head in sent if b"uthorization" in head] == []


@ASYNCIO_ONLY
async def test_server_is_left_out_if_its_proxy_is_not_supported(
    make_host: HostFactory, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ALL_PROXY", "socks5://user:hunter2@127.0.0.1:1080")
    servers = {"web": http_entry("https://tools.example.com")}
    async with open_session(make_host, folder, servers, connect_options()) as session:
        reasons = [refusal.reason for refusal in session.refusals if refusal.server == "web"]

    assert reasons == [
        (
            "Could not connect to 'web': The proxy for https addresses cannot be used: only http:// and https:// proxies "
            "are supported. Change HTTPS_PROXY or ALL_PROXY, or add tools.example.com to NO_PROXY."
        )
    ]
