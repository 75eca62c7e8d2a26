"""Attack 53: a web page makes the browser reach Holdfast's own ports or metadata addresses."""

import asyncio
from pathlib import Path

import pytest

from holdfast import settings
from holdfast.builtin.servers import STAGE_SERVER, builtin_servers
from holdfast.builtin.stage.find_browser import find_browser
from holdfast.builtin.stage.options import read_options
from holdfast.model.own_ports import hold_port
from holdfast.model.process import Confinement
from holdfast.model.server import Stdio
from holdfast.sandbox.bwrap.egress_policy import EgressPolicy, Endpoint
from tests.stage.client import Client, run_tools
from tests.stage.site import Site, run_site

WAYS = {
    *(
        "frame",
        "image",
        "fetch",
        "worker",
        "shared-worker",
        "service-worker",
        "socket",
        "redirect",
        "refresh",
    ),
    *("popup", "popup-link", "prefetch"),
}
METADATA = ("169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "::ffff:169.254.169.254")


@pytest.mark.anyio
@pytest.mark.skipif(find_browser() is None, reason="There is no Chromium.")
@pytest.mark.promise("STG-04")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_no_page_reaches_holdfasts_own_port(is_protected: bool, tmp_path: Path):
    with run_site() as own, run_site() as site:
        _define_attacks(site, own)
        async with run_tools(tmp_path, denied_ports=(own.port,) if is_protected else ()) as client:
            await client.call("open", url=f"{site.url}/attack")
            for name in ("Popup", "Link"):
                await client.envelope("click", ref=await client.ref(name))
            async with asyncio.timeout(20):  # everything that the page tries has been tried
                while "/reported" not in site.paths() or not await _are_popups_loaded(client):
                    await asyncio.sleep(0.02)
            for way in ("redirect", "refresh"):
                await client.envelope("open", url=f"{site.url}/{way}")
            denied = await client.envelope("open", url=f"{own.url}/direct")

    reached = WAYS & {path.strip("/") for path in own.paths()}
    if is_protected:
        assert own.paths() == []
        assert getattr(denied, "code", "") == "URL_DENIED"
    else:
        assert reached == WAYS


@pytest.mark.promise("STG-04")
@pytest.mark.parametrize("address", METADATA)
def test_metadata_addresses_are_never_granted_by_a_wildcard(address: str):
    endpoint = Endpoint(host="metadata.example", port=80)
    anything = EgressPolicy(Confinement(network=("*",), allowed_private_hosts=("*",)))
    control = EgressPolicy(Confinement(network=("*",), allowed_private_hosts=("metadata.example",)))

    assert anything.why_name_refused(endpoint) is None
    assert anything.why_address_refused(endpoint, address) is not None
    assert control.why_address_refused(endpoint, address) is None


@pytest.mark.promise("STG-04")
def test_a_wildcard_grants_this_machine_except_for_denied_ports():
    policy = EgressPolicy(Confinement(network=("*",), allowed_private_hosts=("*",), denied_ports=(8080,)))

    def is_granted(address: str, port: int) -> bool:
        return policy.why_address_refused(Endpoint(host="x.example", port=port), address) is None

    assert is_granted("127.0.0.1", 3000)
    assert is_granted("192.168.0.7", 3000)
    assert is_granted("93.184.215.14", 8080)
    assert not is_granted("127.0.0.1", 8080)
    assert not is_granted("::1", 8080)
    assert not is_granted("192.168.0.7", 8080)


@pytest.mark.anyio
@pytest.mark.skipif(find_browser() is None, reason="There is no Chromium.")
@pytest.mark.promise("STG-04")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_a_browser_does_not_reach_a_port_that_holdfast_opened_after_its_start(
    is_protected: bool, tmp_path: Path
):
    with run_site() as own:
        own.page("/own", "<h1>Own</h1>")
        async with run_tools(tmp_path, data_dir=tmp_path if is_protected else None) as client:
            before = await client.page("open", url=f"{own.url}/own")
            with hold_port(tmp_path, own.port):
                during = await client.envelope("goto", url=f"{own.url}/own")

    assert "h1 Own" in before
    assert getattr(during, "code", "") == ("URL_DENIED" if is_protected else "")


@pytest.mark.promise("STG-04")
def test_the_browser_server_knows_the_data_folder_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (stage,) = (
        server.spec
        for server in builtin_servers(settings.load(environ={"HOLDFAST_DATA_DIR": str(tmp_path)}))
        if server.spec.name == STAGE_SERVER
    )
    assert isinstance(stage.transport, Stdio)
    for name, value in stage.transport.env.items():
        monkeypatch.setenv(name, value)

    options, _ = read_options(())

    assert options.data_dir == tmp_path


async def _are_popups_loaded(client: Client) -> bool:
    """Whether both tabs that the page opened show their page, or the error in its place."""
    (stage,) = (await client.call("stages"))["stages"]
    if len(stage["tabs"]) < 3:
        return False
    for tab in stage["tabs"][1:]:
        await client.envelope("wait", tab=tab)
    return True


def _define_attacks(site: Site, own: Site) -> None:
    def script(path: str, code: str) -> None:
        site.answers[path] = lambda seen: (200, {"Content-Type": "text/javascript"}, code.encode())

    def reach(way: str) -> str:
        return f"fetch('{own.url}/{way}', {{mode: 'no-cors'}}).catch(() => 0)"

    script("/worker.js", f"{reach('worker')}.then(() => postMessage(1))")
    script("/shared.js", f"onconnect = (e) => {reach('shared-worker')}.then(() => e.ports[0].postMessage(1))")
    script("/service.js", f"onmessage = (e) => {reach('service-worker')}.then(() => e.source.postMessage(1))")
    site.answers["/redirect"] = lambda seen: (302, {"Location": f"{own.url}/redirect"}, b"")
    site.page("/refresh", f'<meta http-equiv=refresh content="0;url={own.url}/refresh">')
    site.page(
        "/attack",
        f"""<iframe src={own.url}/frame></iframe><img src={own.url}/image>
        <button onclick="window.open('{own.url}/popup')">Popup</button><a target=_blank href={own.url}/popup-link>Link</a>
        <script>
        const tried = (start) => new Promise(start).catch(() => 0);
        const prefetch = document.createElement('link');
        const service = navigator.serviceWorker;
        Promise.all([
          {reach("fetch")},
          tried((done) => {{ new Worker('/worker.js').onmessage = done }}),
          tried((done) => {{ new SharedWorker('/shared.js').port.onmessage = done }}),
          tried((done) => {{
            service.onmessage = done;
            service.register('/service.js').then(() => service.ready).then((ready) => ready.active.postMessage(1));
          }}),
          tried((done) => {{
            prefetch.onload = prefetch.onerror = done;
            prefetch.rel = 'prefetch'; prefetch.href = '{own.url}/prefetch'; document.head.append(prefetch);
          }}),
          tried((done) => {{ const s = new WebSocket('{own.url.replace("http", "ws")}/socket'); s.onclose = s.onerror = s.onopen = done }}),
          tried((done) => {{ window.onload = done }}),
        ]).then(() => fetch('/reported'))
        </script>""",
    )
