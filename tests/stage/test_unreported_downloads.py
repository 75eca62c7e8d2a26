"""Downloads that the browser does not report, because their frame or tab is gone when the server answers."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.builtin.stage import downloads
from holdfast.builtin.stage.browser import Browser, Stage
from tests.stage.client import Client
from tests.stage.site import Answer, Seen, Site

pytestmark = pytest.mark.anyio

PAGE = """<h1>Page</h1><script>function download(inside) {
  const link = inside.createElement('a');
  link.href = '/late'; link.download = 'late.bin';
  inside.body.append(link);
  link.click();
}</script>"""
GONE = {
    "frame": (
        "const frame = document.createElement('iframe'); document.body.append(frame); download(frame.contentDocument)",
        "document.querySelector('iframe').remove()",
    ),
    "tab": ("window.other = window.open('about:blank'); download(other.document)", "other.close()"),
}


@pytest.mark.promise("STG-14")
@pytest.mark.parametrize("gone", GONE)
async def test_a_download_is_listed_and_saved_although_its_frame_or_tab_is_gone(
    client: Client, site: Site, folder: Path, gone: str
):
    stage = await _download(client, site, gone)

    await _until(lambda: _files(stage) == [1000])
    listed = await client.page("downloads")
    saved = await client.call("downloads", number=1, save_as=f"{gone}.bin")

    assert "1 completed 1000 bytes of a page or frame that was closed" in listed
    assert saved["bytes"] == 1000
    assert (folder / f"{gone}.bin").read_bytes() == b"x" * 1000


@pytest.mark.promise("STG-14")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
@pytest.mark.parametrize(
    ("limit", "reason"),
    [("MAX_DOWNLOADS", "too many downloads"), ("MAX_DOWNLOAD_BYTES", "the stage's downloads are too large")],
)
async def test_downloads_of_frames_that_are_gone_are_bounded(
    client: Client,
    site: Site,
    limit: str,
    reason: str,
    is_protected: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(downloads, limit, 0)
    if not is_protected:

        async def find_nothing(browser: Browser) -> None:
            pass

        monkeypatch.setattr(Browser, "update_unreported_downloads", find_nothing)

    stage = await _download(client, site, "frame")
    if is_protected:
        await _until(lambda: bool(stage.notices.unreported))
    await _until(lambda: _files(stage) == ([] if is_protected else [1000]))
    answer = str(await client.call("downloads"))

    assert (reason in answer) is is_protected
    assert ("dropped" in answer) is (is_protected and limit == "MAX_DOWNLOADS")


async def _download(client: Client, site: Site, gone: str) -> Stage:
    """Begin a download, remove its frame or tab, and only then let the server answer."""
    start, remove = GONE[gone]
    begun = site.paths().count("/late")
    with _late_answer() as (answer, release):
        site.answers["/late"] = answer
        opened = await client.call("open", url=site.page("/begins", PAGE))
        await client.call("evaluate", script=f"{start}; 0", tab=opened["tab"])
        await _until(lambda: site.paths().count("/late") > begun)
        await client.call("evaluate", script=f"{remove}; 0", tab=opened["tab"])
        held = [stages for driven in client.box._driven for stages in driven._sessions.values()]
        (stage,) = [stages[opened["stage"]] for stages in held if opened["stage"] in stages]
        await _until(lambda: [*stage.tabs] == [opened["tab"]])
        await client.call("snapshot", tab=opened["tab"])  # the browser has done all that came before
        release()
    return stage


@contextmanager
def _late_answer() -> Iterator[tuple[Callable[[Seen], Answer], Callable[[], None]]]:
    released = threading.Event()

    def answer(seen: Seen) -> Answer:
        released.wait(60)
        return 200, {"Content-Type": "application/octet-stream"}, b"x" * 1000

    try:
        yield answer, released.set
    finally:
        released.set()


def _files(stage: Stage) -> list[Any]:
    """For each file in the stage's folder: its size or, while the download runs, its name."""
    assert stage.browser.process is not None
    folder = stage.browser.process.folder / stage.download_folder
    return [path.name if path.suffix else path.stat().st_size for path in folder.iterdir()]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)
