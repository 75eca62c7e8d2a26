"""A real app from npm, the MCP Inspector (React), served on this machine."""

import asyncio
import mimetypes
import re
from pathlib import Path

import pytest

from tests.stage.client import Client
from tests.stage.site import Seen, Site

pytestmark = pytest.mark.anyio

APP = (
    Path(__file__).resolve().parent.parent.parent
    / "peers/node_modules/@modelcontextprotocol/inspector/clients/web/dist"
)


@pytest.mark.slow
@pytest.mark.skipif(not APP.exists(), reason="The Node packages are not installed.")
async def test_a_server_is_added_in_the_mcp_inspector(client: Client, site: Site):
    for file in APP.rglob("*"):
        if file.is_file():
            _serve(site, file)
    site.answers["/api/servers"] = _answer_servers

    await client.call("open", url=f"{site.url}/index.html")
    await client.call("wait", text="Servers", timeout=30)
    menu = await client.page("click", ref=await client.ref("Add Servers", "button"))
    await client.call("click", ref=await client.ref("Add manually", "menuitem"))
    await client.call("wait", text="Server ID", timeout=30)
    await client.call("fill", ref=await client.ref("Server ID", "textbox"), value="notes")
    await client.call("type", ref=await client.ref("Command", "textbox"), text="uvx")
    await client.call("expect", ref=await client.ref("Command", "textbox"), value="uvx")
    buttons = await client.page("find", role="button", within=await client.ref("Add server", "dialog"))
    await client.call("click", ref=re.findall(r"\[(\w+)\] button Add$", buttons, re.MULTILINE)[0])

    assert "menuitem Import from registry config" in menu
    async with asyncio.timeout(20):
        while not (sent := [seen.body for seen in site.seen if seen.method == "POST"]):
            await asyncio.sleep(0.02)
    assert b"notes" in sent[0]
    assert b"uvx" in sent[0]


def _serve(site: Site, file: Path) -> None:
    kind = mimetypes.guess_type(file.name)[0] or "text/plain"
    path = f"/{file.relative_to(APP)}"
    site.answers[path] = lambda seen: (200, {"Content-Type": kind}, file.read_bytes())


def _answer_servers(seen: Seen) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, b"{}"
