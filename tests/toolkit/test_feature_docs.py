"""The code in the pages about resources, questions and state works as documented."""

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.toolkit import Call, Toolbox
from holdfast.toolkit.client_requests import ANSWER_SECONDS
from holdfast.toolkit.round_trips import MAX_WAITING, MAX_WAITING_PER_CALLER
from tests.toolkit.contexts import ANN, BOB
from tests.toolkit.memory_client import connect

pytestmark = pytest.mark.anyio
DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def load(page: str) -> dict[str, Any]:
    """The names that the only Python block of a page defines."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block, page, "exec"), names)
    return names


@pytest.mark.promise("KIT-23")
async def test_resources_page_works_as_documented():
    box: Toolbox = load("tool-resources.md")["box"]
    async with connect(box, "handshake") as client:
        order = await client.request("resources/read", {"uri": "shop://orders/7"})
        missing = await client.error("resources/read", {"uri": "shop://orders/8"})
        bad = await client.error("resources/read", {"uri": "shop://orders/x"})
        till = await client.request("resources/read", {"uri": "shop://till"}, session=ANN)
        denied = await client.error("resources/read", {"uri": "shop://till"}, session=BOB)
        prompt = await client.request("prompts/get", {"name": "praise", "arguments": {"dish": "soup"}})
        completed = await client.request(
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "praise"}, "argument": {"name": "dish", "value": "so"}},
        )
        await client.request("resources/subscribe", {"uri": "shop://menu"})
        await client.call("add_dish", dish="tea")
        menu = await client.request("resources/read", {"uri": "shop://menu"})

    assert order["contents"][0]["text"] == '{"dish":"soup","plates":2}'
    assert [error[1]["code"] for error in (missing, bad, denied)] == ["NO_ORDER", "BAD_ARGUMENT", "DENIED"]
    assert till["contents"][0]["text"].startswith("42")
    assert prompt["messages"][0]["content"]["text"] == "Praise the soup in a short text."
    assert completed["completion"]["values"] == ["soup"]
    assert client.notifications == [("notifications/resources/updated", {"uri": "shop://menu"})]
    assert menu["contents"][0]["text"] == "- soup\n- salad\n- tea"


@pytest.mark.promise("KIT-24")
async def test_questions_page_works_as_documented():
    box: Toolbox = load("tool-questions.md")["box"]

    def answer(method: str, params: Any) -> Any:
        match method:
            case "roots/list":
                return {"roots": [{"uri": "file:///blog"}]}
            case "sampling/createMessage":
                return {"role": "assistant", "content": {"type": "text", "text": "Warm."}, "model": "tiny"}
            case _ if params.get("mode") == "url":
                return {"action": "accept"}
            case _ if "like" in params["message"]:
                return {"action": "accept", "content": {"dish": "soup", "plates": 2}}
            case _:
                return {"action": "accept", "content": {"value": True}}

    async with connect(box, "modern", answer=answer) as client:
        ordered, described = await client.call("take_order"), await client.call("describe", dish="soup")
        connected, folders = await client.call("connect_account"), await client.call("list_folders")
    async with connect(box, "handshake") as plain:
        alone, refused = await plain.call("describe", dish="soup"), await plain.call("take_order")

    assert [ordered["result"], described["result"], connected["result"]] == [
        "2 soup",
        "Warm.",
        "The page was opened.",
    ]
    assert (folders["items"], alone["result"]) == (["/blog"], "soup is good.")
    assert (refused["code"], refused["details"]) == (
        "MISSING_CAPABILITY",
        {"capability": "elicitation.form"},
    )


def test_questions_page_has_the_real_limits():
    page = (DOCS / "tool-questions.md").read_text(encoding="utf-8")

    assert f"at most {MAX_WAITING:,} waiting calls" in page
    assert f"at most {MAX_WAITING_PER_CALLER} of each caller" in page
    assert f"within {ANSWER_SECONDS / 60:g} minutes" in page


@pytest.mark.promise("KIT-25")
async def test_state_page_works_as_documented():
    box: Toolbox = load("tool-state.md")["box"]

    @box.tool(operation="query")
    async def rows(call: Call) -> list[str]:
        """The rows of the pool."""
        pools.append(call.state)
        return call.state.rows

    pools: list[Any] = []
    async with connect(box, "modern") as client:
        counts = [
            (await client.call("add", session, dish=dish))["result"]
            for session, dish in ((ANN, "soup"), (ANN, "salad"), (BOB, "tea"))
        ]
        kept = (await client.call("rows"))["items"]
        was_open = pools[0].is_open

    assert (counts, kept) == ([1, 2, 1], ["soup", "salad", "tea"])
    assert (was_open, pools[0].is_open) == (True, False)


@pytest.mark.promise("KIT-11")
async def test_driven_sessions_page_works_as_documented():
    box: Toolbox = load("driven-sessions.md")["box"]

    async with connect(box, "modern") as client:
        before = await client.call("run", ANN, command="echo hello")
        opened = [(await client.call("open", session))["result"] for session in (ANN, ANN, BOB)]
        several = await client.call("run", ANN, command="echo hello")
        said = [
            (await client.call("run", session, command=command, terminal=terminal))["result"]
            for session, terminal, command in ((ANN, "t1", "x=3; echo $x"), (BOB, "", "echo none$x"))
        ]
        foreign = await client.call("run", BOB, command="echo hello", terminal="t1")
        listed = (await client.call("list_terminals", BOB))["items"]
        closed = (await client.call("close", BOB))["result"]

    assert opened == ["t1", "t2", "t3"]
    assert said == ["3", "none"]
    assert [answer["code"] for answer in (before, several, foreign)] == [
        "NOT_RUNNING",
        "BAD_ARGUMENT",
        "NOT_RUNNING",
    ]
    assert (listed, closed) == (["t3"], "t3")
