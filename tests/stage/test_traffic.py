"""What a browser sends without a page that asks for it, and how much one browser can hold."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.builtin.stage.browser_sandbox import BROWSER_QUOTA
from holdfast.builtin.stage.chromium_flags import FLAGS
from holdfast.builtin.stage.limits import MAX_STAGES
from holdfast.sandbox.bwrap.egress_policy import ProxyRequest
from holdfast.sandbox.bwrap.egress_proxy import EgressProxy
from tests.stage.client import Client, run_tools
from tests.stage.processes import Descendants
from tests.stage.site import Site
from tests.stage.test_attach import run_browser

HEAVY = pytest.mark.skipif(
    not os.environ.get("HOLDFAST_STAGE_HEAVY"), reason="It needs many processes: make stage-heavy."
)
pytestmark = pytest.mark.anyio

WEBRTC = tuple(flag for flag in FLAGS if "webrtc" in flag)
BYPASS = tuple(flag for flag in FLAGS if "proxy-bypass" in flag)
CALL = """new Promise((done) => {{
  const found = [], call = new RTCPeerConnection({{iceServers: [{{urls: 'stun:127.0.0.1:{port}'}}]}});
  call.onicecandidate = (event) => event.candidate === null ? done(found.length) : found.push(event.candidate.candidate);
  call.createDataChannel('x');
  call.createOffer().then((offer) => call.setLocalDescription(offer));
}})"""
TRANSPORT = "new WebTransport('https://127.0.0.1:{port}/').ready.then(() => 'open', () => 'failed')"


@pytest.mark.promise("STG-04")
async def test_a_page_has_no_way_to_send_packets_past_the_proxy(client: Client, site: Site):
    await client.call("open", url=site.page("/packets", "<h1>Packets</h1>"))
    with _udp_server() as server:
        port = server.getsockname()[1]
        opened = await client.page("evaluate", script=TRANSPORT.format(port=port))
        # Without any network, as in Holdfast's sandbox, the search for ways does not end.
        script = (
            f"Promise.race([{CALL.format(port=port)}, new Promise((done) => setTimeout(() => done(0), 500))])"
        )
        candidates = await client.page("evaluate", script=script)
        packets = _received(server)

    assert (opened, candidates, packets) == ('"failed"', "0", 0)


@HEAVY
@pytest.mark.promise("STG-04")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_the_flags_of_the_browser_keep_packets_from_passing_the_proxy(
    is_protected: bool, tmp_path: Path, site: Site
):
    """Runs without Holdfast's sandbox: it has no network, so flags that do not work would not be noticed."""
    url = site.page("/call", "<h1>Call</h1>")
    flags = (f"--proxy-server=127.0.0.1:{site.port}", *BYPASS, *WEBRTC) if is_protected else ()
    with (
        _udp_server() as stun,
        _udp_server() as quic,
        run_browser(url, tmp_path, flags) as (_, port),
    ):
        async with run_tools(tmp_path) as client:
            await client.call("attach", endpoint=f"127.0.0.1:{port}")
            await client.call("wait", text="Call")
            script = CALL.format(port=stun.getsockname()[1])
            candidates = int(await client.page("evaluate", script=script, timeout=60))
            await client.call("evaluate", script=TRANSPORT.format(port=quic.getsockname()[1]), timeout=60)
        packets = _received(stun), _received(quic)

    assert len(WEBRTC) > 0
    assert len(BYPASS) > 0
    assert (candidates == 0, packets[0] == 0, packets[1] == 0) == (is_protected,) * 3


@HEAVY
@pytest.mark.promise("STG-04")
async def test_a_browser_sends_nothing_by_itself(
    tmp_path: Path, browser: Client, site: Site, monkeypatch: pytest.MonkeyPatch
):
    requested: list[str] = []
    connect = EgressProxy._connect

    async def record(proxy: EgressProxy, request: ProxyRequest, client: socket.socket) -> Any:
        requested.append(str(request.endpoint))
        return await connect(proxy, request, client)

    monkeypatch.setattr(EgressProxy, "_connect", record)
    async with run_tools(tmp_path) as client:
        await client.call("open")
        await client.call("evaluate", script="new Promise((done) => setTimeout(done, 30_000))", timeout=60)
        idle = list(requested)
        await client.call("goto", url=site.page("/asked", "<h1>Asked</h1>"))

    assert idle == []
    assert set(requested) == {f"127.0.0.1:{site.port}"}


@HEAVY
@pytest.mark.promise("STG-17")
async def test_all_stages_that_a_session_may_have_fit_into_one_browser(
    tmp_path: Path, browser: Client, site: Site
):
    url = f"{site.url}/table.html?rows=50"
    others = set(Descendants(os.getpid()).running())
    async with run_tools(tmp_path, is_sandboxed=True, hosts=("*",), private_hosts=("*",)) as client:
        opened = [await client.call("open", url=url) for _ in range(MAX_STAGES)]
        further = await client.fail("open", url=url)
        pages = await asyncio.gather(*(client.page("snapshot", tab=stage["tab"]) for stage in opened))
        own = set(Descendants(os.getpid()).running()) - others
        threads = sum(len([*Path(f"/proc/{pid}/task").iterdir()]) for pid in own)

    assert further.code == "TOO_MANY_TABS"
    assert ["button Order tea 0." in page for page in pages] == [True] * MAX_STAGES
    assert len(own) > MAX_STAGES
    assert threads < BROWSER_QUOTA.processes / 2


@contextmanager
def _udp_server() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        yield server


def _received(server: socket.socket) -> int:
    count = 0
    while True:
        try:
            server.recv(2000)
        except BlockingIOError:
            return count
        count += 1
