"""Servers that are slow or answer without a page, pages that are busy, and addresses with a password."""

import threading
from typing import Any

import pytest

from holdfast.builtin.stage import navigate
from holdfast.builtin.stage.tab import Tab
from tests.stage.client import Client, Failure
from tests.stage.site import Answer, Seen, Site

pytestmark = pytest.mark.anyio


async def test_a_slow_server_gets_one_request_and_its_page_is_shown_later(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(navigate, "_PATIENCE_SECONDS", 0.2)
    may_answer = threading.Event()

    def answer(seen: Seen) -> Answer:
        may_answer.wait(60)
        return 200, {"Content-Type": "text/html"}, b"<h1>At last</h1>"

    site.answers["/slow"] = answer
    opened = await client.call("open", url=site.page("/first", "<h1>First</h1><a href=/slow>Slow</a>"))
    try:
        waiting = await client.call("goto", url=f"{site.url}/slow", timeout=1)
        elsewhere = await client.page("goto", url=site.page("/else", "<h1>Elsewhere</h1>"))
        await client.call("goto", url=f"{site.url}/slow", timeout=1)
    finally:
        may_answer.set()
    shown = await client.call("wait", text="At last")

    assert waiting == {"tab": opened["tab"], "loaded": "loading"}
    assert "h1 Elsewhere" in elsewhere
    assert "h1 At last" in shown["page"]
    assert site.paths().count("/slow") == 2, "one for each call"


@pytest.mark.promise("STG-11")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
@pytest.mark.parametrize(
    "busy",
    [
        pytest.param("setTimeout(() => { for (;;); })", marks=pytest.mark.slow),
        "onbeforeunload = () => { for (;;); }",
    ],
)
async def test_a_busy_page_is_left_at_the_first_try(
    client: Client, site: Site, busy: str, is_protected: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(navigate, "_PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(navigate, "_STOP_SECONDS", 1.0)
    await client.call("open", url=site.page("/busy", "<h1>Busy</h1>"))
    await client.call("evaluate", script=f"{busy}; 0")
    if not is_protected:

        async def stop_nothing(tab: Tab) -> None:
            pass

        monkeypatch.setattr(navigate, "_stop_scripts", stop_nothing)

    calm = await client.envelope(
        "goto", url=site.page("/calm", "<h1>Calm</h1>"), timeout=15 if is_protected else 1.5
    )

    assert ("h1 Calm" in str(calm)) is is_protected


async def test_an_answer_without_a_page_is_reported(client: Client, site: Site):
    site.answers["/nothing"] = lambda seen: (204, {}, b"")
    await client.call("open", url=site.page("/something", "<h1>Something</h1>"))

    failed = await client.fail("goto", url=f"{site.url}/nothing")

    assert (failed.code, "answered 204" in failed.message) == ("LOAD_FAILED", True)
    assert "h1 Something" in await client.page("snapshot")


async def test_a_pdf_is_a_download(client: Client, site: Site):
    site.answers["/pdf"] = lambda seen: (200, {"Content-Type": "application/pdf"}, b"%PDF-1.4")
    await client.call("open", url=site.page("/papers", "<h1>Papers</h1>"))

    assert "! download 1 began: pdf.pdf" in await client.page("goto", url=f"{site.url}/pdf")


@pytest.mark.promise("STG-16")
async def test_a_password_in_an_address_is_not_shown(client: Client, site: Site):
    site.page("/secret", "<title>Secret</title><script>throw 'thrown text'</script>")
    url = f"{site.url.replace('//', '//ann:s3cret@')}/secret"
    await client.call("open", url=url)

    answers = [await client.call(tool) for tool in ("tabs", "requests", "snapshot", "console")]
    failed = await client.fail("goto", url="http://ann:s3cret@127.0.0.1:9/")

    assert "s3cret" not in str([*answers, failed])
    assert "Uncaught thrown text" in answers[3]["page"]


@pytest.mark.parametrize(
    "script", ["Symbol('x')", "const a = {}; a.a = a", "window", "throw 'text'", "Promise.reject(1)"]
)
async def test_scripts_without_a_value_that_can_be_shown_fail(client: Client, script: str):
    await client.call("open")

    assert (await client.fail("evaluate", script=script)).code == "SCRIPT_FAILED"


async def test_a_new_title_or_address_is_a_change(client: Client, site: Site):
    html = """<title>One</title><button onclick="history.pushState(0, '', '/route')">Route</button><button onclick="document.title = 'Two'">Title</button>"""
    await client.call("open", url=site.page("/app", html))

    routed = await client.page("click", ref=await client.ref("Route"))
    titled = await client.page("click", ref=await client.ref("Title"))

    assert (routed, titled) == (f"! now One — {site.url}/route", f"! now Two — {site.url}/route")


async def test_texts_links_and_buttons_in_a_drawing_are_shown(client: Client, site: Site):
    html = """<svg width=200 height=90><title>Chart</title><text y=20>Axis <tspan>10</tspan></text><a href="#far"><text y=40>Far</text></a>
    <rect y=50 width=20 height=20 role=button tabindex=0 aria-label=Bar onclick="document.title = 'bar'"/></svg>
    <div inert><button>Inert</button></div>"""
    shown = await client.page("open", url=site.page("/drawing", html))

    assert [line.split("] ")[-1].strip() for line in shown.split("\n")[1:]] == [
        *("img Chart", "- Axis 10", "link Far", "button Bar", "button(disabled) Inert"),
    ]
    assert "! now bar" in await client.page("click", ref=await client.ref("Bar"))


async def test_a_page_that_asks_for_another_program_gets_clicks_when_it_is_loaded_again(
    client: Client, site: Site
):
    html = "<a href=slack://open>App</a><button onclick=\"this.textContent += '!'\">Press</button>"
    await client.call("open", url=site.page("/apps", html))
    asked = await client.page("click", ref=await client.ref("App", "link"))
    clicked: dict[str, Any] | Failure = {}
    for _ in range(100):  # the browser's question, which is not visible, comes later
        clicked = await client.envelope("click", ref=await client.ref("Press", "button"))
        if isinstance(clicked, Failure):
            break

    await client.call("goto", url="reload")
    again = await client.page("click", ref=await client.ref("Press", "button"))

    assert "! URL_DENIED for the page: slack://open" in asked
    assert not isinstance(clicked, Failure) or "goto with reload" in clicked.message
    assert "button Press!" in again
