"""What the host tells an in-process server about a call: its id, which agent makes it, and whether it was confirmed."""

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
    """True if a person or a permission rule allowed this call. False if only the session's mode allows it, and always in the mode `auto`."""


_UNKNOWN = CallFacts()


def read_call_facts(call: "Call") -> CallFacts:
    """Read the facts in a call's `_meta`. Callers cannot forge them: the host overwrites this key in every call."""
    try:
        return msgspec.convert(call.meta.get(CALL_KEY), CallFacts)
    except msgspec.ValidationError:
        return _UNKNOWN
