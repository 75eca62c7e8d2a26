"""Clicks, texts, keys, drags: they act on the right element, or say why they do not."""

import re
from pathlib import Path

import pytest

from tests.stage.client import Client, inside
from tests.stage.site import Site

pytestmark = pytest.mark.anyio

LOG = "<script>window.log = []; const say = (w) => log.push(w)</script>"


async def log_of(client: Client) -> str:
    return await client.page("evaluate", script="JSON.stringify(window.log)")


@pytest.mark.slow
async def test_a_click_gives_the_page_real_events_and_answers_with_what_changed(client: Client, site: Site):
    html = (
        f"""{LOG}<button onclick="say(event.isTrusted); out.textContent = 'Done'">Go</button><p id=out></p>"""
    )
    await client.call("open", url=site.page("/click", html))

    answer = await client.call("click", ref=await client.ref("Go", "button"))

    assert inside(answer["page"]) == "@@ -2,0 +2,1 @@\n+- Done"
    assert await log_of(client) == '"[true]"'


async def test_double_and_right_clicks_and_modifiers(client: Client, site: Site):
    html = f"""{LOG}<button ondblclick="say('double')" oncontextmenu="say('menu'); return false" onclick="if (event.shiftKey) say('shift')">B</button>"""
    await client.call("open", url=site.page("/clicks", html))
    ref = await client.ref("B", "button")

    await client.call("click", ref=ref, double=True)
    await client.call("click", ref=ref, button="right")
    await client.call("click", ref=ref, modifiers=["Shift"])

    assert await log_of(client) == '"[\\"double\\",\\"menu\\",\\"shift\\"]"'


@pytest.mark.slow
async def test_clicks_in_frames_and_closed_shadow_roots(client: Client, site: Site):
    site.page("/pressed", "<button style='margin:30px' onclick=\"this.textContent='pressed'\">Press</button>")
    html = f"""<div style="height:1500px"></div><iframe src={site.other_url}/pressed style="border:7px solid; padding:11px"></iframe>
    <div id=host></div><script>const r = host.attachShadow({{mode:'closed'}}); r.innerHTML = '<button>Shadow</button>';
    r.firstChild.onclick = () => r.firstChild.textContent = 'touched'</script>"""
    await client.call("open", url=site.page("/inside", html))

    frame = await client.call("click", ref=await client.ref("Press", "button"))
    shadow = await client.call("click", ref=await client.ref("Shadow", "button"))

    assert "button pressed" in frame["page"]
    assert "button touched" in shadow["page"]


@pytest.mark.promise("STG-12")
@pytest.mark.parametrize(
    ("html", "code"),
    [
        ("<button disabled>Go</button>", "ELEMENT_DISABLED"),
        ("<fieldset disabled><button>Go</button></fieldset>", "ELEMENT_DISABLED"),
        ("<div aria-disabled=true><button>Go</button></div>", "ELEMENT_DISABLED"),
        (
            "<button>Go</button><div aria-label=Banner role=region style='position:fixed;inset:0'></div>",
            "COVERED",
        ),
        (
            "<button id=b>Go</button><script>const hide = () => { b.style.visibility = 'hidden' }</script>",
            "NOT_VISIBLE",
        ),
        (
            "<button id=m style='position:absolute'>Go</button><script>let x = 0; (function f() { m.style.left = (x = (x + 31) % 400) + 'px'; requestAnimationFrame(f) })()</script>",
            "NOT_VISIBLE",
        ),
        ("<button style='pointer-events:none'>Go</button>", "COVERED"),
    ],
)
async def test_what_cannot_be_clicked_is_not(client: Client, site: Site, html: str, code: str):
    await client.call("open", url=site.page("/no", f"{LOG}<body onclick=say('clicked')>{html}"))
    ref = await client.ref("Go", "button")
    if "hide" in html:
        await client.call("evaluate", script="hide()")

    failed = await client.fail("click", ref=ref, timeout=0.4)

    assert failed.code == code
    assert await log_of(client) == '"[]"'


@pytest.mark.promise("STG-12")
async def test_the_cover_is_named_and_can_be_clicked_instead(client: Client, site: Site):
    html = """<button>Buy</button><div id=c role=dialog aria-label=Cookies style="position:fixed;inset:0;background:#eee">
    <button style="margin:200px" onclick="c.remove()">Accept</button></div>"""
    await client.call("open", url=site.page("/cover", html))
    ref = await client.ref("Buy", "button")

    failed = await client.fail("click", ref=ref, timeout=0.3)
    await client.call("click", ref=await client.ref("Accept", "button"))

    assert failed.code == "COVERED"
    assert "dialog Cookies" in str(failed.details["page"])
    await client.call("click", ref=ref)


@pytest.mark.promise("STG-06")
async def test_a_ref_never_means_another_element(client: Client, site: Site):
    html = f"""{LOG}<ul id=l>{"".join(f'<li>Row {n} <button onclick="say({n}); this.parentNode.remove()">Delete</button></li>' for n in range(3))}</ul>"""
    shown = await client.page("open", url=site.page("/rows", html))
    first, second, third = re.findall(r"\[(\w+)\] button Delete", shown)

    await client.call("click", ref=first)
    stale = await client.fail("click", ref=first)
    await client.call("click", ref=third)

    assert stale.code == "STALE_REF"
    assert f"[{second}] button Delete" in str(stale.details["similar"])
    assert await log_of(client) == '"[0,2]"'


@pytest.mark.slow
@pytest.mark.promise("STG-06")
async def test_refs_of_an_earlier_page_or_another_tab_are_never_reused(client: Client, site: Site):
    url = site.page("/same", "<button>Go</button>")
    shown = await client.page("open", url=url)
    old = re.search(r"\[(\w+)\] button Go", shown)
    assert old
    again = await client.page("goto", url="reload")
    other = await client.call("tab", action="new", url=url)

    assert f"[{old[1]}]" not in again
    assert f"[{old[1]}]" not in other["page"]
    assert (await client.fail("click", ref=old[1])).code == "STALE_REF"
    assert (await client.fail("click", ref="e99999")).code in ("NO_ELEMENT", "TAB_GONE")
    assert (await client.fail("click", ref="button")).code == "NO_ELEMENT"


async def test_fields_get_values_by_input_events(client: Client, site: Site):
    html = f"""{LOG}<input aria-label=Name value=old oninput="say(event.inputType + ':' + this.value)">
    <textarea aria-label=Story></textarea><input type=checkbox aria-label=Box onchange="say('box')">
    <select aria-label=One onchange="say(this.value)"><option value=r>Red<option value=g>Green</select>
    <select aria-label=Many multiple><option>A<option>B<option>C</select>
    <input type=date aria-label=Day><input type=range aria-label=Level min=0 max=10>
    <div contenteditable aria-label=Editor role=textbox>old text</div>"""
    await client.call("open", url=site.page("/fill", html))

    async def fill(name: str, value: object) -> None:
        await client.call("fill", ref=await client.ref(name), value=value)

    await fill("Name", "Ann ✓")
    await fill("Story", "two\nlines")
    await fill("Box", True)
    await fill("Box", True)
    await fill("One", "Green")
    await fill("Many", ["A", "C"])
    await fill("Day", "2026-11-17")
    await fill("Level", "7")
    await fill("Editor", "new text")

    shown = await client.page("snapshot")
    for expected in (
        "textbox Name = Ann ✓",
        "textbox Story = two lines",
        "checkbox(checked) Box",
        "combobox One = Green",
        "listbox Many = A, C",
        "textbox Day = 2026-11-17",
        "slider Level = 7",
        "textbox Editor = new text",
    ):
        assert expected in shown
    assert await log_of(client) == '"[\\"insertText:Ann ✓\\",\\"box\\",\\"g\\"]"'


async def test_a_field_that_refuses_a_value_is_reported(client: Client, site: Site):
    html = """<input aria-label=Digits oninput="this.value = this.value.replace(/[^0-9]/g, '')"><input readonly aria-label=Fixed value=1>
    <select aria-label=One><option>Red</select><p role=button>Text</p>"""
    await client.call("open", url=site.page("/refuse", html))

    async def code(name: str, value: object) -> str:
        return (await client.fail("fill", ref=await client.ref(name), value=value, timeout=0.3)).code

    assert await code("Digits", "a1") == "NO_EFFECT"
    assert await code("Fixed", "2") == "ELEMENT_DISABLED"
    assert await code("One", "Blue") == "NO_ELEMENT"
    assert await code("Text", "x") == "NO_EFFECT"
    assert await code("Digits", True) == "BAD_ARGUMENT"


async def test_keys_and_typing(client: Client, site: Site):
    html = f"""{LOG}<form onsubmit="say('submit ' + this.q.value); return false"><input name=q aria-label=Q value=ab onkeydown="say(event.key)"></form>"""
    await client.call("open", url=site.page("/keys", html))
    ref = await client.ref("Q")

    await client.call("type", ref=ref, text="cD", submit=True)
    await client.call("press", keys="Control+A")
    await client.call("press", keys="Backspace")
    failed = await client.fail("press", keys="Hyper+X")

    assert "Q" in await client.page("snapshot")
    assert (
        await log_of(client)
        == '"[\\"c\\",\\"D\\",\\"Enter\\",\\"submit abcD\\",\\"Control\\",\\"a\\",\\"Backspace\\"]"'
    )
    assert await client.page("evaluate", script="document.querySelector('input').value") == '""'
    assert failed.code == "BAD_ARGUMENT"


async def test_press_says_where_the_focus_has_gone(client: Client, site: Site):
    html = "<input aria-label=Name><button onclick=this.remove()>Go</button>"
    await client.call("open", url=site.page("/focus", html))
    field, button = await client.ref("Name"), await client.ref("Go")

    first = await client.call("press", keys="Tab")
    second = await client.call("press", keys="Tab")
    same = await client.call("press", keys="Home")
    removed = await client.call("press", keys="Enter")

    assert (first["focus"], second["focus"]) == (field, button)
    assert "focus" not in same
    assert "focus" not in removed


async def test_drag_and_drop_of_both_kinds(client: Client, site: Site):
    html = f"""{LOG}<div id=a draggable=true tabindex=0 style="width:80px;height:40px">Card</div>
    <div tabindex=0 style="width:200px;height:90px;margin:50px" ondragover="event.preventDefault()" ondrop="say('drop'); this.append(a)">Bin</div>
    <div id=m tabindex=0 style="position:absolute;left:300px;top:300px;width:50px;height:50px">Mover</div>
    <script>m.onmousedown = () => {{ onmousemove = (e) => {{ m.style.left = e.clientX + 'px' }}; onmouseup = () => {{ onmousemove = null; say('moved') }} }}</script>"""
    await client.call("open", url=site.page("/drag", html))

    await client.call("drag", ref=await client.ref("Card"), to=await client.ref("Bin"))
    await client.call("drag", ref=await client.ref("Mover"), to=await client.ref("Bin"))

    assert await log_of(client) == '"[\\"drop\\",\\"moved\\"]"'


async def test_hover_and_scroll(client: Client, site: Site):
    html = """<style>#m { display: none } li:hover #m { display: block }</style><ul><li tabindex=0>Menu<p id=m>Opened</p></li></ul>
    <div style="height:3000px"></div><button>Bottom</button>"""
    await client.call("open", url=site.page("/hover", html))

    hovered = await client.call("hover", ref=await client.ref("Menu"))
    await client.call("scroll", down=500)
    by = await client.page("evaluate", script="scrollY")
    await client.call("scroll", ref=await client.ref("Bottom"))

    assert "Opened" in hovered["page"]
    assert 400 < int(by) <= 500  # the menu closes, and the page keeps its place
    assert int(await client.page("evaluate", script="Math.round(scrollY)")) > 2000


async def test_a_click_that_loads_a_page_shows_it(client: Client, site: Site):
    site.page("/target", "<title>There</title><h1>Arrived</h1>")
    await client.call("open", url=site.page("/start", "<a href=/target>Leave</a>"))

    answer = await client.call("click", ref=await client.ref("Leave"))

    assert inside(answer["page"]) == f"There — {site.url}/target\nh1 Arrived"


async def test_fields_that_are_hidden_behind_their_labels_can_be_used(
    client: Client, site: Site, folder: Path
):
    html = """<label><input type=checkbox style="display:none"> Gift</label><label for=a>Attach</label><input id=a type=file hidden>
    <div style="display:none"><input id=x></div><label for=x>Custom</label><p role=status></p>
    <script>onchange = (event) => document.querySelector('p').append(event.target.files?.[0].name ?? event.target.checked, ' ')</script>"""
    shown = await client.page("open", url=site.page("/hidden-fields", html))
    gift, attach = await client.ref("Gift", "checkbox"), await client.ref("Attach", "file")
    (folder / "cv.txt").write_text("cv")

    checked = await client.page("fill", ref=gift, value=True)
    await client.call("expect", ref=gift, state="checked")
    uploaded = await client.page("upload", ref=attach, paths=["cv.txt"])
    unchecked = await client.page("click", ref=gift)
    (folder / "cv.txt").unlink()

    assert "- Custom" in shown
    assert f"+[{gift}] checkbox(checked) Gift" in checked
    assert f"+[{attach}] file Attach = cv.txt" in uploaded
    assert "true cv.txt false" in unchecked
