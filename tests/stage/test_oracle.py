"""Roles, names and states agree with Playwright's, but for the listed differences."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from holdfast.builtin.stage.find_browser import find_browser
from tests.stage.client import Client
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
ROLES = {"button", "checkbox", "combobox", "link", "radio", "searchbox", "slider", "spinbutton", "textbox"}
DIFFERENCES = {
    ("button", "Details"): "We show a summary as the button that it acts as; Playwright shows its text.",
}


@pytest.mark.skipif(not (MODULES / "playwright-core").exists(), reason="The Node packages are not installed.")
async def test_roles_and_names_are_those_of_playwright(client: Client, site: Site):
    urls = [site.page("/oracle-form", FORM), site.page("/oracle-names", NAMES)]
    command = [
        MODULES / ".bin" / "node",
        Path(__file__).with_name("oracle.mjs"),
        MODULES,
        find_browser() or "",
        *urls,
    ]
    theirs = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    ours = [await client.page("open", url=url, budget=5000) for url in urls]

    for own, their in zip(ours, theirs, strict=True):
        expected = {element for element in _parse_playwright(their) if element[0] in ROLES}
        found = {element for element in _parse_own(own) if element[0] in ROLES} - DIFFERENCES.keys()
        assert found == expected


def _parse_own(page: str) -> list[tuple[str, str]]:
    lines = re.findall(r"^ *\[\w+\] (\w+)(?:\([^)]*\))?(?: (.*))?$", page, re.MULTILINE)
    return [(role, name.split(" (options: ")[0].split(" = ")[0]) for role, name in lines]


def _parse_playwright(snapshot: str) -> list[tuple[str, str]]:
    found = re.findall(r'^ *- (?:\'|")?(\w+)(?: "((?:[^"\\]|\\.)*)")?', snapshot, re.MULTILINE)
    return [(role, name) for role, name in found]
