"""What an editor is told when something is refused."""

import msgspec
import pytest

from holdfast.acp.refusal import refusal
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject
from holdfast.wire.frame import Request


def asked(params: JsonObject) -> Request:
    return Request(1, "session/prompt", msgspec.Raw(msgspec.json.encode(params)))


def test_an_error_has_its_hint_and_the_protocols_names_beside_what_it_says():
    told = refusal(HoldfastError(codes.SESSION_HELD, "Held.", session_id="sess_1", pid=5), asked({}))

    assert (told.code, told.message) == (codes.SESSION_HELD, "Held.")
    assert told.details == {"sessionId": "sess_1", "pid": 5, "hint": codes.SESSION_HELD.hint}


def test_a_hint_of_its_own_comes_first():
    told = refusal(HoldfastError(codes.BAD_ARGUMENT, "No.", hint="Say yes."), asked({}))

    assert told.details == {"hint": "Say yes."}


@pytest.mark.parametrize(
    ("params", "about"),
    [
        ({"sessionId": "sess_2"}, {"sessionId": "sess_2"}),
        ({"sessionId": "x" * 300}, {"sessionId": "x" * 256}),
        ({"sessionId": 5}, {}),
        ({"sessionId": None}, {}),
    ],
)
def test_it_says_which_session_it_is_about(params: JsonObject, about: JsonObject):
    told = refusal(HoldfastError(codes.STORE_FULL, "Full."), asked(params))

    assert told.details == {"hint": codes.STORE_FULL.hint, **about}
