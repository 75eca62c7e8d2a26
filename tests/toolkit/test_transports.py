"""What clients see of a toolkit server, over stdio and HTTP, in both eras."""

from typing import Any
from unittest.mock import ANY

import pytest

from holdfast.model import codes
from tests.toolkit.clients import Client, PlainHttpTransport


@pytest.mark.promise("KIT-06")
def test_success_envelope_has_the_data_ok_and_meta(notes: Client):
    assert notes.call("add_note", {"title": "one", "body": "two words"}) == {
        "title": "one",
        "words": 2,
        "ok": True,
        "_meta": {"elapsed_ms": ANY, "estimated_tokens": 7, "session_id": ""},
    }


@pytest.mark.promise("KIT-05", "KIT-06")
def test_tool_error_keeps_its_code_and_next_actions(notes: Client):
    assert notes.call("add_note", {"title": "taken"}) == {
        "ok": False,
        "code": "NOTE_EXISTS",
        "error": "There is a note 'taken' already.",
        "hint": "Choose another title.",
        "retryable": False,
        "http": 409,
        "next_actions": ["Choose another title."],
        "details": {"title": "taken"},
        "_meta": {"elapsed_ms": ANY, "estimated_tokens": ANY, "session_id": ""},
    }


@pytest.mark.promise("KIT-05")
@pytest.mark.parametrize("tool", ["crash", "leave"])
def test_unexpected_failure_shows_no_details(notes: Client, tool: str):
    assert _without_meta(notes.call(tool)) == {
        "ok": False,
        "code": "INTERNAL_ERROR",
        "error": f"{tool} failed unexpectedly.",
        "hint": codes.INTERNAL_ERROR.hint,
        "retryable": False,
        "http": 500,
    }


@pytest.mark.promise("KIT-06")
def test_data_cannot_override_ok_or_meta(notes: Client):
    assert notes.call("override") == {
        "result": {"ok": False, "_meta": {"session_id": "forged"}, "data": 1},
        "ok": True,
        "_meta": {"elapsed_ms": ANY, "estimated_tokens": ANY, "session_id": ""},
    }


@pytest.mark.promise("KIT-04")
def test_every_bad_argument_is_reported(notes: Client):
    failed = notes.call("add_note", {"body": 3, "kind": "odd", "colour": "red"})

    assert (failed["code"], failed["details"]) == (
        "BAD_ARGUMENT",
        {
            "issues": [
                {"field": "title", "code": "missing", "message": "It is required."},
                {"field": "body", "code": "type", "message": "Expected `str`, got `int`."},
                {
                    "field": "kind",
                    "code": "choice",
                    "message": "Invalid enum value 'odd'. Choose one of: plain, list.",
                },
                {
                    "field": "colour",
                    "code": "unknown",
                    "message": "Unknown argument. Known: title, body, kind.",
                },
            ]
        },
    )


@pytest.mark.promise("KIT-04")
@pytest.mark.parametrize("arguments", [[], "text", 1])
def test_arguments_that_are_not_an_object_are_reported(notes: Client, arguments: Any):
    result = notes.request("tools/call", {"name": "who", "arguments": arguments})

    assert result["structuredContent"]["code"] == "BAD_ARGUMENT"


@pytest.mark.promise("KIT-02")
def test_operation_type_is_not_shown_to_clients(notes: Client):
    tool = notes.tools()["add_note"]

    assert tool.keys() == {"name", "description", "inputSchema", "outputSchema", "annotations"}
    assert "command" not in str(tool)
    assert "operation" not in str(tool)


@pytest.mark.promise("KIT-01", "KIT-07")
def test_listed_tool_has_the_schema_of_its_signature_and_its_codes(notes: Client):
    tool = notes.tools()["add_note"]

    assert (tool["inputSchema"], tool["description"]) == (
        {
            "type": "object",
            "properties": {
                "title": {
                    "type": "string",
                    "description": "What it is called.",
                    "minLength": 1,
                    "maxLength": 80,
                },
                "body": {"type": "string", "default": ""},
                "kind": {"type": "string", "enum": ["plain", "list"], "default": "plain"},
            },
            "required": ["title"],
            "additionalProperties": False,
        },
        "Add a note.\n\nFails with: NOTE_EXISTS.",
    )


@pytest.mark.promise("KIT-19")
def test_hints_follow_from_the_operation_type(notes: Client):
    tools = notes.tools()

    assert (tools["picture"]["annotations"], tools["add_note"]["annotations"]) == (
        {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": False},
    )


@pytest.mark.promise("KIT-19")
def test_content_is_returned_besides_the_data(notes: Client):
    result = notes.raw_call("picture")

    assert (result["structuredContent"]["size"], result["content"][1:]) == (
        3,
        [
            {"type": "image", "data": "cG5n", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "note://1", "name": "one"},
        ],
    )


@pytest.mark.promise("KIT-09")
def test_eval_tools_are_not_listed_or_run_without_the_flag(notes: Client):
    failed = notes.call("evaluate", {"code": "1 + 1"})

    assert "evaluate" not in notes.tools()
    assert (failed["code"], failed["error"]) == (
        "EVAL_DISABLED",
        "evaluate runs only if the server allows it (`--allow-eval`, or `allow_eval=True` in Python).",
    )


@pytest.mark.promise("KIT-10")
def test_keyword_check_runs_without_the_flag_too(notes: Client):
    assert notes.call("evaluate", {"code": "require('fs')"})["code"] == "EVAL_BLOCKED"


@pytest.mark.promise("KIT-12")
@pytest.mark.parametrize("tool", ["too_long", "too_long_in_a_thread"])
def test_call_past_its_deadline_fails_with_timeout(notes: Client, tool: str):
    failed = notes.call(tool)

    assert (failed["code"], failed["error"], failed["retryable"]) == (
        "TIMEOUT",
        f"{tool} did not finish within 0.2 s.",
        True,
    )


@pytest.mark.promise("KIT-17")
def test_tool_for_direct_sessions_denies_anonymous_callers(notes: Client):
    assert notes.call("powerful")["code"] == "DENIED"


@pytest.mark.promise("KIT-18", "KIT-24")
def test_progress_is_sent_to_clients_that_ask_for_it(notes: Client):
    notes.notifications.clear()

    notes.call("progress", meta={"progressToken": "p1"})

    progress = [each for each in notes.notifications if each["method"] == "notifications/progress"]
    assert [notification["params"] for notification in progress] == [
        {"progressToken": "p1", "progress": 1, "total": 2, "message": "half"},
        {"progressToken": "p1", "progress": 2, "total": 2},
    ]


@pytest.mark.promise("KIT-18", "KIT-24")
def test_log_messages_are_sent_to_clients_that_ask_for_their_level(notes: Client):
    notes.notifications.clear()
    meta: dict[str, Any] = {}
    if notes.era == "handshake":
        assert notes.request("logging/setLevel", {"level": "warning"}) == {}
    else:
        meta = {"io.modelcontextprotocol/logLevel": "warning"}

    notes.call("progress", meta=meta)

    assert [notification["params"] for notification in notes.notifications] == [
        {"level": "warning", "logger": "progress", "data": {"message": "careful", "why": "because"}}
    ]


@pytest.mark.promise("KIT-08", "KIT-11")
def test_driven_session_is_found_and_its_id_is_in_the_envelope(notes: Client):
    if notes.era == "modern" and isinstance(notes.transport, PlainHttpTransport):
        # Anonymous modern callers over HTTP cannot be told apart.
        assert notes.call("launch", {"session_id": "tab-1"})["code"] == "NO_CONTEXT"
        return
    none = notes.call("drive")
    launched = notes.call("launch", {"session_id": "tab-1"})
    again = notes.call("launch", {"session_id": "tab-1"})
    only, thrown = notes.call("drive"), notes.call("drive", {"fail": True})
    notes.call("launch", {"session_id": "tab-2"})
    several, unknown = notes.call("drive"), notes.call("drive", {"session_id": "tab-9"})
    stopped = [notes.call("stop", {"session_id": tab})["stopped"] for tab in ("tab-1", "tab-2", "tab-2")]

    result_codes = [
        envelope.get("code", "OK") for envelope in (none, launched, again, only, thrown, several, unknown)
    ]
    assert result_codes == [
        "NOT_RUNNING",
        "OK",
        "BAD_ARGUMENT",
        "OK",
        "NOT_RUNNING",
        "BAD_ARGUMENT",
        "NOT_RUNNING",
    ]
    assert [envelope["_meta"]["session_id"] for envelope in (launched, only, thrown)] == ["tab-1"] * 3
    assert unknown["details"] == {"available": ["tab-1", "tab-2"]}
    assert unknown["_meta"]["session_id"] == "tab-9"
    assert stopped == [True, True, False]


def test_server_declares_the_context_extension(notes: Client):
    info = notes.initialize({}) if notes.era == "handshake" else notes.request("server/discover", {})

    assert info["capabilities"]["extensions"] == {"dev.holdfast/session": {}}


def test_unknown_tool_and_unknown_method_are_protocol_errors(notes: Client):
    assert notes.raw_call("nope")["error"]["code"] == -32602
    assert notes.request("no/such", {})["error"]["code"] == -32601


def _without_meta(envelope: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in envelope.items() if key != "_meta"}
