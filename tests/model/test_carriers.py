from holdfast.model.carriers import META_KEY, context_env, context_meta, read_context, read_env
from holdfast.model.context import SessionContext
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust

WHOLE = SessionContext(
    session_id=SessionId("sess_0123456789abcdef"),
    workspace_id="my-project",
    trust_level=Trust.SANDBOXED,
    user_id="me",
    parent_session_id=SessionId("sess_fedcba9876543210"),
)
BARE = SessionContext(
    session_id=SessionId("sess_0123456789abcdef"), trust_level=Trust.DIRECT, cwd="/x", roots=("/x",)
)


def test_a_context_travels_as_variables_and_comes_back_whole():
    assert context_env(WHOLE) == {
        "HOLDFAST_SESSION_ID": "sess_0123456789abcdef",
        "HOLDFAST_WORKSPACE_ID": "my-project",
        "HOLDFAST_TRUST_LEVEL": "sandboxed",
        "HOLDFAST_USER_ID": "me",
        "HOLDFAST_PARENT_SESSION_ID": "sess_fedcba9876543210",
    }
    assert read_env(context_env(WHOLE)) == WHOLE


def test_a_workspace_is_never_null_and_local_paths_do_not_travel():
    assert context_meta(BARE) == {
        META_KEY: {"session_id": "sess_0123456789abcdef", "workspace_id": "", "trust_level": "direct"}
    }


def test_half_a_context_or_a_senseless_one_is_none():
    said = {"session_id": "sess_0123456789abcdef", "workspace_id": "", "trust_level": "direct"}

    assert read_context(said) is not None
    for field, value in [
        ("session_id", "x"),
        ("session_id", None),
        ("trust_level", "root"),
        ("workspace_id", 5),
        ("user_id", 5),
    ]:
        assert read_context({**said, field: value}) is None
    assert read_env({}) is None
