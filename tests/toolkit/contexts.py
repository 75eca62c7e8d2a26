"""Sessions, as a host would vouch for them."""

from holdfast.model.carriers import META_KEY, context_env, context_meta
from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust

ANN = SessionContext(
    session_id=SessionId("sess_aaaaaaaaaaaaaaaa"),
    workspace_id="blog",
    trust_level=Trust.DIRECT,
    user_id="ann",
    parent_session_id=SessionId("sess_cccccccccccccccc"),
)
BOB = SessionContext(
    session_id=SessionId("sess_bbbbbbbbbbbbbbbb"), workspace_id="shop", trust_level=Trust.SANDBOXED
)

ANN_SAID = {
    "session": "sess_aaaaaaaaaaaaaaaa",
    "workspace": "blog",
    "trust": "direct",
    "user": "ann",
    "parent": "sess_cccccccccccccccc",
    "announced": "",
}
BOB_SAID = {
    "session": "sess_bbbbbbbbbbbbbbbb",
    "workspace": "shop",
    "trust": "sandboxed",
    "user": None,
    "parent": None,
    "announced": "",
}
NOBODY_SAID = {
    "session": None,
    "workspace": None,
    "trust": None,
    "user": None,
    "parent": None,
    "announced": "",
}

__all__ = [
    "ANN",
    "ANN_SAID",
    "BOB",
    "BOB_SAID",
    "META_KEY",
    "NOBODY_SAID",
    "SessionContext",
    "context_env",
    "context_meta",
]
