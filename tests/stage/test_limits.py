"""What is bounded: tabs, downloads, requests, large pages; and a browser that ends."""

import asyncio
import re
import time
from pathlib import Path

import pytest

from holdfast.builtin.stage import browser as browser_module
from holdfast.builtin.stage.cdp import protocol as cdp
from tests.stage.client import Client, run_tools
from tests.stage.site import Site

pytestmark = pytest.mark.anyio


@pytest.mark.promise("STG-17")
async def test_tabs_are_bounded_and_those_closed_are_counted(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(browser_module, "MAX_TABS", 3)
    opened = await client.call("open", url=site.page("/tabs", "<h1>Tabs</h1>"))
    reported = ""
    for number in range(4):  # a page may open one tab for each action of its user
        script = f"window.open('/tab{number}'); 0"
        reported += str(await client.call("evaluate", script=script, tab=opened["tab"]))
    for _ in range(40):
        reported += str(await client.call("tabs"))
        if "a new tab was closed" in reported:
            break
        await asyncio.sleep(0.05)

    tabs = (await client.call("stages"))["stages"][-1]["tabs"]
    assert len(tabs) <= 3
    assert "a new tab was closed: the stage has 3 tabs" in reported
    if len(tabs) == 3:
        assert (await client.fail("tab", action="new")).code == "TOO_MANY_TABS"


@pytest.mark.promise("STG-14")
async def test_downloads_are_bounded(client: Client, site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(browser_module, "MAX_DOWNLOADS", 2)
    site.answers["/blob"] = lambda seen: (200, {"Content-Type": "application/octet-stream"}, b"x" * 1000)
    html = "<script>for (let i = 0; i < 5; i++) { const a = document.createElement('a'); a.href = '/blob?' + i; a.download = 'f' + i; document.body.append(a) }</script>"
    await client.call("open", url=site.page("/flood", f"<body>{html}"))
    for number in range(5):
        await client.call("evaluate", script=f"document.querySelectorAll('a')[{number}].click()")

    listed = await client.page("downloads")

    assert listed.count("(too many downloads)") >= 1
    assert len(re.findall(r"^\d+ (?:completed|inProgress)", listed, re.MULTILINE)) <= 2


@pytest.mark.promise("STG-05")
async def test_no_answer_exceeds_its_budget(client: Client, site: Site):
    words = "".join(
        f"<p>Paragraph {n} {'word ' * 30}</p><a href=/l{n}>Link {n} {'x' * 50}</a>" for n in range(600)
    )
    script = "<script>for (let i = 0; i < 400; i++) console.log('m' + i, 'y'.repeat(300))</script>"
    opened = await client.call(
        "open", url=site.page("/budget", f"<main id=m>{words}</main>{script}"), budget=400
    )

    answers = [
        (opened, 400),
        (await client.call("snapshot", budget=300), 300),
        (await client.call("snapshot", cursor=opened["cursor"], budget=250), 250),
        (await client.call("read", budget=400), 800),
        (await client.call("find", text="link", limit=200), 3000),
        (await client.call("elements", kind="links", limit=500), 5000),
        (await client.call("console"), 2000),
        (await client.call("requests", budget=300), 300),
        (await client.call("evaluate", script="'z'.repeat(100000)", budget=300), 300),
    ]

    for answer, budget in answers:
        assert len(answer["page"]) / 4 <= budget, answer
    assert all("left_out" in answer for answer, _ in answers[:7])


async def test_a_page_of_twenty_thousand_elements_is_read_in_linear_time(client: Client, site: Site):
    site.page("/growing", "<ul id=l></ul>")
    seconds: list[float] = []
    await client.call("open", url=site.url + "/growing")
    for count in (1_000, 10_000):
        await client.call(
            "evaluate",
            script=f"l.innerHTML = Array.from({{length: {count}}}, (_, i) => '<li>Item ' + i + ' <b>x</b></li>').join(''); 0",
        )
        best = 100.0
        for _ in range(2):
            start = time.perf_counter()
            await client.call("snapshot")
            best = min(best, time.perf_counter() - start)
        seconds.append(best)

    assert seconds[1] < 10 * max(seconds[0], 0.1) * 4  # not 100 times


async def test_a_browser_that_ends_is_reported_and_started_again(tmp_path: Path, browser: Client):
    async with run_tools(tmp_path) as client:
        first = await client.call("open")
        stage = next(iter(client.box._managers[0]._sessions.values()))[first["stage"]]
        await stage.browser.connection.send(cdp.BrowserClose())
        await stage.browser.connection.closed.wait()

        gone = await client.fail("snapshot")
        again = await client.call("open")

    assert gone.code == "BROWSER_GONE"
    assert again["tab"] != first["tab"]
