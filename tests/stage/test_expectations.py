"""What `expect` and `wait` answer if the element is gone, the page hangs, or not all of it could be read."""

import pytest

from holdfast.builtin.stage import tab_events
from tests.stage.client import Client, inside
from tests.stage.site import Site
from tests.stage.test_hidden_texts import without
from tests.stage.test_limits import record_waits

pytestmark = [pytest.mark.anyio, pytest.mark.promise("STG-20")]


async def test_an_element_that_was_replaced_is_reported_with_expected_actual_and_the_new_one(
    client: Client, site: Site
):
    html = """<div id=d><input aria-label=Name value=Ann></div><script>const render = () => { d.innerHTML = d.innerHTML }</script>"""
    await client.call("open", url=site.page("/rendered", html))
    await client.call("snapshot")
    old = await client.ref("Name")
    await client.call("evaluate", script="render()")
    new = await client.ref("Name")

    failed = await client.fail("expect", ref=old, value="Bob", timeout=0.1)
    await client.call("expect", ref=old, state="gone")

    assert (failed.code, failed.details["expected"]) == ("STALE_REF", [f"{old} Bob"])
    assert inside(failed.details["actual"]) == f"{old} is no longer on the page"
    assert inside(failed.details["similar"]) == f"[{new}] textbox Name = Ann"


async def test_a_page_that_hangs_is_reported_at_the_deadline(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
):
    await client.call("open", url=site.page("/hangs", "<h1>Hangs</h1>"))
    await client.call("evaluate", script="setTimeout(() => { for (;;); })")
    waits = record_waits(monkeypatch)

    failed = await client.fail("expect", text="Done", timeout=0.5)

    assert (failed.code, failed.details["expected"]) == ("PAGE_HUNG", ["a page that answers"])
    assert max(waits) <= 2


@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_a_text_in_a_part_that_was_not_read_is_not_said_to_be_absent(
    client: Client, site: Site, is_protected: bool, monkeypatch: pytest.MonkeyPatch
):
    changed = {"MAX_NODES = 400000": "MAX_NODES = 20"}
    if not is_protected:
        changed["next, cut: unread(found) };\n}\nfunction ready"] = "next, cut: 0 };\n}\nfunction ready"
    monkeypatch.setattr(tab_events, "PAGE_SCRIPT", without(changed))
    items = "".join(f"<p>Item <b>{number}</b>.</p>" for number in range(50))
    await client.call("open", url=site.page("/large", f"{items}<p>The end</p>"))

    in_parts = await client.envelope("expect", not_text="Item 49.", timeout=0.1)
    await client.call("expect", text="Item 3.")
    await client.call("expect", text="The end")

    assert (getattr(in_parts, "code", "passed") == "NOT_YET") is is_protected
    assert ("elements were not read" in str(in_parts)) is is_protected
