"""Limits of tabs, downloads, requests and answers, and of waiting; and a browser that ends."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.builtin.stage import browser as browser_module
from holdfast.builtin.stage import downloads, page_log
from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.cdp.connection import Connection
from holdfast.builtin.stage.find_browser import find_browser
from holdfast.builtin.stage.limits import MAX_DOWNLOAD_BYTES
from holdfast.builtin.stage.tab import Tab
from holdfast.sandbox.keeper.child import Child
from tests.stage.client import Client, inside, run_tools
from tests.stage.processes import Descendants
from tests.stage.site import Site

pytestmark = pytest.mark.anyio


@pytest.mark.slow
@pytest.mark.promise("STG-17")
async def test_tabs_above_the_limit_are_closed_and_counted(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(browser_module, "MAX_TABS", 3)
    opened = await client.call("open", url=site.page("/tabs", "<h1>Tabs</h1>"))
    reported = ""
    for number in range(4):  # a page may open one tab for each action of its user
        script = f"window.open('/tab{number}'); 0"
        reported += str(await client.call("evaluate", script=script, tab=opened["tab"]))
    async with asyncio.timeout(20):
        while (listed := await client.call("tabs")).get("closed_tabs", 0) < 2:
            reported += str(listed)
            await asyncio.sleep(0.02)
    reported += str(listed)
    stage = (await client.call("stages"))["stages"][-1]

    assert (len(stage["tabs"]), stage["closed_tabs"], listed["closed_tabs"]) == (3, 2, 2)
    assert "a new tab was closed: the stage has 3 tabs" in reported
    assert (await client.fail("tab", action="new")).code == "TOO_MANY_TABS"


@pytest.mark.slow
@pytest.mark.promise("STG-17")
async def test_requests_and_dialogs_above_their_limits_are_dropped_and_counted(client: Client, site: Site):
    html = """<script>const flood = async () => { for (let i = 0; i < 60; i++) confirm('d' + i + '.');
    for (let i = 0; i < 520; i += 40) await Promise.all(Array.from({length: Math.min(40, 520 - i)}, (_, n) => fetch('data:,' + (i + n) + '.')));
    return 'done' }</script>"""
    await client.call("open", url=site.page("/flooding", html))
    said = await client.page("evaluate", script="flood()", timeout=60)

    dialogs = await client.call("dialogs")
    requests = await client.call("requests", budget=20_000)
    lines = inside(requests["page"]).split("\n")

    assert said.startswith('"done"')
    assert (dialogs["dropped"], _numbers(dialogs)) == (10, set(range(11, 61)))
    assert requests["dropped"] > 0
    assert len(lines) + requests.get("left_out", 0) == 500
    assert lines[0].startswith(f"{500 + requests['dropped']} ")


@pytest.mark.promise("STG-17")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_headers_above_their_limits_are_dropped_and_counted(
    client: Client, site: Site, is_protected: bool, monkeypatch: pytest.MonkeyPatch
):
    if not is_protected:
        monkeypatch.setattr(page_log, "MAX_HEADERS", 1000)
        monkeypatch.setattr(page_log, "MAX_HEADER", 100_000)
    many = {f"X-{number}": "v" for number in range(70)}
    site.answers["/headers"] = lambda seen: (200, {"X-Long": "l" * 50_000, **many}, b"")
    opened = await client.call("open", url=site.page("/asks", "<h1>Asks</h1>"))
    await client.call("evaluate", script="fetch('/headers').then((answer) => answer.status)")

    listed = await client.page("requests", filter="/headers")
    shown = await client.page("requests", number=int(listed.split(" ")[0]))
    _, request = list(_tab(client, opened).log.requests)[-1]
    kept = sum(len(name) + len(value) for name, value in request.response_headers.items())

    assert (kept < 2000) is is_protected
    assert ("< …: 1" in shown) is is_protected, shown
    assert "l… (+49" in shown


def _numbers(answer: dict[str, Any]) -> set[int]:
    return {int(line.split(" ")[0]) for line in inside(answer["page"]).split("\n") if line[0] != "!"}


@pytest.mark.promise("STG-14")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_downloads_are_bounded(
    client: Client, site: Site, is_protected: bool, monkeypatch: pytest.MonkeyPatch
):
    if is_protected:
        monkeypatch.setattr(downloads, "MAX_DOWNLOADS", 2)
    site.answers["/blob"] = lambda seen: (200, {"Content-Type": "application/octet-stream"}, b"x" * 1000)
    html = "<script>for (let i = 0; i < 5; i++) { const a = document.createElement('a'); a.href = '/blob?' + i; a.download = 'f' + i; document.body.append(a) }</script>"
    await client.call("open", url=site.page("/flood", f"<body>{html}"))
    reported = ""
    for number in range(5):
        script = f"document.querySelectorAll('a')[{number}].click()"
        reported += str(await client.call("evaluate", script=script))
    async with asyncio.timeout(20):
        while (page := str((listed := await client.call("downloads")).get("page"))).count(
            " completed "
        ) + listed.get("dropped", 0) < 5:
            reported += page
            await asyncio.sleep(0.02)
    reported += page
    kept = 2 if is_protected else 5

    assert re.findall(r"^\d+ \w+", inside(page), re.MULTILINE) == [
        f"{number} completed" for number in range(1, kept + 1)
    ]
    assert ("download 5 was cancelled (too many downloads): f4" in reported) is is_protected


def test_a_flood_of_cancelled_downloads_neither_hides_others_nor_uses_up_the_limits(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(downloads, "MAX_DOWNLOADS", 12)
    stage = downloads.Downloads()

    def receive(guid: str, state: str, received: int) -> None:
        download = stage.find(guid)
        assert download is not None
        stage.record_progress(
            download,
            cdp.BrowserDownloadProgress(guid=guid, total_bytes=0, received_bytes=received, state=state),
        )

    def begin(number: int) -> downloads.Download:
        event = cdp.BrowserDownloadWillBegin(frame_id="f", guid=str(number), url="", suggested_filename="")
        return stage.begin(event)[1]

    for number in range(1, 41):  # ten run at the same time, the others are cancelled
        begin(number)
    for number in range(1, 10):
        receive(str(number), "completed", 1000)
    receive("10", "inProgress", MAX_DOWNLOAD_BYTES)
    later = begin(41)
    receive("41", "completed", 1000)

    completed = [number for number, download in stage if download.state == "completed"]
    assert completed == [*range(1, 10), 41]
    assert (later.reason, stage.dropped) == ("", 41 - 12)


@pytest.mark.slow
@pytest.mark.promise("STG-05")
async def test_no_answer_exceeds_its_budget_and_cursors_lead_to_every_line(client: Client, site: Site):
    words = "".join(f"<p>P{n} {'wörd ' * 20}</p><a href=/l{n}>Link {n}.</a>" for n in range(300))
    script = """<script>for (let i = 0; i < 200; i++) console.log('m' + i + '.', 'y'.repeat(300));
    for (let i = 0; i < 60; i++) fetch('/r' + i + '.?' + 'q'.repeat(250)); confirm('x'.repeat(900)); confirm('x'.repeat(900))</script>"""
    url = site.page("/budget", f"<title>T</title><main id=m>{words}</main>{script}")
    opened = await client.call("open", url=url, budget=400)
    await client.call("wait")

    async def follow(answer: dict[str, Any], budget: int) -> list[str]:
        """All lines of an answer, with those that its cursors lead to."""
        lines: list[str] = []
        while True:
            assert len(msgspec.json.encode(answer)) / 4 <= budget, answer
            lines += inside(answer["page"]).split("\n")
            if not answer.get("left_out"):
                return lines
            left, budget = answer["left_out"], 2000
            answer = await client.call("snapshot", cursor=answer["cursor"], budget=2000)
            assert answer.get("left_out", 0) <= left

    found = await follow(await client.call("find", text="link"), 3000)
    listed = await follow(await client.call("elements", kind="links"), 5000)
    logged = await follow(await client.call("console"), 2000)
    requested = await follow(await client.call("requests", budget=300), 300)
    value = await follow(await client.call("evaluate", script="'z'.repeat(9000)", budget=300), 300)
    tiny = await client.call("snapshot", budget=200)
    main = re.findall(r"\[(\w+)\] main", await client.page("snapshot"))[0]
    link = await client.ref("Link 7.")
    others: list[tuple[str, int, dict[str, Any]]] = [
        ("snapshot", 200, {"within": main, "budget": 200}),
        ("snapshot", 200, {"since": tiny["snapshot"], "budget": 200}),
        ("read", 300, {"budget": 300, "attributes": ["id", "class"]}),
        ("read", 300, {"ref": link, "budget": 300}),
        ("dialogs", 1500, {}),
        ("downloads", 3000, {}),
        ("tabs", 2000, {}),
        ("hover", 1500, {"ref": link}),
        ("requests", 300, {"number": 1, "budget": 300}),
        ("goto", 200, {"url": url, "budget": 200}),
    ]
    for tool, budget, arguments in others:
        answer = await client.call(tool, **arguments)
        assert len(msgspec.json.encode(answer)) / 4 <= budget, (tool, answer)
    failed = [
        await client.result("expect", text="never" * 5000, title="n" * 9000, timeout=0.1),
        await client.result("click", ref=link, modifiers=["M" * 9000]),
    ]

    assert max(len(result["content"][0]["text"]) for result in failed) / 4 <= 500
    assert len(msgspec.json.encode(opened)) / 4 <= 400
    assert len(msgspec.json.encode(tiny)) / 4 <= 200
    for lines, pattern, count in (
        (found, "link Link {}.", 300),
        (listed, "link Link {}.", 300),
        (logged, "log: m{}.", 200),
        (requested, "/r{}.", 60),
    ):
        missing = [n for n in range(count) if not any(pattern.format(n) in line for line in lines)]
        assert missing == []
    assert "".join(value).count("z") == 9000
    assert (await client.fail("snapshot", cursor="r999:1")).code == "BAD_CURSOR"


@pytest.mark.slow
@pytest.mark.promise("STG-05")
async def test_the_work_for_a_snapshot_grows_no_faster_than_the_page(client: Client, site: Site):
    nested = "<script>for (let at = document.body, i = 0; i < COUNT; i++) { at = at.appendChild(document.createElement('div')); at.role = i % 2 ? 'button' : 'cell'; at.ariaLabel = 'n' }</script>"
    pages: dict[str, Callable[[int], str]] = {
        "flat": lambda count: "".join(f"<p>Item {n}</p>" for n in range(count)),
        "nested": lambda count: nested.replace("COUNT", str(count // 4)),
    }
    for name, page in pages.items():
        cost: dict[int, float] = {}
        for count in (1_000, 8_000):
            opened = await client.call("open", url=site.page(f"/{name}{count}", page(count)))
            await client.call("snapshot")
            before = _processor_seconds()
            for _ in range(2):
                await client.call("snapshot", tab=opened["tab"])
            cost[count] = (_processor_seconds() - before) / count
        assert cost[8_000] < 3 * cost[1_000], f"{name}: eight times as much would be quadratic"


def _processor_seconds() -> float:
    """What this process and the pages of its browsers have used: it does not depend on other programs."""
    pages = [
        pid for pid, command in Descendants(os.getpid()).running().items() if "--type=renderer" in command
    ]
    tasks = [task for pid in pages for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return time.process_time() + sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


@pytest.mark.slow
@pytest.mark.promise("STG-11")
@pytest.mark.parametrize("state", ["busy", "crashed"])
async def test_closing_one_of_several_stages_waits_less_than_a_second(
    client: Client, site: Site, state: str, monkeypatch: pytest.MonkeyPatch
):
    broken = await client.call("open", url=site.page("/broken", "<h1>Broken</h1>"))
    tab = _tab(client, broken)
    if state == "busy":
        await client.call("evaluate", script="setTimeout(() => { for (;;); })", tab=tab.id)
    else:
        tab.connection.post(_Crash(), tab.session)  # type: ignore[arg-type]
        assert await tab.until(lambda: tab.is_crashed, 20)
    waits = record_waits(monkeypatch)

    await client.call("close", stage=broken["stage"])

    assert 0 < sum(waits) < 1
    assert broken["stage"] not in [stage["stage"] for stage in (await client.call("stages"))["stages"]]


@pytest.mark.slow
@pytest.mark.promise("STG-11")
async def test_closing_the_last_stage_of_a_browser_that_stands_still_waits_less_than_a_second(
    tmp_path: Path, browser: Client, site: Site, monkeypatch: pytest.MonkeyPatch
):
    others = set(Descendants(os.getpid()).running())
    async with run_tools(tmp_path) as client:
        stage = (await client.call("open", url=site.page("/still", "<h1>Still</h1>")))["stage"]
        own = {pid: name for pid, name in Descendants(os.getpid()).running().items() if pid not in others}
        browsers = [pid for pid, name in own.items() if name.startswith(str(find_browser()))]
        for pid in browsers:
            os.kill(pid, signal.SIGSTOP)
        waits = record_waits(monkeypatch)

        await client.call("close", stage=stage)

    assert 0 < sum(waits) < 1
    assert browsers
    assert ["--type=renderer" in name for name in own.values()].count(True) == 1, "none is started in reserve"
    assert not set(browsers) & set(Descendants(os.getpid()).running())


def record_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each step may wait before it goes on without an answer. The result does not depend on how busy the machine is."""
    waits: list[float] = []
    send, end = Connection.send, Child.end

    async def recorded_send(self: Connection, command: Any, session: str = "", timeout: float = 10.0) -> Any:
        waits.append(timeout)
        return await send(self, command, session, timeout)

    async def recorded_end(self: Child, grace: float) -> None:
        waits.append(2 * grace)  # SIGTERM after the grace, SIGKILL after as much again
        await end(self, grace)

    monkeypatch.setattr(Connection, "send", recorded_send)
    monkeypatch.setattr(Child, "end", recorded_end)
    return waits


def _tab(client: Client, opened: dict[str, Any]) -> Tab:
    stages = [stages for driven in client.box._driven for stages in driven._sessions.values()]
    (stage,) = [held[opened["stage"]] for held in stages if opened["stage"] in held]
    return stage.tabs[opened["tab"]]


class _Crash(msgspec.Struct):
    METHOD = "Page.crash"
    RESULT = dict


@pytest.mark.slow
async def test_a_browser_that_ends_is_reported_and_started_again(tmp_path: Path, browser: Client):
    async with run_tools(tmp_path) as client:
        first = await client.call("open")
        stage = next(iter(client.box._driven[0]._sessions.values()))[first["stage"]]
        await stage.browser.connection.send(cdp.BrowserClose())
        await stage.browser.connection.closed.wait()

        gone = await client.fail("snapshot")
        closed = await client.call("close")
        again = await client.call("open")

    assert gone.code == "BROWSER_GONE"
    assert closed["closed"] == first["stage"]
    assert again["tab"] != first["tab"]
