"""Errors as the editor gets them."""

import msgspec
import pytest

from holdfast.acp.serve import editor_error
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.messages import Request


def request(params: JsonObject) -> Request:
    return Request(1, "session/prompt", msgspec.Raw(msgspec.json.encode(params)))


def test_error_has_a_hint_and_uses_acp_names():
    error = editor_error(HoldfastError(codes.SESSION_HELD, "Held.", session_id="sess_1", pid=5), request({}))

    assert (error.code, error.message) == (codes.SESSION_HELD, "Held.")
    assert error.details == {"sessionId": "sess_1", "pid": 5, "hint": codes.SESSION_HELD.hint}


@pytest.mark.parametrize("code", [codes.BAD_ARGUMENT, codes.CONNECTION_CLOSED])
def test_hint_of_a_code_speaks_of_requests_and_not_of_calls(code: codes.Code):
    hint = editor_error(HoldfastError(code, "No."), request({})).hint

    assert "call again" not in hint
    assert "send the request again" in hint


def test_own_hint_replaces_the_hint_of_the_code():
    error = editor_error(HoldfastError(codes.BAD_ARGUMENT, "No.", hint="Say yes."), request({}))

    assert error.details == {"hint": "Say yes."}


@pytest.mark.parametrize(
    ("params", "about"),
    [
        ({"sessionId": "sess_2"}, {"sessionId": "sess_2"}),
        ({"sessionId": "x" * 300}, {"sessionId": "x" * 256}),
        ({"sessionId": 5}, {}),
        ({"sessionId": None}, {}),
    ],
)
def test_error_names_the_session_of_the_request(params: JsonObject, about: JsonObject):
    error = editor_error(HoldfastError(codes.STORE_FULL, "Full."), request(params))

    assert error.details == {"hint": codes.STORE_FULL.hint, **about}
