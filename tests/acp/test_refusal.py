"""What an editor is told when something is refused."""

from holdfast.acp.refusal import refusal
from holdfast.model import codes
from holdfast.model.errors import HoldfastError


def test_an_error_has_its_hint_and_the_protocols_names_beside_what_it_says():
    told = refusal(HoldfastError(codes.SESSION_HELD, "Held.", session_id="sess_1", pid=5))

    assert (told.code, told.message) == (codes.SESSION_HELD, "Held.")
    assert told.details == {"sessionId": "sess_1", "pid": 5, "hint": codes.SESSION_HELD.hint}


def test_a_hint_of_its_own_comes_first():
    told = refusal(HoldfastError(codes.BAD_ARGUMENT, "No.", hint="Say yes."))

    assert told.details == {"hint": "Say yes."}
