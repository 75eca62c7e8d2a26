"""Attack 56, in the gateway: a server's question that is not recognised as one, so that nothing names the server or checks it."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.connect import connection, server_requests
from holdfast.connect.server_requests import ServerRequests
from holdfast.gateway import convert_eras
from holdfast.wire.messages import Raw
from tests.gateway.running import modern_call, post_modern, read_answer, running_gateway
from tests.safety.asking_client import AskingClient
from tests.safety.test_43_params_that_no_question_shows import server

pytestmark = pytest.mark.anyio
COMPLETE = '"content": [], "resultType": "complete"'
# JSON has many spellings of one text. A client reads all of them alike. Some clients read names of members in any case.
SPELLINGS = (
    {'"elicitation/create"': '"elicitation\\/create"'},
    {'"input_required"': '"input\\u005frequired"'},
    {'"resultType"': '"result\\u0054ype"', '"method"': '"metho\\u0064"'},
    {'"inputRequests"': '"InputRequests"', '"resultType"': f'{COMPLETE}, "ResultType"'},
    {'"inputRequests"': '"inputReque\\u017fts"', '"resultType"': f'{COMPLETE}, "RESULTTYPE"'},
)


def pass_on(raw: Raw) -> Raw:
    return raw


def find_none(members: dict[str, Raw]) -> bool:
    return False


def leave(_: ServerRequests, given: Any) -> Any:
    return given


async def ask_modern(folder: Path, era: str, *all_arguments: dict[str, Any]) -> list[Any]:
    """The results of calls that ask a modern client."""
    async with running_gateway(folder, servers=server(era)) as running:
        token = running.token()
        found: list[Any] = []
        for arguments in all_arguments:
            body, headers = modern_call("question", **arguments)
            found.append(read_answer(await post_modern(running.url, token, body, headers))["result"])
    return found


def is_disguised(result: Any) -> bool:
    """Whether a client shows the question as the server wrote it."""
    folded = {name.casefold(): value for name, value in result.items()}
    is_asked = "input_required" in (result["resultType"], folded["resulttype"])
    return is_asked and '"Holdfast: allow everything?"' in json.dumps(folded.get("inputrequests", {}))


@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
async def test_a_question_is_recognised_in_every_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        monkeypatch.setattr(ServerRequests, "sanitize_questions", leave)
        monkeypatch.setattr(server_requests, "_remove_disguised", find_none)
        monkeypatch.setattr(connection, "without_disguised_questions", pass_on)
    results = await ask_modern(tmp_path, "modern", *({"spellings": each} for each in SPELLINGS))

    assert [is_disguised(result) for result in results] == [not is_protected] * len(SPELLINGS)
    if is_protected:
        recognised = [result["inputRequests"] for result in results if "inputRequests" in result]
        assert ["not from Holdfast" in json.dumps(asked) for asked in recognised] == [True] * 3


@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
async def test_a_server_of_the_handshake_era_cannot_ask_in_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        monkeypatch.setattr(convert_eras, "_MODERN_MEMBERS", ())
    spelled = [{"spellings": spelling} for spelling in SPELLINGS[1:]]
    results = await ask_modern(tmp_path, "handshake", {}, *spelled)

    assert [is_disguised(result) for result in results] == [not is_protected] * len(results)


@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
async def test_pages_that_an_error_asks_to_open_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_protected: bool
):
    if not is_protected:
        monkeypatch.setattr(ServerRequests, "sanitize_error", leave)
    async with (
        running_gateway(tmp_path, servers=server("handshake")) as running,
        AskingClient(running.url, running.token()) as client,
    ):
        script = await client.send("page", {"url": "javascript:alert(1)"})
        page = await client.send("page", {"url": "https://example.org/login"})

    assert ("javascript:" in json.dumps(script)) is not is_protected
    assert page["error"]["code"] == -32042
    assert ("not from Holdfast" in json.dumps(page)) is is_protected
