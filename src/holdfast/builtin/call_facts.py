"""What the host tells an in-process server about a call: its id, who makes it, and whether a person allowed it."""

from typing import TYPE_CHECKING

import msgspec

from holdfast.model.meta_keys import CALL_KEY

if TYPE_CHECKING:
    from holdfast.toolkit.call import Call


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one call."""

    call_id: str = ""
    agent: str = ""
    """The id of the sub-agent that makes the call; empty for the session's own agent."""
    is_confirmed: bool = False
    """Whether a person or a rule allowed this very call, and not only the mode."""


_UNKNOWN = CallFacts()


def read_call_facts(call: "Call") -> CallFacts:
    """Read the facts in a call's `_meta`. The host removes this key from what callers send, and adds its own."""
    try:
        return msgspec.convert(call.meta.get(CALL_KEY), CallFacts)
    except msgspec.ValidationError:
        return _UNKNOWN
