import asyncio

import pytest

from holdfast.model.context import (
    META_KEY,
    SessionContext,
    context_env,
    context_from_env,
    context_meta,
    current_context,
    parse_context,
    use_context,
)
from holdfast.model.ids import SessionId, new_session_id
from holdfast.model.trust import Trust

FULL = SessionContext(
    session_id=SessionId("sess_0123456789abcdef"),
    workspace_id="my-project",
    trust_level=Trust.SANDBOXED,
    user_id="me",
    parent_session_id=SessionId("sess_fedcba9876543210"),
)
MINIMAL = SessionContext(
    session_id=SessionId("sess_0123456789abcdef"), trust_level=Trust.DIRECT, cwd="/x", roots=("/x",)
)


def test_context_round_trips_through_environment_variables():
    assert context_env(FULL) == {
        "HOLDFAST_SESSION_ID": "sess_0123456789abcdef",
        "HOLDFAST_WORKSPACE_ID": "my-project",
        "HOLDFAST_TRUST_LEVEL": "sandboxed",
        "HOLDFAST_USER_ID": "me",
        "HOLDFAST_PARENT_SESSION_ID": "sess_fedcba9876543210",
    }
    assert context_from_env(context_env(FULL)) == FULL


def test_meta_has_an_empty_workspace_and_no_local_paths():
    assert context_meta(MINIMAL) == {
        META_KEY: {"session_id": "sess_0123456789abcdef", "workspace_id": "", "trust_level": "direct"}
    }


def test_incomplete_or_invalid_context_is_none():
    fields = {"session_id": "sess_0123456789abcdef", "workspace_id": "", "trust_level": "direct"}

    assert parse_context(fields) is not None
    for field, value in [
        ("session_id", "x"),
        ("session_id", None),
        ("trust_level", "root"),
        ("workspace_id", 5),
        ("user_id", 5),
    ]:
        assert parse_context({**fields, field: value}) is None
    assert context_from_env({}) is None


def test_context_is_current_only_inside_its_block():
    outer = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)
    inner = SessionContext(session_id=new_session_id(), trust_level=Trust.SANDBOXED)

    with use_context(outer):
        with use_context(inner):
            assert current_context() is inner
        assert current_context() is outer
    assert current_context() is None


@pytest.mark.anyio
async def test_child_task_inherits_the_context_but_cannot_change_that_of_its_parent():
    mine = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)
    other = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)

    async def child() -> SessionContext | None:
        inherited = current_context()
        use_context(other).__enter__()
        return inherited

    with use_context(mine):
        inherited = await asyncio.create_task(child())

        assert (inherited, current_context()) == (mine, mine)
