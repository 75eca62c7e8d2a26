"""Presses hit the element that was meant, also if it is in a frame, under a frame, or far away."""

import re

import pytest

from holdfast.builtin.stage import actions
from holdfast.builtin.stage.frames import Document
from holdfast.builtin.stage.presses import Press
from holdfast.builtin.stage.tab import Tab
from tests.stage.client import Client
from tests.stage.site import Site

pytestmark = pytest.mark.anyio

COVER = "position:fixed; inset:0; width:100%; height:100%; border:0"
ON_MOVE = "<script>addEventListener('mousemove', () => cover(), {capture: true, once: true})</script>"
TARGET = "<button>Target</button>"
LATER = f"<script>const cover = () => {{ over.style.display = 'block' }}</script>{ON_MOVE}"
HIDDEN = f"id=over style='{COVER}; display:none'"
OVERLAYS = {
    "element": f"<p {HIDDEN} onclick=\"this.append('stolen')\" onpointerdown=\"this.append('stolen')\">x</p>{LATER}",
    "frame": f"<iframe {HIDDEN} src=/overlay></iframe>{LATER}",
    "frame of another site": f"<iframe {HIDDEN} src=OTHER/overlay></iframe>{LATER}",
    "new frame": f"""<script>const cover = () => {{ const over = document.createElement('iframe'); over.style = '{COVER}';
    document.body.append(over); over.contentDocument.onclick = () => over.contentDocument.body.append('stolen') }}</script>{ON_MOVE}""",
}


@pytest.mark.promise("STG-12")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
@pytest.mark.parametrize(
    "overlay",
    [
        "element",
        "frame of another site",
        *(pytest.param(slow, marks=pytest.mark.slow) for slow in ("frame", "new frame")),
    ],
)
async def test_an_overlay_that_comes_between_check_and_press_gets_no_click(
    client: Client, site: Site, overlay: str, is_protected: bool, monkeypatch: pytest.MonkeyPatch
):
    site.page("/overlay", "<body style='height:100vh; margin:0' onclick=\"document.body.append('stolen')\">")
    await client.call(
        "open",
        url=site.page("/under", f"{TARGET}{OVERLAYS[overlay]}".replace("OTHER", site.other_url)),
    )
    target = await client.ref("Target", "button")
    if not is_protected:

        async def arm(tab: Tab, document: Document, number: int) -> list[Document]:
            await tab.run(document, "settle", quiet=100, ms=400)  # the overlay is on the screen
            return []

        async def finish_press(*_: object, **__: object) -> Press:
            return Press("hit")

        monkeypatch.setattr(actions, "arm", arm)
        monkeypatch.setattr(actions, "finish_press", finish_press)

    clicked = await client.envelope("click", ref=target)
    is_stolen = "stolen" in await client.page("snapshot")

    assert getattr(clicked, "code", "clicked") == ("COVERED" if is_protected else "clicked")
    assert is_stolen is not is_protected


async def test_a_click_on_a_frame_goes_into_it(client: Client, site: Site):
    site.page("/inner", "<body style='height:100vh; margin:0' onclick=\"document.body.append('pressed')\">")
    html = (
        f"<iframe title=First src=/inner></iframe><iframe title=Second src={site.other_url}/inner></iframe>"
    )
    await client.call("open", url=site.page("/frames", html))

    for name in ("First", "Second"):
        assert "pressed" in await client.page("click", ref=await client.ref(name, "frame"))


async def test_elements_in_frames_that_are_scaled_get_clicks(client: Client, site: Site):
    site.page(
        "/inner",
        "<button style='margin:90px 0 0 130px' onclick=\"this.textContent='Pressed'\">Press</button>",
    )
    styles = (
        "transform:scale(0.5)",
        "zoom:2",
        "zoom:0.5",
        "transform:scale(1.5); padding:9px; border:5px solid",
    )
    frames = [
        f"<p><iframe width=400 height=200 style='transform-origin:0 0; {style}' src={site.other_url}/inner></iframe></p>"
        for style in styles
    ]
    shown = await client.page("open", url=site.page("/scaled", "<p style='height:300px'>".join(frames)))

    for ref in re.findall(r"\[(\w+)\] button Press", shown):
        assert f"[{ref}] button Pressed" in await client.page("click", ref=ref)
    assert (await client.page("snapshot")).count("button Pressed") == len(styles)


@pytest.mark.parametrize("kind", ["draggable=true", ""])
async def test_an_element_is_dragged_to_one_that_is_far_away(client: Client, site: Site, kind: str):
    html = f"""<div {kind} tabindex=0>Card</div><div style="height:2500px"></div>
    <div tabindex=0 style="height:90px" ondragover="event.preventDefault()" ondrop="this.append(' dropped')" onmouseup="this.append(' released')">Bin</div>"""
    await client.call("open", url=site.page("/far", html))

    dragged = await client.page("drag", ref=await client.ref("Card"), to=await client.ref("Bin"))

    assert ("dropped" if kind else "released") in dragged


@pytest.mark.promise("STG-12")
async def test_a_drag_that_something_covers_at_the_last_moment_presses_nothing(client: Client, site: Site):
    html = f"{TARGET}<p tabindex=0 style='position:fixed; top:300px'>Bin</p>{OVERLAYS['element']}"
    await client.call("open", url=site.page("/drag-under", f"{html}"))
    target, to = await client.ref("Target"), await client.ref("Bin")

    failed = await client.fail("drag", ref=target, to=to)

    assert failed.code == "COVERED"
    assert "stolen" not in await client.page("snapshot")
