"""Pages that attack the server that drives them. Each attack is also run where it must succeed, or beside a page that must still work."""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stage.client import Client, Failure, run_tools
from tests.stage.site import Seen, Site, run_site

pytestmark = pytest.mark.anyio

HEAVY = pytest.mark.skipif(
    not os.environ.get("HOLDFAST_STAGE_HEAVY"), reason="It needs much memory: make stage-heavy."
)
METADATA = "169.254.169.254"
DEEP = """<p id=top>Top</p><script>function nest(count) { let at = document.body;
for (let i = 0; i < count; i++) { const next = document.createElement('div'); at.append(next); at = next } at.append('Deep text') }</script>"""
ENDLESS = """<ul id=l><li>First</ul><script>let n = 0;
function more() { for (let i = 0; i < 50; i++) { const li = document.createElement('li'); li.textContent = 'Item ' + n++; l.append(li) } setTimeout(more, 0) }
onclick = more</script><button>More</button>"""
PROMPTS = """<h1>Prompts</h1><script>const asked = {};
const ask = (name, promise) => promise.then(() => asked[name] = 'granted', () => asked[name] = 'denied');
const all = () => Promise.all([
  ask('position', new Promise((yes, no) => navigator.geolocation.getCurrentPosition(yes, no))),
  ask('notices', Notification.requestPermission().then((answer) => { if (answer !== 'granted') throw answer })),
  ask('camera', navigator.mediaDevices.getUserMedia({video: true})),
  ask('clipboard', navigator.clipboard.readText()),
]).then(() => JSON.stringify(asked))</script>"""


@pytest.mark.slow
@pytest.mark.promise("STG-11")
@pytest.mark.parametrize("depth", [2_000, pytest.param(100_000, marks=HEAVY)])
async def test_a_very_deep_page_is_read_or_fails_by_itself(client: Client, site: Site, depth: int):
    other = await client.call("open", url=site.page("/beside", "<h1>Beside</h1>"))
    deep = await client.call("open", url=site.page("/deep", DEEP))

    await client.envelope("evaluate", script=f"nest({depth})", timeout=30)
    read = await client.envelope("snapshot", tab=deep["tab"])
    beside = await client.page("snapshot", tab=other["tab"])

    if isinstance(read, Failure):  # Chromium itself does not survive every depth
        assert read.code in {"PAGE_CRASHED", "PAGE_HUNG"}
    else:
        assert "Top" in read["page"]
        assert "Deep text" in read["page"]
    assert "h1 Beside" in beside


@pytest.mark.slow
@pytest.mark.promise("STG-05", "STG-10")
async def test_a_page_that_grows_without_end_is_read_within_its_budget(client: Client, site: Site):
    await client.call("open", url=site.page("/endless", ENDLESS))
    clicked = await client.call("click", ref=await client.ref("More", "button"))

    first = await client.call("snapshot", budget=500)
    second = await client.call("snapshot", budget=500)

    assert "left_out" in first
    assert len(clicked["page"]) / 4 <= 500
    assert len(second["page"]) / 4 <= 500
    assert second["left_out"] > first["left_out"], "the page really grows"


@pytest.mark.slow
@pytest.mark.promise("STG-01")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_a_service_worker_ends_with_its_stage(client: Client, site: Site, is_protected: bool):
    site.answers["/worker.js"] = lambda seen: (
        200,
        {"Content-Type": "text/javascript"},
        b"oninstall = () => skipWaiting(); const beat = () => fetch('/beat').finally(() => setTimeout(beat, 50)); onmessage = beat",
    )
    html = "<script>const begin = () => navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready).then((r) => r.active.postMessage(1))</script>"
    opened = await client.call("open", url=site.page("/serviced", html))
    await client.call("evaluate", script="begin()")
    await _until(lambda: site.paths().count("/beat") > 2)

    if is_protected:
        await client.call("close", stage=opened["stage"])
    beats = site.paths().count("/beat")
    again = await client.page("open", url=site.page("/serviced2", "<h1>Again</h1>"))
    registered = await client.page(
        "evaluate", script="navigator.serviceWorker.getRegistrations().then((all) => all.length)"
    )
    await client.call("evaluate", script="new Promise((done) => setTimeout(done, 500))")

    assert "h1 Again" in again
    assert registered == "0"
    is_over = site.paths().count("/beat") <= beats + 1  # one beat may have been on its way
    assert is_over is is_protected


@pytest.mark.slow
@pytest.mark.promise("STG-10")
async def test_prompts_for_passwords_permissions_and_programs_hold_up_nothing(client: Client, site: Site):
    def guarded(seen: Seen) -> tuple[int, dict[str, str], bytes]:
        if "Authorization" in seen.headers:
            return 200, {"Content-Type": "text/html"}, b"<h1>Inside</h1>"
        return 401, {"Content-Type": "text/html", "WWW-Authenticate": "Basic realm=x"}, b"<h1>Outside</h1>"

    site.answers["/guarded"] = guarded
    refused = await client.fail("open", url=f"{site.url}/guarded")
    control = await client.page("open", url=f"{site.url.replace('//', '//ann:secret@')}/guarded")
    programs = "".join(
        f"<a href='{url}'>{url.partition(':')[0]}</a> "
        for url in ("mailto:ann@example.org", "tel:+1", "slack://open", "ms-settings:x")
    )
    await client.call("open", url=site.page("/prompts", f"{PROMPTS}{programs}"))
    asked = await client.page("evaluate", script="all()", timeout=20)
    for name in ("mailto", "tel", "slack", "ms-settings"):
        await client.envelope("click", ref=await client.ref(name, "link"))
    after = await client.page("snapshot")

    assert (refused.code, "asks for a user name" in refused.message) == ("LOAD_FAILED", True)
    assert "h1 Inside" in control
    assert asked.count("denied") == 4
    assert "h1 Prompts" in after


@HEAVY
@pytest.mark.promise("STG-11")
async def test_a_page_without_memory_fails_by_itself(client: Client, site: Site):
    other = await client.call("open", url=site.page("/beside", "<h1>Beside</h1>"))
    greedy = await client.call("open", url=site.page("/greedy", "<h1>Greedy</h1>"))

    failed = await client.fail(
        "evaluate",
        script="const kept = []; for (;;) kept.push(new Array(1e6).fill(kept.length + 0.5)); 0",
        timeout=60,
    )

    assert failed.code in {"PAGE_CRASHED", "PAGE_HUNG", "TAB_GONE"}
    assert "h1 Beside" in await client.page("snapshot", tab=other["tab"])
    again = await client.page("goto", url=site.page("/again", "<h1>Again</h1>"), tab=greedy["tab"])
    assert "h1 Again" in again


@HEAVY
@pytest.mark.promise("STG-05")
async def test_a_table_of_100_000_rows_is_read_and_its_last_row_is_found_or_counted(
    client: Client, site: Site
):
    rows = "".join(f"<tr><td>Row {n}.<td>{n}" for n in range(100_000))
    await client.call("open", url=site.page("/rows", f"<table>{rows}</table>"))
    answer = await client.call("snapshot")
    found = await client.call("find", text="Row 99999.")

    assert answer["left_out"] + answer.get("unread", 0) > 90_000
    assert "Row 99999." in found.get("page", "") or found["unread"] > 0, (
        "a busy machine reads a part, and says so"
    )


@pytest.mark.slow
@pytest.mark.promise("STG-04")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_a_sandboxed_page_reaches_no_address_that_was_not_granted(
    is_protected: bool, tmp_path: Path, browser: Client, monkeypatch: pytest.MonkeyPatch
):
    """By address, by WebSocket, by redirect, and by a name whose address changes. The page itself is served by `localhost`."""
    looked_up = _rebind(monkeypatch, "rebind.example")
    with run_site() as inside, run_site() as site:
        _serve_metadata(monkeypatch, inside)
        ways = {
            "fetch": f"fetch('{inside.url}/fetch', {{mode: 'no-cors'}})",
            "socket": f"new Promise((done) => {{ const s = new WebSocket('{inside.url.replace('http', 'ws')}/socket'); s.onclose = s.onerror = s.onopen = done }})",
            "redirect": "fetch('/redirect', {mode: 'no-cors'})",
            "metadata": f"fetch('http://{METADATA}/metadata', {{mode: 'no-cors'}})",
            "rebinding": f"fetch('http://rebind.example:{inside.port}/first', {{mode: 'no-cors', signal: AbortSignal.timeout(500)}}).catch(() => 0)"
            f".then(() => fetch('http://rebind.example:{inside.port}/rebound', {{mode: 'no-cors'}}))",
            "socket-to-metadata": f"new Promise((done) => {{ const s = new WebSocket('ws://{METADATA}/metadata-socket'); s.onclose = s.onerror = s.onopen = done }})",
        }
        site.answers["/redirect"] = lambda seen: (302, {"Location": f"{inside.url}/redirect"}, b"")
        tried = ",".join(f"({way}).catch(() => 0)" for way in ways.values())
        site.page(
            "/attack", f"<script>const attack = () => Promise.all([{tried}]).then(() => 'tried')</script>"
        )
        granted = ("localhost",) if is_protected else ("localhost", "127.0.0.1", "rebind.example", METADATA)
        options: dict[str, Any] = {"is_sandboxed": True, "hosts": ("*",), "private_hosts": granted}
        async with run_tools(tmp_path, **options) as client:
            await client.call("open", url=f"{site.other_url}/attack")
            said = await client.page("evaluate", script="attack()", timeout=30)

    assert said == '"tried"'
    assert looked_up[-1] == "127.0.0.1", "the name was looked up a second time"
    names = ("fetch", "metadata", "metadata-socket", "rebound", "redirect", "socket")
    expected = [] if is_protected else [f"/{name}" for name in names]
    assert sorted(inside.paths()) == expected


def _serve_metadata(monkeypatch: pytest.MonkeyPatch, inside: Site) -> None:
    """Let the site answer at the metadata address, as a cloud's network does. Nothing is sent to that address."""
    connect = asyncio.SelectorEventLoop.sock_connect

    async def connect_to_site(loop: asyncio.SelectorEventLoop, sock: socket.socket, address: Any) -> None:
        where = ("127.0.0.1", inside.port) if address[0] == METADATA else address
        await connect(loop, sock, where)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect_to_site)


def _rebind(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Let a name have an address on the internet at first, and then this machine's. Return the addresses that were answered."""
    real, answered = socket.getaddrinfo, list[str]()

    def look_up(host: str, *args: Any, **kwargs: Any) -> Any:
        if host != name:
            return real(host, *args, **kwargs)
        answered.append("127.0.0.1" if answered else "192.0.2.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answered[-1], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return answered


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)
