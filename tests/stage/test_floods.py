"""Dialogs and messages without end. The same pages are also opened without the limits."""

from typing import Any

import pytest

from holdfast.builtin.stage import navigate, page_log
from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.cdp.connection import Connection
from holdfast.builtin.stage.tab import Tab
from tests.stage.client import Client, Failure
from tests.stage.site import Site

pytestmark = pytest.mark.anyio


@pytest.mark.promise("STG-10")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_dialogs_without_end_do_not_keep_a_tab_on_its_page(
    client: Client, site: Site, is_protected: bool, monkeypatch: pytest.MonkeyPatch
):
    opened = await client.call(
        "open", url=site.page("/dialogs", "<script>function flood() { for (;;) alert('again') }</script>")
    )
    held = await client.fail("evaluate", script="flood()", timeout=1)
    if not is_protected:

        async def stop_nothing(tab: Tab) -> None:
            pass

        monkeypatch.setattr(navigate, "_stop_scripts", stop_nothing)

    away = await client.envelope(
        "goto", url=site.page("/away", "<h1>Away</h1>"), timeout=10 if is_protected else 0.5
    )

    assert (held.code, opened["tab"] in held.message) == ("DIALOG_OPEN", True)
    assert ("h1 Away" in str(away)) is is_protected


@pytest.mark.promise("STG-10")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_a_dialog_that_nothing_expects_does_not_hold_up_a_call(
    client: Client, site: Site, is_protected: bool, monkeypatch: pytest.MonkeyPatch
):
    await client.call("open", url=site.page("/dialog", "<h1>Page</h1>"))
    post = Connection.post

    def post_no_answers(self: Connection, command: cdp.Command[Any], session: str = "") -> None:
        if not isinstance(command, cdp.PageHandleJavaScriptDialog):
            post(self, command, session)

    if not is_protected:
        monkeypatch.setattr(Connection, "post", post_no_answers)

    asked = await client.envelope(
        "evaluate", script="confirm('Really?')", timeout=2 if not is_protected else 20
    )

    assert getattr(asked, "code", "") == ("" if is_protected else "DIALOG_OPEN")
    if not isinstance(asked, Failure):
        assert "! confirm dialog dismissed in" in asked["page"]


@pytest.mark.promise("STG-17")
@pytest.mark.parametrize("is_protected", [True, False], ids=["attack", "control"])
async def test_messages_without_end_take_no_more_memory_than_the_last_ones(
    client: Client, site: Site, is_protected: bool, monkeypatch: pytest.MonkeyPatch
):
    if not is_protected:
        monkeypatch.setattr(page_log, "MAX_CONSOLE", None)
        monkeypatch.setattr(page_log, "MAX_TEXT", None)
    script = "for (let i = 0; i < 600; i++) console.log('m' + i + '.', 'x'.repeat(3000)); 'logged'"
    await client.call("open", url=site.page("/messages", "<h1>Messages</h1>"))
    await client.call("evaluate", script=script, timeout=60)

    listed = await client.call("console")
    stage = next(
        reversed([stage for held in client.box._driven[0]._sessions.values() for stage in held.values()])
    )
    kept = sum(len(line.text) for _, line in stage.tab().log.console)

    assert (kept < 700_000) is is_protected
    assert listed["last"] == 600
    assert listed.get("dropped", 0) == (300 if is_protected else 0)
    assert "m599." in listed["page"]
