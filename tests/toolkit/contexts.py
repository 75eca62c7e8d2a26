"""Session contexts, and what the tool `who` returns for each."""

from holdfast.model.context import META_KEY, SessionContext, context_env, context_meta
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

ANN_FACTS = {
    "session": "sess_aaaaaaaaaaaaaaaa",
    "workspace": "blog",
    "trust": "direct",
    "user": "ann",
    "parent": "sess_cccccccccccccccc",
    "announced": "",
}
BOB_FACTS = {
    "session": "sess_bbbbbbbbbbbbbbbb",
    "workspace": "shop",
    "trust": "sandboxed",
    "user": None,
    "parent": None,
    "announced": "",
}
ANONYMOUS_FACTS = {
    "session": None,
    "workspace": None,
    "trust": None,
    "user": None,
    "parent": None,
    "announced": "",
}

__all__ = [
    "ANN",
    "ANN_FACTS",
    "ANONYMOUS_FACTS",
    "BOB",
    "BOB_FACTS",
    "META_KEY",
    "SessionContext",
    "context_env",
    "context_meta",
]
