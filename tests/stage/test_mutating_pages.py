"""Pages that change at random: refs keep their meaning, and differences are exact."""

import os
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.builtin.stage.snapshot_diff import apply
from tests.stage.client import Client, Failure, inside
from tests.stage.site import Site

pytestmark = pytest.mark.anyio

PAGE = """<title>T</title><ul id=l></ul><script>
let made = 0;
const items = () => [...l.children];
const make = () => { const li = document.createElement('li'); li.innerHTML = `Item ${made} <button data-id=${made}>Same</button>`; made++; return li };
for (let i = 0; i < 4; i++) l.append(make());
function change(kind, at) {
  const item = items()[at % Math.max(1, items().length)];
  if (kind === 'add') l.insertBefore(make(), item ?? null);
  else if (!item) return;
  else if (kind === 'remove') item.remove();
  else if (kind === 'move') l.append(item);
  else if (kind === 'rename') item.firstChild.data = 'Renamed ' + at;
  else if (kind === 'replace') item.replaceWith(make());
  else if (kind === 'hide') item.hidden = !item.hidden;
  else if (kind === 'rewrite') item.outerHTML = item.outerHTML;
}
</script>"""
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "move", "rename", "replace", "hide", "rewrite"]), st.integers(0, 9)
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.promise("STG-06", "STG-09")
@settings(
    max_examples=int(os.environ.get("HOLDFAST_STAGE_EXAMPLES", "2")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=CHANGES)
async def test_refs_and_differences_on_a_page_that_changes(
    browser: Client, site: Site, steps: list[tuple[str, int]]
):
    stage = (await browser.call("open", url=site.page("/mutating", PAGE)))["stage"]
    answer = await browser.call("snapshot", budget=20_000)
    lines = inside(answer["page"]).split("\n")[1:]
    meaning: dict[str, str] = {}
    for ref in re.findall(r"\[(\w+)\] button", answer["page"]):
        meaning[ref] = await browser.page("read", ref=ref, attributes=["data-id"])

    for kind, at in steps:
        await browser.call("evaluate", script=f"change({kind!r}, {at})")
        changed = await browser.call("snapshot", since=answer["snapshot"], budget=20_000)
        answer = await browser.call("snapshot", budget=20_000)
        lines = apply(lines, inside(changed["page"]).split("\n")) if "page" in changed else lines
        assert lines == inside(answer["page"]).split("\n")[1:]

    for ref, expected in meaning.items():
        read = await browser.envelope("read", ref=ref, attributes=["data-id"])
        if isinstance(read, Failure):
            assert read.code == "STALE_REF"
        elif "page" in read:
            assert inside(read["page"]).split("\n")[-1] == expected.split("\n")[-1]
    await browser.call("close", stage=stage)
