"""What the host tells an in-process server about a call: its id, which agent makes it, and whether it was allowed."""

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
    """Whether a person or a rule allowed this very call, and not only the mode. Never in the mode `auto`."""


_UNKNOWN = CallFacts()


def read_call_facts(call: "Call") -> CallFacts:
    """Read the facts in a call's `_meta`. Only the host writes them: it replaces what a caller sends under this key."""
    try:
        return msgspec.convert(call.meta.get(CALL_KEY), CallFacts)
    except msgspec.ValidationError:
        return _UNKNOWN
