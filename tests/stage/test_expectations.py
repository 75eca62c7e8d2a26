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
    both = await client.fail("expect", ref=old, state="gone", text="Ann", timeout=0.1)

    assert (both.code, both.details["expected"]) == ("STALE_REF", [f"{old} Ann"])
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
        changed["next, cut: unread(outlined) };\n}\nfunction ready"] = "next, cut: 0 };\n}\nfunction ready"
    monkeypatch.setattr(tab_events, "PAGE_SCRIPT", without(changed))
    items = "".join(f"<p>Item <b>{number}</b>.</p>" for number in range(50))
    await client.call("open", url=site.page("/large", f"{items}<p>The end</p>"))

    in_parts = await client.envelope("expect", not_text="Item 49.", timeout=0.1)
    await client.call("expect", text="Item 3.")
    await client.call("expect", text="The end")

    assert (getattr(in_parts, "code", "passed") == "NOT_YET") is is_protected
    assert ("elements were not read" in str(in_parts)) is is_protected


async def test_a_text_is_found_in_all_of_an_element_with_its_frames_and_shadow_roots(
    client: Client, site: Site
):
    site.page("/inner", "<p>In a frame</p>")
    far = "".join(f"<p>{'word ' * 20}</p>" for _ in range(100))
    html = f"""<main>{far}<p>Far down</p><div id=h></div><iframe src=/inner title=Frame></iframe></main><p>Outside</p>
    <script>h.attachShadow({{mode: 'closed'}}).innerHTML = '<p>In a root</p>'</script>"""
    await client.call("open", url=site.page("/around", html))
    main, frame = await client.ref("", "main"), await client.ref("Frame", "frame")
    found: dict[tuple[str, str], tuple[bool, bool]] = {}
    for ref in (main, frame):
        for text in ("Far down", "In a root", "In a frame", "Outside"):
            given = await client.envelope("expect", ref=ref, text=text, timeout=0.01)
            absent = await client.envelope("expect", ref=ref, not_text=text, timeout=0.01)
            found[ref, text] = isinstance(given, dict), isinstance(absent, dict)

    inside_frame = {(frame, "In a frame")}
    expected = {(main, text) for text in ("Far down", "In a root", "In a frame")} | inside_frame
    assert {place for place, (given, _) in found.items() if given} == expected
    assert {place for place, (_, absent) in found.items() if not absent} == expected


async def test_a_frame_is_read_with_the_ref_of_its_element(client: Client, site: Site):
    site.page("/inner", "<p>In a frame</p><button>Press</button>")
    url = site.page("/outer", f"<h1>Out</h1><iframe src={site.other_url}/inner title=Frame></iframe>")
    await client.call("open", url=url)
    await client.call("expect", text="In a frame")
    frame = await client.ref("Frame", "frame")

    shown = await client.page("snapshot", within=frame)
    read = await client.page("read", ref=frame, attributes=["title"])
    found = await client.page("find", role="button", within=frame)

    button = await client.ref("Press")
    assert shown.split("\n")[1:] == ["- In a frame", f"[{button}] button Press"]
    assert read == "In a frame\n\nPress\ntitle: Frame"
    assert found == f"[{button}] button Press"


async def test_roles_and_states_are_no_texts_of_the_page(client: Client, site: Site):
    html = "<form aria-label=Form><input type=checkbox required aria-label=Yes><button>Save</button></form>"
    await client.call("open", url=site.page("/roles", html))
    form = await client.ref("", "form")

    for ref in ("", form):
        for text in ("button", "checkbox", "required"):
            failed = await client.fail("expect", ref=ref, text=text, timeout=0.01)
            assert failed.code == "NOT_YET"
            await client.call("expect", ref=ref, not_text=text)
        await client.call("expect", ref=ref, text="Save")
