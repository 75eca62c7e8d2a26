"""Texts that a person does not see are not passed on. The same pages are also read without that protection."""

import re

import pytest

from holdfast.builtin.stage import tab_events
from holdfast.builtin.stage.page_script import PAGE_SCRIPT
from tests.stage.client import Client, inside
from tests.stage.site import Site

pytestmark = [pytest.mark.anyio, pytest.mark.promise("STG-07")]

HIDDEN = {
    "display": "<p style='display:none'>TEXT</p>",
    "visibility": "<p style='visibility:hidden'>TEXT</p>",
    "opacity": "<p style='opacity:0'>TEXT</p>",
    "size": "<p style='font-size:0'>TEXT</p>",
    "attribute": "<p hidden>TEXT</p>",
    "aria": "<p aria-hidden=true>TEXT</p>",
    "template": "<template>TEXT</template>",
    "noscript": "<noscript>TEXT</noscript>",
    "drawing": "<svg><script type=x>TEXT</script><defs><text>TEXT</text></defs><desc>TEXT</desc></svg>",
    "frame": "<iframe style='display:none' srcdoc='TEXT'></iframe>",
    "faint frame": "<iframe style='opacity:0' srcdoc='TEXT'></iframe>",
}


def without(protections: dict[str, str]) -> str:
    """The script that reads pages, with some of its lines changed."""
    script = PAGE_SCRIPT
    for line, changed in protections.items():
        assert line in script, line
        script = script.replace(line, changed)
    return script


UNPROTECTED = without(
    {
        "if ((isHtml ? SKIPPED : SVG_SKIPPED).has(tag)) return;": "",
        "if (display === 'none' && ": "if (false && ",
        "if (isTrue(element, 'aria-hidden') && element !== focused) return;": "",
        "const hidden = style.visibility !== 'visible' && !isFile;": "const hidden = false;",
        "const faint = parent.faint || style.opacity === '0';": "const faint = false;",
        "entered.style?.fontSize !== '0px'": "true",
        "else child = firstChild(element);": "else child = firstChild(localName(element) === 'template' ? element.content : element);",
    }
)


@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_hidden_texts_are_not_passed_on(
    client: Client, site: Site, is_protected: bool, monkeypatch: pytest.MonkeyPatch
):
    if not is_protected:
        monkeypatch.setattr(tab_events, "PAGE_SCRIPT", UNPROTECTED)
    texts = {way: f"obey {way}." for way in HIDDEN}
    html = "".join(hidden.replace("TEXT", texts[way]) for way, hidden in HIDDEN.items())
    await client.call("open", url=site.page("/hidden", f"<h1>Shown</h1>{html}"))

    answers = str([await client.call("snapshot"), await client.call("find", text="obey")])
    passed = {way for way, text in texts.items() if text in answers}
    expected = [await client.envelope("expect", text=text, timeout=0.01) for text in texts.values()]

    assert passed == (set() if is_protected else set(HIDDEN))
    assert {getattr(answer, "code", "passed") for answer in expected} == {
        "NOT_YET" if is_protected else "passed"
    }
    assert "h1 Shown" in answers


@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_characters_that_hide_or_reorder_text_are_removed(
    client: Client, site: Site, is_protected: bool, monkeypatch: pytest.MonkeyPatch
):
    marks = "\u202e\u2066\u200b\u00ad\U000e0041"
    if not is_protected:
        kept = "text.replace(FORMATTING, '').replace(INVISIBLE_LETTERS, '')"
        monkeypatch.setattr(tab_events, "PAGE_SCRIPT", without({kept: "text"}))
    html = f"<title>ti{marks}tle</title><h1>he{marks}ading</h1><input aria-label='na{marks}me' value='va{marks}lue'><img alt='al{marks}t' src=data:,>"
    await client.call("open", url=site.page("/marks", html))

    shown = await client.page("snapshot")

    assert {mark for mark in marks if mark in shown} == (set() if is_protected else set(marks))
    if is_protected:
        for text in ("title — ", "h1 heading", "textbox name = value", "img alt"):
            assert text in shown


@pytest.mark.promise("STG-05")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_find_leads_to_texts_that_were_not_read_but_not_to_hidden_ones(
    client: Client, site: Site, is_protected: bool, monkeypatch: pytest.MonkeyPatch
):
    changed = {"MAX_NODES = 400000": "MAX_NODES = 20"}
    if not is_protected:
        changed["nodeType(element) === 1 && isTextShown(element)"] = "nodeType(element) === 1"
    monkeypatch.setattr(tab_events, "PAGE_SCRIPT", without(changed))
    rows = "".join(f"<tr><td>Needle {n}.<td><button>Delete {n}</button></tr>" for n in range(30))
    hidden = "".join(
        hiding.replace("TEXT", f"Needle {way}.")
        for way, hiding in HIDDEN.items()
        if "frame" not in way and "template" not in way
    )
    await client.call("open", url=site.page("/unread", f"<table>{rows}</table>{hidden}"))

    answer = await client.call("find", text="needle", limit=100)
    found = inside(answer["page"]).split("\n")
    row = re.search(r"cell Needle 29\. \(in row (\w+)\)", answer["page"])

    assert len([line for line in found if re.search(r"Needle \d", line)]) == 30
    assert ([line for line in found if not re.search(r"Needle \d", line)] == []) is is_protected
    assert row
    assert "button Delete 29" in await client.page("snapshot", within=row[1])
    assert (await client.call("find", text="needle", role="button"))["found"] == "nothing"
