"""What a snapshot shows of a page."""

import re

import pytest

from tests.stage.client import Client, inside
from tests.stage.site import Site

pytestmark = pytest.mark.anyio

FORM = """
<title>Sign up</title>
<nav><a href=/home>Home</a> <a href=/help aria-current=page>Help</a></nav>
<main><h1>Join <em>us</em></h1>
<form aria-label="Sign up">
<label>Email <input type=email required value=ann@example.org></label>
<label for=p>Password</label><input id=p type=password value=hunter2>
<input type=checkbox id=t checked><label for=t>I agree</label>
<fieldset><legend>Size</legend><label><input type=radio name=s> S</label><label><input type=radio name=s checked> M</label></fieldset>
<select aria-label=Colour><option>Red<option selected>Green</select>
<textarea aria-label=Notes>two
lines</textarea>
<button disabled>Send</button> <button aria-expanded=false>More</button>
</form>
<table><caption>People</caption><tr><th>Name<th>Age</tr><tr><td>Ann<td>42</tr><tr><td>Bob<td><button>Edit</button></tr></table>
<ul><li>Milk</li><li>Bread <button>Delete</button></li></ul>
<p>Some <b>bold</b> text, <a href=/x>a link</a> and more.</p>
<div onclick="1">A div that acts</div>
<img src=x alt="A cat"><img src=y alt="">
<details><summary>Details</summary>Hidden until open</details>
</main>
"""


async def test_the_outline_of_a_form(client: Client, site: Site):
    answer = await client.call("open", url=site.page("/form", FORM))

    shown = re.sub(r"\[(?:t\d+)?e\d+\] ", "* ", inside(answer["page"]))
    assert shown.split("\n") == [
        f"Sign up — {site.url}/form",
        "* navigation",
        " * link Home",
        " * link(current) Help",
        "* main",
        " h1 Join us",
        " * form Sign up",
        "  * textbox(required) Email = ann@example.org",
        "  * textbox Password = (hidden)",
        "  * checkbox(checked) I agree",
        "  * group Size",
        "   * radio S",
        "   * radio(checked) M",
        "  * combobox Colour = Green (options: Red | Green)",
        "  * textbox Notes = two lines",
        "  * button(disabled) Send",
        "  * button(collapsed) More",
        " * table People",
        "  row Name | Age",
        "  row Ann | 42",
        "  row",
        "   - Bob",
        "   * button Edit",
        " * list",
        "  - Milk",
        "  item",
        "   - Bread",
        "   * button Delete",
        " - Some bold text,",
        " * link a link",
        " - and more.",
        " * clickable A div that acts",
        " img A cat",
        " * group",
        "  * button(collapsed) Details",
    ]


@pytest.mark.promise("STG-08")
async def test_frames_of_both_sites_and_all_shadow_roots_are_included(client: Client, site: Site):
    site.page("/inner", "<p>Same site</p><button>Inner</button>")
    site.page("/deep", f"<iframe src={site.url}/inner></iframe><p>Other site</p>")
    html = f"""<iframe src=/inner></iframe><iframe src={site.other_url}/deep></iframe>
    <div id=open></div><div id=closed><span slot=x>slotted</span></div><x-closed></x-closed>
    <script>
    open.attachShadow({{mode:'open'}}).innerHTML = '<button>Open root</button>';
    document.getElementById('closed').attachShadow({{mode:'closed'}}).innerHTML = '<slot name=x></slot><button>Closed root</button>';
    document.querySelector('x-closed').attachShadow({{mode:'closed'}}).innerHTML = '<button>Custom closed root</button>';
    </script>"""

    shown = await client.page(
        "open",
        url=site.page(
            "/frames", html.replace("open.attach", "window.open = 0; document.getElementById('open').attach")
        ),
    )

    for expected in ("Same site", "Other site", "Open root", "slotted", "Closed root", "Custom closed root"):
        assert expected in shown
    assert shown.count("Same site") == 2


@pytest.mark.promise("STG-16")
async def test_passwords_never_appear(client: Client, site: Site):
    html = """<input id=p type=password value=hunter2 aria-label=Secret><button onclick="p.type='text'">Show</button>
    <input autocomplete=current-password value=hunter3 aria-label=Other>"""
    first = await client.page("open", url=site.page("/password", html))
    secret = await client.ref("Secret")
    after = str(await client.call("click", ref=await client.ref("Show", "button")))
    read = str(await client.call("read", ref=secret, attributes=["value", "VALUE"]))
    expected = await client.fail("expect", ref=secret, value="wrong", timeout=0.1)

    assert "Secret = (hidden)" in first
    for text in (
        first,
        after,
        read,
        str(expected),
        await client.page("snapshot"),
        await client.page("find", text="e"),
    ):
        assert "hunter" not in text


@pytest.mark.promise("STG-05")
async def test_a_large_table_is_shortened_and_every_row_is_reachable(client: Client, site: Site):
    rows = "".join(f"<tr><td>Row {number}<td>{number * 7}</tr>" for number in range(1000))
    url = site.page("/table", f"<table aria-label=Big>{rows}</table><button>After</button>")

    answer = await client.call("open", url=url, budget=600)
    seen = set(re.findall(r"Row (\d+) ", answer["page"]))
    cursor, answers = answer["cursor"], [answer]
    while cursor:
        part = await client.call("snapshot", cursor=cursor, budget=2000)
        answers.append(part)
        seen |= set(re.findall(r"Row (\d+) ", part["page"]))
        cursor = part.get("cursor")

    assert "button After" in answer["page"]
    assert len(answer["page"]) / 4 <= 600
    assert all(len(part["page"]) / 4 <= 2000 for part in answers)
    assert seen == {str(number) for number in range(1000)}


@pytest.mark.promise("STG-09")
async def test_since_answers_with_the_difference_alone(client: Client, site: Site):
    html = """<ul id=l><li>One</li><li>Two</li></ul><button onclick="l.children[0].textContent='First'; l.append(document.createElement('hr'))">Change</button>"""
    await client.call("open", url=site.page("/since", html))
    first = await client.call("snapshot")
    await client.call("evaluate", script="document.querySelector('button').click()")

    changed = await client.call("snapshot", since=first["snapshot"])
    again = await client.call("snapshot", since=changed["snapshot"])

    assert inside(changed["page"]) == "@@ -2,1 +2,1 @@\n- - One\n+ - First"
    assert again["changed"] == "nothing"
    assert "page" not in again


async def test_within_shows_one_element_with_the_same_refs(client: Client, site: Site):
    await client.call(
        "open",
        url=site.page(
            "/within", "<nav aria-label=A><a href=/1>One</a></nav><nav aria-label=B><a href=/2>Two</a></nav>"
        ),
    )
    whole = await client.page("snapshot")
    nav = re.search(r"\[(\w+)\] navigation B", whole)
    assert nav

    part = await client.page("snapshot", within=nav[1])

    assert part.split("\n")[1:] == [line.strip() for line in whole.split("\n") if "link Two" in line]


async def test_find_gives_refs_for_texts_and_elements_in_frames(client: Client, site: Site):
    site.page("/found", "<p>Needle in a frame</p>")
    await client.call(
        "open",
        url=site.page("/find", "<p>a needle</p><a href=/n>Needle link</a><iframe src=/found></iframe>"),
    )

    found = await client.page("find", text="NEEDLE")
    links = await client.page("find", text="needle", role="link")

    assert [re.sub(r"^\[\w+\] ", "", line) for line in found.split("\n")] == [
        "- a needle",
        "link Needle link",
        "- Needle in a frame",
    ]
    assert links.endswith("] link Needle link")


async def test_find_names_the_row_or_item_of_a_text(client: Client, site: Site):
    rows = "".join(
        f"<tr><td>Ann {n}<td>{n}<td><button onclick=this.append('ed')>Delete</button></tr>" for n in range(3)
    )
    items = "<ul><li><label>Milk</label> today <button>Remove</button></ul>"
    await client.call("open", url=site.page("/rows", f"<table>{rows}</table>{items}<p>Ann alone</p>"))

    found = (await client.page("find", text="Ann")).split("\n")
    row = re.fullmatch(r"\[\w+\] cell Ann 1 \(in row (\w+)\)", found[1])
    assert row
    buttons = await client.page("find", role="button", within=row[1])
    item = re.search(r"\(in item (\w+)\)", await client.page("find", text="today"))

    assert buttons.endswith("] button Delete")
    assert found[3].endswith("] - Ann alone")
    assert item
    assert "button Remove" in await client.page("snapshot", within=item[1])
    assert "button Deleteed" in await client.page("click", ref=buttons[1 : buttons.index("]")])


async def test_read_gives_the_whole_text_in_parts(client: Client, site: Site):
    text = " ".join(f"word{number}" for number in range(3000))
    await client.call(
        "open", url=site.page("/long", f"<article id=a aria-label=Long data-x=y><p>{text}</p></article>")
    )
    ref = await client.ref("Long", "article")

    first = await client.call("read", ref=ref, budget=1000, attributes=["data-x"])
    start, whole = first["next_start"], inside(first["page"]).split("\n")[0]
    while start:
        part = await client.call("read", ref=ref, budget=5000, start=start)
        whole += inside(part["page"])
        start = part.get("next_start")

    assert "data-x: y" in first["page"]
    assert whole.replace(" ", "") == text.replace(" ", "")


async def test_elements_lists_addresses_and_places(client: Client, site: Site):
    await client.call("open", url=site.page("/links", "<a href=/one>One</a><br><a href=/two>Two</a>"))

    links = await client.page("elements", kind="links")

    assert [line.split("] ")[1].split(" @")[0] for line in links.split("\n")] == [
        f"link One -> {site.url}/one",
        f"link Two -> {site.url}/two",
    ]
