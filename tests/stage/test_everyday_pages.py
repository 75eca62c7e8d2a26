"""What a model meets on ordinary pages: masks, disabled options, slow downloads, locked pointers, hung pages, questions of the browser."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.builtin.stage import launch, navigate
from holdfast.builtin.stage.chromium_flags import PREFERENCES
from tests.stage.client import Client, run_tools
from tests.stage.site import Answer, Seen, Site

pytestmark = pytest.mark.anyio

ASKING = """<p role=status></p><script>const say = (text) => { document.querySelector('p').textContent = text }</script>
<button onclick="navigator.mediaDevices.getDisplayMedia().then(() => say('shown'), (error) => say(error.name))">Share screen</button>
<button onclick="Notification.requestPermission().then(say)">Notify</button>
<button onclick="navigator.usb.requestDevice({filters: []}).then(() => say('device'), (error) => say(error.name))">Device</button>
<button onclick="say('pressed')">Press</button>"""


@pytest.mark.slow
@pytest.mark.promise("STG-10", "STG-11")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_questions_of_the_browser_are_answered_and_keep_no_clicks_from_the_page(
    is_protected: bool, tmp_path: Path, browser: Client, site: Site, monkeypatch: pytest.MonkeyPatch
):
    if not is_protected:
        allowed = {name: value for name, value in PREFERENCES.items() if name not in ("profile", "hardware")}
        monkeypatch.setattr(launch, "PREFERENCES", allowed)
    said: dict[str, Any] = {}
    async with run_tools(tmp_path) as client:
        for name, answer in {
            "Notify": "denied",
            "Device": "NotFoundError",
            "Share screen": "NotAllowedError",
        }.items():
            await client.call("open", url=site.page("/asking", ASKING))
            await client.envelope("click", ref=await client.ref(name, "button"))
            said[name] = await client.envelope("expect", text=answer, timeout=5 if is_protected else 0.5)
        pressed = await client.envelope("click", ref=await client.ref("Press", "button"))

    assert {name: isinstance(answer, dict) for name, answer in said.items()} == dict.fromkeys(
        said, is_protected
    )
    assert ("- pressed" in str(pressed)) is is_protected


async def test_an_element_that_locks_the_pointer_does_not_get_the_clicks_of_others(
    client: Client, site: Site
):
    html = """<button onclick="this.requestPointerLock().then(() => { this.textContent = 'Locked' })">Lock</button>
    <button onclick="this.textContent = 'Pressed'">Press</button>"""
    await client.call("open", url=site.page("/lock", html))
    lock, press = await client.ref("Lock", "button"), await client.ref("Press", "button")

    await client.call("click", ref=lock)
    await client.call("expect", text="Locked")
    pressed = await client.page("click", ref=press)

    assert "button Pressed" in pressed
    await client.call("click", ref=lock)
    await client.call("click", ref=lock)


async def test_a_field_that_changes_what_is_entered_says_what_it_has(client: Client, site: Site):
    upper = "oninput='this.value = this.value.toUpperCase()'"
    html = f"<input aria-label=Code {upper}><input type=password aria-label=Pin {upper}>"
    await client.call("open", url=site.page("/masked", html))

    code = await client.fail("fill", ref=await client.ref("Code"), value="ab 1")
    pin = await client.fail("fill", ref=await client.ref("Pin"), value="ab 1")

    assert (code.code, "It has: AB 1" in code.details["page"]) == ("NO_EFFECT", True)
    assert "It has: (hidden)" in pin.details["page"]


async def test_disabled_options_are_marked_and_not_offered(client: Client, site: Site):
    html = "<select aria-label=Size><option>Small<option disabled>Medium<option>Large</select>"
    shown = await client.page("open", url=site.page("/sizes", html))

    failed = await client.fail("fill", ref=await client.ref(" Size "), value="Medium")

    assert "(options: Small | Medium (disabled) | Large)" in shown
    assert "Medium" not in failed.details["page"]
    await client.call("expect", text="  Size ")


async def test_a_click_on_a_download_link_says_that_its_server_has_not_answered(client: Client, site: Site):
    may_answer = threading.Event()

    def answer(seen: Seen) -> Answer:
        may_answer.wait(60)
        return 200, {"Content-Type": "application/octet-stream"}, b"late"

    site.answers["/late-file"] = answer
    site.answers["/file-now"] = lambda seen: (200, {"Content-Type": "application/octet-stream"}, b"now")
    await client.call(
        "open",
        url=site.page("/links", "<a href=/file-now download>Now</a><a href=/late-file download>Late</a>"),
    )

    now = await client.page("click", ref=await client.ref("Now"))
    try:
        late = await client.page("click", ref=await client.ref("Late"))
    finally:
        may_answer.set()

    assert "! download 1 began: file-now" in now
    assert late == "! no download has begun yet: downloads will list it"


async def test_the_list_of_tabs_has_whole_addresses(client: Client, site: Site):
    await client.call("open", url=f"{site.page('/app', '<h1>App</h1>')}#/orders")

    assert f"{site.url}/app#/orders" in await client.page("tabs")


@pytest.mark.slow
@pytest.mark.parametrize("busy", ["setTimeout(() => { for (;;); })", "onbeforeunload = () => { for (;;); }"])
async def test_reload_and_back_lead_to_the_right_page_after_one_that_was_busy(
    client: Client, site: Site, busy: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(navigate, "_PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(navigate, "_STOP_SECONDS", 1.0)
    site.page("/second", "<h1>Second</h1>")
    await client.call("open", url=site.page("/first", "<h1>First</h1>"))
    await client.call("goto", url=f"{site.url}/second")

    await client.call("evaluate", script=f"{busy}; 0")
    reloaded = await client.page("goto", url="reload")
    await client.call("evaluate", script=f"{busy}; 0")
    back = await client.page("goto", url="back")

    assert "h1 Second" in reloaded
    # Where the scripts of a page were stopped, `reload` has loaded it as a new page.
    assert "h1 First" in back or "h1 Second" in back


@pytest.mark.promise("STG-03")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_links_for_mail_open_no_program(client: Client, site: Site, is_protected: bool):
    opened = await client.call("open", url=site.page("/mail", "<a href='mailto:ann@example.org'>Write</a>"))
    programs = _browser_folder(client, opened["stage"]) / "programs"
    run = programs.parent / "profile" / "run"
    # The browser takes its program from this folder. In the control, it is one that notes its argument.
    found = {path.name: path.readlink() for path in programs.iterdir()}
    if not is_protected:
        (programs / "xdg-email").unlink()
        (programs / "xdg-email").write_text(f'#!/bin/sh\necho "$@" > {run}\n')
        (programs / "xdg-email").chmod(0o755)

    clicked = await client.page("click", ref=await client.ref("Write", "link"))
    if not is_protected:
        async with asyncio.timeout(60):
            while not (run.exists() and run.read_text()):
                await asyncio.sleep(0.02)
        assert run.read_text() == "mailto:ann@example.org\n"
        run.unlink()
        (programs / "xdg-email").unlink()
        (programs / "xdg-email").symlink_to(found["xdg-email"])

    assert clicked == "! URL_DENIED for the page: mailto:ann@example.org"
    assert {name: target.name for name, target in found.items()} == {
        "xdg-email": "false",
        "xdg-open": "false",
    }


def _browser_folder(client: Client, stage: str) -> Path:
    held = [stages for driven in client.box._driven for stages in driven._sessions.values()]
    (process,) = [stages[stage].browser.process for stages in held if stage in stages]
    return process.folder
