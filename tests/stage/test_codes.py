"""Failures that no page causes: no browser, one that does not start, and what belongs to another stage or caller."""

import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast.builtin.stage.browser import Stage
from holdfast.builtin.stage.cdp import protocol as cdp
from tests.stage.client import Client, run_tools
from tests.stage.site import Site

pytestmark = pytest.mark.anyio


async def test_a_browser_that_is_not_a_program_is_reported(tmp_path: Path):
    async with run_tools(tmp_path, program=str(tmp_path / "missing")) as client:
        failed = await client.fail("open")

    assert failed.code == "NO_BROWSER"
    assert "missing" in failed.message


async def test_a_browser_that_exits_at_once_is_reported_with_its_last_words(tmp_path: Path, browser: Client):
    program = "/usr/bin/false"
    async with run_tools(tmp_path, program=program) as client:
        failed = await client.fail("open")

    assert failed.code == "LAUNCH_FAILED"
    assert f"Run: {program} --version" in failed.message


async def test_the_command_for_a_browser_with_a_space_in_its_path_can_be_copied(
    tmp_path: Path, browser: Client
):
    program = tmp_path / "Google Chrome"
    shutil.copy("/usr/bin/false", program)
    async with run_tools(tmp_path, program=str(program)) as client:
        failed = await client.fail("open")

    assert failed.message.endswith(f"Run: '{program}' --version")


async def test_a_file_field_is_not_filled(client: Client, site: Site):
    await client.call("open", url=site.page("/file-field", "<input type=file aria-label=Photo>"))

    failed = await client.fail("fill", ref=await client.ref("Photo"), value="x")

    assert failed.code == "UNSUPPORTED_HERE"
    assert "upload" in failed.message


@pytest.mark.slow
@pytest.mark.promise("STG-01")
async def test_no_caller_can_use_anothers_ref_or_download(client: Client, site: Site, folder: Path):
    site.answers["/own-file"] = lambda seen: (200, {"Content-Type": "application/octet-stream"}, b"own")
    await client.call(
        "open", url=site.page("/own", "<button>Press</button><a href=/own-file download>Get</a>")
    )
    ref = await client.ref("Press", "button")
    await client.call("click", ref=await client.ref("Get", "link"))
    stranger = Client(client.box, "bob")
    without = [await stranger.fail("click", ref=ref), await stranger.fail("downloads", number=1, save_as="x")]
    opened = await stranger.call("open")

    with_own = [
        await stranger.fail("click", ref=ref),
        await stranger.fail("downloads", number=1, save_as="x"),
    ]
    listed = await stranger.call("downloads")
    own = await client.page("downloads")
    await stranger.call("close", stage=opened["stage"])

    assert {failed.code for failed in without} <= {"TAB_GONE", "NOT_RUNNING", "NO_ELEMENT"}
    assert {failed.code for failed in with_own} <= {"TAB_GONE", "NO_ELEMENT"}
    assert "page" not in listed
    assert "own-file" in own
    assert not (folder / "x").exists()


@pytest.mark.promise("STG-01")
async def test_stages_share_no_cache(client: Client, site: Site):
    headers = {"Content-Type": "text/javascript", "Cache-Control": "max-age=3600"}
    site.answers["/cached.js"] = lambda seen: (200, headers, b"0")
    url = site.page("/caching", "<script src=/cached.js></script><h1>Cached</h1>")
    await client.call("open", url=url)
    await client.call("goto", url=f"{url}?again")
    in_one_stage = site.paths().count("/cached.js")

    await client.call("open", url=url)

    assert in_one_stage == 1, "a stage has a cache"
    assert site.paths().count("/cached.js") == 2


@pytest.mark.promise("STG-01")
async def test_stages_share_no_permissions(client: Client, site: Site):
    url = site.page("/permitted", "<h1>Permitted</h1>")
    look = "navigator.permissions.query({name: 'geolocation'}).then((found) => found.state)"
    first = _stage(client, await client.call("open", url=url))
    await first.browser.connection.send(
        _Grant(permissions=["geolocation"], browser_context_id=first.context_id)
    )

    in_first = await client.page("evaluate", script=look)
    await client.call("open", url=url)
    in_second = await client.page("evaluate", script=look)

    assert (in_first, in_second) == ('"granted"', '"denied"')


async def test_a_picture_of_an_element_in_a_frame_is_not_supported(client: Client, site: Site):
    await client.call("open", url=site.page("/framed", "<iframe srcdoc='<button>Inner</button>'></iframe>"))

    failed = await client.fail("screenshot", ref=await client.ref("Inner", "button"))

    assert failed.code == "UNSUPPORTED_HERE"


@pytest.mark.slow
async def test_a_tab_that_cannot_load_its_page_is_not_left_open(client: Client):
    opened = await client.call("open")

    denied = await client.fail("tab", action="new", url="file:///etc/passwd")
    failed = await client.fail("tab", action="new", url="http://127.0.0.1:9876/")

    assert (denied.code, failed.code) == ("URL_DENIED", "LOAD_FAILED")
    assert (await client.call("stages"))["stages"][-1]["tabs"] == [opened["tab"]]


class _Grant(cdp.Command[cdp.NoResult], frozen=True, kw_only=True, rename="camel"):
    METHOD: ClassVar[str] = "Browser.grantPermissions"
    RESULT: ClassVar[type] = cdp.NoResult

    permissions: list[str]
    browser_context_id: str


def _stage(client: Client, opened: dict[str, Any]) -> Stage:
    held = [stages for driven in client.box._driven for stages in driven._sessions.values()]
    (stage,) = [stages[opened["stage"]] for stages in held if opened["stage"] in stages]
    return stage
