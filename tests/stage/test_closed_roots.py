"""Closed shadow roots are part of what is read, wherever and whenever a page attaches them."""

import pytest

from holdfast.builtin.stage import closed_roots
from holdfast.builtin.stage.cdp import protocol as cdp
from tests.stage.client import Client
from tests.stage.site import Site

pytestmark = [pytest.mark.anyio, pytest.mark.promise("STG-08")]

ATTACH = "document.querySelector('{}').attachShadow({{mode: 'closed'}}).innerHTML = '<slot></slot><button>{}</button>'; 0"
HOSTS = ("main", "header", "h2", "blockquote", "p", "body", "x-late")


async def test_a_root_that_is_attached_after_the_first_snapshot_is_shown(client: Client, site: Site):
    hosts = "".join(f"<{tag}>light of {tag}</{tag}>" for tag in HOSTS if tag != "body")
    await client.call("open", url=site.page("/late-roots", hosts))
    for tag in HOSTS:
        before = await client.page("snapshot")
        await client.call("evaluate", script=ATTACH.format(tag, f"Root of {tag}"))

        shown = await client.page("snapshot")

        assert f"Root of {tag}" not in before
        assert f"button Root of {tag}" in shown
        assert "light of main" in shown


async def test_a_custom_element_that_is_upgraded_late_is_found(client: Client, site: Site):
    await client.call("open", url=site.page("/upgrade", "<x-card>a card</x-card>"))
    upgrade = """customElements.define('x-card', class extends HTMLElement {
      constructor() { super(); this.attachShadow({mode: 'closed'}).innerHTML = '<slot></slot><button>Buy</button>' } }); 0"""
    before = await client.call("find", text="buy")
    await client.call("evaluate", script=upgrade)

    found = await client.page("find", text="buy")

    assert "page" not in before
    assert "button Buy" in found


@pytest.mark.slow
async def test_a_root_in_a_large_page_is_shown_and_found(client: Client, site: Site):
    rows = "".join(f"<li>Row {number}" for number in range(3500))
    html = f"<main>light</main><ul>{rows}</ul><script>{ATTACH.format('main', 'In a large page')}</script>"

    shown = await client.page("open", url=site.page("/large-root", html))
    found = await client.page("find", text="large page")

    assert "button In a large page" in shown
    assert "button In a large page" in found


async def test_roots_in_roots_and_in_frames_of_both_sites_are_shown(client: Client, site: Site):
    site.page(
        "/root-frame", f"<section>light</section><script>{ATTACH.format('section', 'In a frame')}</script>"
    )
    declared = "<template shadowrootmode=closed><b>Outer</b><div><template shadowrootmode=closed><b>Inner</b></template></div></template>"
    html = f"<article>{declared}</article><iframe src=/root-frame></iframe><iframe src={site.other_url}/root-frame></iframe>"

    shown = await client.page("open", url=site.page("/root-frames", html))

    assert shown.count("button In a frame") == 2
    assert "Outer" in shown
    assert "Inner" in shown


async def test_expect_sees_a_text_in_a_root_that_is_attached_later(client: Client, site: Site):
    await client.call("open", url=site.page("/expect-root", "<main>light</main>"))
    await client.call("snapshot")
    absent = await client.fail("expect", text="Ready now", timeout=0.1)
    await client.call("evaluate", script=ATTACH.format("main", "Ready now"))

    await client.call("expect", text="Ready now")

    assert absent.code == "NOT_YET"


@pytest.mark.slow
async def test_a_page_without_new_roots_is_not_described_again(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
):
    """To describe all nodes takes longer than to read them."""
    described: list[str] = []

    class Counted(cdp.DomDescribeNode, frozen=True):
        def __post_init__(self) -> None:
            described.append(self.METHOD)

    monkeypatch.setattr(closed_roots.cdp, "DomDescribeNode", Counted)
    site.page("/calm-frame", "<p>frame</p>")
    html = f"""<main>light</main><input value=x><details><summary>s</summary>d</details><video controls></video>
    <x-empty></x-empty><div></div><template><p>t</p></template><!-- c --><svg><text>s</text></svg><div><template shadowrootmode=open>
    <i>open</i></template></div><iframe src=/calm-frame></iframe><script>{ATTACH.format("main", "Root")}</script>"""
    await client.call("open", url=site.page("/calm", html))
    first = len(described)
    for _ in range(3):
        await client.call("evaluate", script="document.body.append(document.createElement('div')); 0")
        await client.call("snapshot")

    assert first >= 1
    assert len(described) == first
