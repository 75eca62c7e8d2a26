"""Roles, names and states agree with those of Playwright, except for the listed differences."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from holdfast.builtin.stage.find_browser import find_browser
from tests.stage.client import Client, inside
from tests.stage.site import Site
from tests.stage.test_snapshot import FORM

pytestmark = pytest.mark.anyio

MODULES = Path(__file__).resolve().parent.parent.parent / "peers" / "node_modules"
NAMES = """<button aria-label="Given">Content</button><button><img src=x alt="Picture"> text</button><button title="Tip"></button>
<span id=a>First</span><span id=b>Second</span><input aria-labelledby="a b"><input placeholder="Hint"><input title="Titled">
<a href=/x><span>Nested</span> <b>link</b></a><a>No link</a><input type=submit><input type=reset value=Clear><input type=button value=Press>
<input type=image alt="Go" src=x><div role=button tabindex=0>Role <i>button</i></div><div role=checkbox aria-checked=mixed tabindex=0>Mixed</div>
<button aria-pressed=true>Pressed</button><button hidden>Hidden</button><button style="visibility:hidden">Invisible</button>
<button aria-hidden=true>Not for assistive technology</button><input type=search aria-label=Find><input type=number aria-label=Count>
<input type=range aria-label=Level><h3>Third <a href=/h>with link</a></h3><div role=heading aria-level=4>Fourth</div>
<label>Wrapped <select><option>One</select></label><textarea aria-label=Area></textarea>"""
STRUCTURE = """<nav aria-label=Main><ul><li><a href=/1>One</a><li><a href=/2>Two</a></ul></nav>
<table><caption>Prices</caption><tr><th>Name<th>Buy</tr><tr><td>Tea<td><button>Buy tea</button></tr></table>
<details open><summary>Details</summary><a href=/d>In details</a></details><dialog open aria-label=Ask><button>Yes</button></dialog>
<div id=h></div><script>h.attachShadow({mode: 'open'}).innerHTML = '<button>In shadow</button><slot></slot>'; h.innerHTML = '<a href=/s>Slotted</a>'</script>
<ul role=tablist><li role=tab tabindex=0 aria-selected=true>First</li><li role=tab tabindex=0>Second</li></ul>
<fieldset><legend>Size</legend><label><input type=radio name=s checked> Small</label><label><input type=radio name=s> Large</label></fieldset>
<div role=switch aria-checked=true tabindex=0>Wifi</div><select multiple aria-label=Many><option selected>A<option>B</select>"""
ACTIONS = """<style>body { margin: 0 } button { display: block; width: 120px; height: 20px }</style><button name=plain>plain</button>
<button name=disabled disabled>disabled</button><fieldset disabled><button name=fieldset>fieldset</button></fieldset>
<div style="position:relative"><button name=covered>covered</button><div style="position:absolute;inset:0;background:red"></div></div>
<div style="position:relative"><button name=half>half</button><div style="position:absolute;left:0;top:0;width:30px;height:20px;background:red"></div></div>
<button name=untouchable style="pointer-events:none">untouchable</button><button name=faint style="opacity:0.1">faint</button>
<div style="height:60px;overflow:auto"><div style="height:500px"></div><button name=scrolled>scrolled</button></div>
<button name=child><span style="display:block">child</span></button><div style="height:3000px"></div><button name=far>far</button>"""
CORPUS = ("canvas", "editor", "frames", "infinite", "routes", "shadow", "table", "widgets")
# Parts of lists, tables and texts: we write them in fewer lines, and the options of a list in the line of its field.
PARTS = {
    *("caption", "cell", "columnheader", "definition", "emphasis", "group", "iframe", "listitem", "option"),
    *("paragraph", "row", "rowgroup", "strong", "term", "text", "url"),
}
ONLY_OURS = {
    ("button", "Details"): "We show a summary as the button that it acts as; Playwright shows its text.",
    ("button", "Reveal"): "The same.",
    ("button", "Closed button"): "Playwright does not look into closed shadow roots.",
    ("clickable", "A div that acts"): "We show what can be clicked, also if it has no role.",
    ("heading", ""): "See below: its texts and links follow.",
    ("canvas", "Board"): "We show a canvas that can be clicked; Playwright shows its content only.",
}
ONLY_THEIRS = {
    ("status", ""): "We leave out an element without a name or a text that cannot be used.",
    ("img", "Picture"): "A picture in a button is part of the button's name.",
    (
        "heading",
        "Third with link",
    ): "We show a heading that has a link as `h3`, and its texts and links below it.",
}


@pytest.mark.slow
@pytest.mark.timeout(180)  # two browsers
@pytest.mark.skipif(not (MODULES / "playwright-core").exists(), reason="The Node packages are not installed.")
async def test_roles_names_and_what_can_be_clicked_are_those_of_playwright(client: Client, site: Site):
    pages = {"form": FORM, "names": NAMES, "structure": STRUCTURE, "actions": ACTIONS}
    urls = [site.page(f"/oracle-{name}", html) for name, html in pages.items()]
    urls += [f"{site.url}/{name}.html" for name in CORPUS]
    command = [
        MODULES / ".bin" / "node",
        Path(__file__).with_name("oracle.mjs"),
        MODULES,
        find_browser() or "",
        *urls,
    ]
    oracle = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    ours: list[str] = []
    clicked: dict[str, bool] = {}
    for url in urls:
        opened = await client.call("open", url=url, budget=5000)
        ours.append(inside(opened["page"]))
        if url.endswith("/oracle-actions"):
            for name in oracle["actions"]:
                ref = await client.ref(name, "button")
                clicked[name] = isinstance(await client.envelope("click", ref=ref, timeout=1.5), dict)
        await client.call("close", stage=opened["stage"])

    assert clicked == oracle["actions"]
    for url, own, their in zip(urls, ours, oracle["texts"], strict=True):
        expected = {element for element in _parse_playwright(their) if element[0] not in PARTS}
        found = {element for element in _parse_own(own) if element[0] not in PARTS}
        assert found - expected <= ONLY_OURS.keys(), url
        assert expected - found <= ONLY_THEIRS.keys(), url


def _parse_own(page: str) -> list[tuple[str, str]]:
    _, *lines = page.split("\n")
    found = (re.fullmatch(r" *(?:\[\w+\] )?(\w+)(?:\([^)]*\))?(?: (.*))?", line) for line in lines)
    pairs = [(matched[1], matched[2] or "") for matched in found if matched]
    return [(_role(role), name.split(" (options: ")[0].split(" = ")[0]) for role, name in pairs]


def _role(word: str) -> str:
    return {"frame": "iframe", "item": "listitem"}.get(
        word, "heading" if re.fullmatch(r"h\d", word) else word
    )


def _parse_playwright(snapshot: str) -> list[tuple[str, str]]:
    found = re.findall(r'^ *- (?:\'|")?/?(\w+)(?: "((?:[^"\\]|\\.)*)")?', snapshot, re.MULTILINE)
    return [(role, name) for role, name in found]
