"""Fields of all kinds take values, or refuse them without a trace."""

from typing import Any

import pytest

from tests.stage.client import Client
from tests.stage.site import Site

pytestmark = pytest.mark.anyio

FORM = """<script>let changes = 0; onchange = () => changes++</script>
<label>Fixed day <input type=date readonly value=2020-01-01></label><label>Colour <input type=color></label>
<label>Level <input type=range min=0 max=10 value=5></label><label>Moment <input type=datetime-local value=2020-01-01T00:00></label>
<label>Twice <select><option value=a>Same<option value=b>Same</select></label>
<label>Group <select><optgroup label=Off disabled><option>Closed</optgroup><option>Open</select></label>
<label>Many <select multiple><option>Red<option>Green<option>Blue</select></label>
<label>Gift <input type=checkbox></label>
<div contenteditable role=textbox aria-label=Story><p>old</p></div>"""


TAKEN: list[tuple[str, Any, str]] = [
    ("Colour", "#FF0000", "textbox Colour = #ff0000"),
    ("Colour", "blue", "textbox Colour = #0000ff"),
    ("Level", "7.0", "slider Level = 7"),
    ("Moment", "2026-11-17 10:30", "textbox Moment = 2026-11-17T10:30"),
    ("Twice", "b", "combobox Twice = Same (options: Same | Same)"),
    ("Twice", "Same", "combobox Twice = Same (options: Same | Same)"),
    ("Many", ["Red", "Blue"], "listbox Many = Red, Blue (options: Red | Green | Blue)"),
    ("Many", [], "listbox Many (options: Red | Green | Blue)"),
    ("Gift", "true", "checkbox(checked) Gift"),
    ("Gift", False, "checkbox Gift"),
    ("Story", "first\nsecond", "textbox Story = first second"),
]
REFUSED: list[tuple[str, Any, str]] = [
    ("Fixed day", "2026-01-01", "ELEMENT_DISABLED"),
    ("Colour", "no colour", "NO_EFFECT"),
    ("Level", "50", "NO_EFFECT"),
    ("Moment", "tomorrow", "NO_EFFECT"),
    ("Gift", "perhaps", "BAD_ARGUMENT"),
    ("Group", "Closed", "NO_ELEMENT"),
    ("Many", ["Red", "Pink"], "NO_ELEMENT"),
]


async def test_values_that_a_field_writes_in_its_own_way_are_taken(client: Client, site: Site):
    page = await client.page("open", url=site.page("/form", FORM))

    for name, value, shown in TAKEN:
        ref = _ref(page, name)
        await client.call("fill", ref=ref, value=value)

        assert f"[{ref}] {shown}\n" in await client.page("snapshot") + "\n"


async def test_values_that_a_field_refuses_change_nothing(client: Client, site: Site):
    before = await client.page("open", url=site.page("/form", FORM))

    failed = [await client.fail("fill", ref=_ref(before, name), value=value) for name, value, _ in REFUSED]
    hints = {failure.code: failure.hint for failure in failed}

    assert [failure.code for failure in failed] == [code for _, _, code in REFUSED]
    assert hints["NO_ELEMENT"] == "Choose from these options."
    assert "a date as 2026-12-24" in hints["NO_EFFECT"]
    assert await client.page("snapshot") == before
    assert await client.page("evaluate", script="changes") == "0"


def _ref(page: str, name: str) -> str:
    (line,) = (line for line in page.split("\n") if f" {name}" in line)
    return line.split("]")[0].lstrip(" [")
