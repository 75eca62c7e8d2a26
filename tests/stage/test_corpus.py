"""The pages of `pages/`, used as a person would: drawing, an editor, a list that grows, frames, routes, large tables."""

import os
import re

import pytest

from tests.stage.client import Client
from tests.stage.site import Site

pytestmark = pytest.mark.anyio


async def test_a_canvas_gets_clicks(client: Client, site: Site):
    await client.call("open", url=f"{site.url}/canvas.html")

    await client.call("click", ref=await client.ref("Board", "canvas"))
    twice = await client.page("click", ref=await client.ref("Board", "canvas"))
    cleared = await client.page("click", ref=await client.ref("Clear", "button"))

    assert "+ - 2 dots" in twice
    assert "+ - No dots" in cleared


async def test_an_editor_gets_texts_formats_and_keys(client: Client, site: Site):
    await client.call("open", url=f"{site.url}/editor.html")
    body = await client.ref("Body", "textbox")

    await client.call("fill", ref=body, value="Dear Ann")
    await client.call("press", keys="Control+A", ref=body)
    pressed = await client.page("click", ref=await client.ref("Bold", "button"))
    await client.call("fill", ref=await client.ref("Style", "combobox"), value="Title")
    await client.call("type", ref=body, text=", hello")
    sent = await client.page("press", keys="Control+Enter", ref=body)

    await client.call("press", keys="Control+A", ref=body)
    emptied = await client.page("press", keys="Delete", ref=body)

    assert "button(pressed) Bold" in pressed
    assert "Sent: Dear Ann, hello" in sent
    assert "0 characters" in emptied, "what is selected in a field stays selected when it gets another key"


async def test_a_list_that_grows_when_it_is_scrolled_is_read_to_its_end(client: Client, site: Site):
    await client.call("open", url=f"{site.url}/infinite.html")
    last = await client.ref("Story 19.", "link")

    absent = await client.call("find", text="Story 20.")
    await client.call("scroll", ref=last)
    await client.call("expect", text="Story 39.", timeout=20)
    await client.call("scroll", down=100_000)
    await client.call("expect", text="Story 40.", timeout=20)

    assert "page" not in absent


@pytest.mark.slow
async def test_fields_and_buttons_in_frames_of_both_sites_are_used(client: Client, site: Site):
    opened = await client.page("open", url=f"{site.url}/frames.html")
    fields = re.findall(r"\[(\w+)\] textbox Name", opened)
    buttons = re.findall(r"\[(\w+)\] button (\w+) button", opened)
    said: list[str] = []
    for field, (button, name) in zip(fields, buttons, strict=True):
        await client.call("fill", ref=field, value=f"value {name}")
        said.append(await client.page("click", ref=button))

    assert [name for _, name in buttons] == ["Near", "Far", "Deep"]
    assert [f"{name} got value {name}" in text for (_, name), text in zip(buttons, said, strict=True)] == [
        True
    ] * 3


async def test_routes_of_one_document_change_the_address_and_the_title(client: Client, site: Site):
    await client.call("open", url=f"{site.url}/routes.html")

    await client.call("click", ref=await client.ref("List", "link"))
    await client.call("expect", url="*#list", title="Routes: list", text="Two", timeout=20)
    back = await client.page("goto", url="back")
    await client.call("expect", title="Routes: home", text="Welcome", timeout=20)
    tabs = await client.page("tabs")

    assert "routes.html" in back
    assert "Routes: home — " in tabs


@pytest.mark.slow
@pytest.mark.promise("STG-05")
@pytest.mark.parametrize(
    "rows",
    [
        1_000,
        pytest.param(
            10_000,
            marks=pytest.mark.skipif(
                not os.environ.get("HOLDFAST_STAGE_HEAVY"), reason="It takes long: make stage-heavy."
            ),
        ),
    ],
)
async def test_every_row_of_a_table_can_be_found_and_used(client: Client, site: Site, rows: int):
    answer = await client.call("open", url=f"{site.url}/table.html?rows={rows}")
    found = await client.call("find", text=f"Order tea {rows - 1}.", role="button")

    if not found.get("unread"):  # a busy machine reads a part of a large page, and says so
        (ref,) = re.findall(r"\[(\w+)\]", found["page"])
        assert (await client.call("click", ref=ref))["changed"] == "nothing"
    assert answer["left_out"] > rows
    assert "End of the table" in answer["page"], "what follows a long list is shown"
