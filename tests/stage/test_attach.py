"""Attach to a browser that Holdfast has not started."""

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.builtin.stage.find_browser import find_browser
from tests.stage.client import run_tools
from tests.stage.site import Site

pytestmark = pytest.mark.anyio
needs_browser = pytest.mark.skipif(find_browser() is None, reason="There is no Chromium.")


@needs_browser
@pytest.mark.promise("STG-19")
async def test_an_attached_browser_is_used_and_never_closed(tmp_path: Path, site: Site):
    site.page("/popup", "<h1>Popup</h1>")
    site.answers["/file"] = lambda seen: (200, {"Content-Type": "application/octet-stream"}, b"content")
    html = """<title>Mine</title><button onclick="this.textContent='pressed'">Press</button>
    <a href=/popup target=_blank>New</a><a href=/file download=own-name.bin>Get</a>"""
    url = site.page("/attached", html)
    own_folder = tmp_path / "own-downloads"
    with run_browser(url, own_folder) as (process, port):
        async with run_tools(tmp_path) as client:
            attached = await client.call("attach", endpoint=f"127.0.0.1:{port}")
            await client.call("wait", text="Press")
            clicked = await client.call("click", ref=await client.ref("Press", "button"))
            upload = await client.fail("upload", ref=await client.ref("pressed"), paths=["x"])
            await client.call("click", ref=await client.ref("Get", "link"))
            while not (own_folder / "own-name.bin").exists():
                await asyncio.sleep(0.02)
            downloads = await client.call("downloads")
            await client.call("click", ref=await client.ref("New", "link"))
            while len((listed := await client.page("tabs")).split("\n")) < 2:
                await asyncio.sleep(0.02)
            await client.call("wait", tab="t2", text="Popup")
            third = await client.page("tab", action="new", url=url)
            await client.call("close", stage=attached["stage"])
        async with run_tools(tmp_path) as client:
            again = await client.call("attach", endpoint=f"http://127.0.0.1:{port}")

        assert process.poll() is None
        assert "not Holdfast's" in attached["warning"]
        assert "Mine — " in listed
        assert "button pressed" in clicked["page"]
        assert upload.code == "DENIED"
        assert (own_folder / "own-name.bin").read_bytes() == b"content"
        assert "page" not in downloads, "its downloads are the user's"
        assert "button Press" in third
        assert again["page"].count("/attached") == 2
        assert "/popup" in again["page"]


@pytest.mark.parametrize(
    "endpoint",
    [
        *("127.0.0.1:9", "example.org:9222", "169.254.169.254:80", "file:///x", "nonsense"),
        *("http://[", "127.0.0.1:99999"),
    ],
)
async def test_only_browsers_on_this_machine_can_be_attached(endpoint: str, tmp_path: Path):
    async with run_tools(tmp_path) as client:
        failed = await client.fail("attach", endpoint=endpoint)

    assert failed.code == "LOAD_FAILED"


async def test_a_websocket_address_without_a_browser_cannot_be_attached(tmp_path: Path, site: Site):
    address = site.page("/devtools", "<h1>Not a browser</h1>").replace("http:", "ws:")
    async with run_tools(tmp_path) as client:
        failed = await client.fail("attach", endpoint=address)

    assert failed.code == "LOAD_FAILED"


@contextmanager
def run_browser(
    url: str, downloads: Path, flags: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A browser that Holdfast has not started, and the port of its DevTools."""
    program = find_browser()
    assert program
    flags = [
        *flags,
        "--headless=new",
        "--remote-debugging-port=0",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        preferences = Path(profile, "Default", "Preferences")
        preferences.parent.mkdir()
        preferences.write_text(json.dumps({"download": {"default_directory": str(downloads)}}))
        command = [program, *flags, f"--user-data-dir={profile}", url]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield process, _port(Path(profile, "DevToolsActivePort"))
        finally:
            process.terminate()
            process.wait(10)


def _port(file: Path) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if file.exists() and (text := file.read_text()).count("\n"):
            return int(text.split("\n")[0])
        time.sleep(0.05)
    raise AssertionError("the browser did not start")
