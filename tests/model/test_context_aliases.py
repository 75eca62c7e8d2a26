from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust

CONTEXT = SessionContext(
    session_id=SessionId("sess_0123456789abcdef"),
    trust_level=Trust.SANDBOXED,
    workspace_id="blog",
    cwd="/home/ann/blog",
)
ALIASES = ContextAliases(
    env_prefixes=("PARACHUTE",),
    session_variables=("AGENT_SESSION_ID",),
    workspace_keys=("orbit.workspace",),
    session_keys=("agent-session-id",),
)


@pytest.mark.promise("CTX-12")
def test_there_are_no_aliases_by_default() -> None:
    assert (NO_ALIASES.env(CONTEXT), NO_ALIASES.meta(CONTEXT, "/home/ann/blog"), NO_ALIASES.variables) == (
        {},
        {},
        frozenset(),
    )
    assert NO_ALIASES.workspace_in({"orbit": {"workspace": "/x"}, "orbit.workspace": "/x"}) == ""


@pytest.mark.promise("CTX-12")
def test_context_is_set_under_alias_variables() -> None:
    assert ALIASES.env(CONTEXT) == {
        "PARACHUTE_SESSION_ID": "sess_0123456789abcdef",
        "PARACHUTE_WORKSPACE_ID": "blog",
        "PARACHUTE_TRUST_LEVEL": "sandboxed",
        "AGENT_SESSION_ID": "sess_0123456789abcdef",
    }


@pytest.mark.promise("CTX-12")
def test_local_server_gets_the_path_under_nested_and_flat_keys() -> None:
    assert ALIASES.meta(CONTEXT, "/home/ann/blog") == {
        "agent-session-id": "sess_0123456789abcdef",
        "orbit": {"workspace": "/home/ann/blog"},
        "orbit.workspace": "/home/ann/blog",
    }


@pytest.mark.promise("CTX-12")
def test_remote_server_gets_no_path() -> None:
    meta = ALIASES.meta(CONTEXT)

    assert (meta["orbit"], meta["orbit.workspace"]) == ({"workspace": "blog"}, "blog")
    assert "/home" not in str(meta)


def test_workspace_keys_are_left_out_without_a_workspace() -> None:
    no_workspace = SessionContext(session_id=CONTEXT.session_id, trust_level=Trust.DIRECT)

    assert ALIASES.meta(no_workspace, "/home/ann") == {"agent-session-id": "sess_0123456789abcdef"}


def test_aliases_with_a_common_parent_do_not_overwrite_each_other() -> None:
    aliases = ContextAliases(workspace_keys=("a.b", "a.c", "a", "a.b.c"))

    assert aliases.meta(CONTEXT) == {"a": "blog", "a.b": "blog", "a.c": "blog", "a.b.c": "blog"}
    assert ContextAliases(workspace_keys=("a.b", "a.c")).meta(CONTEXT)["a"] == {"b": "blog", "c": "blog"}


def test_key_with_a_slash_is_flat() -> None:
    assert ContextAliases(workspace_keys=("com.example/workspace",)).meta(CONTEXT) == {
        "com.example/workspace": "blog"
    }


@pytest.mark.promise("CTX-12", "WSP-01")
@pytest.mark.parametrize(
    ("meta", "workspace"),
    [
        ({}, ""),
        ({"dev.holdfast/session": {"workspace_id": "blog"}}, "blog"),
        ({"dev.holdfast/session": {"workspace": " /home/ann/blog\n"}}, "/home/ann/blog"),
        ({"dev.holdfast/session": {"workspace_id": "one", "workspace": "two"}}, "one"),
        ({"dev.holdfast/session": {"workspace_id": "  ", "workspace": "two"}}, "two"),
        ({"dev.holdfast/session": {"workspace_id": ""}}, ""),
        ({"dev.holdfast/session": {}, "orbit": {"workspace": "/x"}}, "/x"),
        ({"dev.holdfast/session": {"workspace": "own"}, "orbit": {"workspace": "/x"}}, "own"),
        ({"orbit": {"workspace": "/nested"}, "orbit.workspace": "/flat"}, "/nested"),
        ({"orbit": {"workspace": " "}, "orbit.workspace": "/flat"}, "/flat"),
        ({"orbit.workspace": "/flat"}, "/flat"),
        ({"orbit": "/x", "dev.holdfast/session": "blog"}, ""),
        ({"orbit": {"workspace": 7}, "dev.holdfast/session": {"workspace_id": ["blog"]}}, ""),
        ({"orbit": None, "dev.holdfast/session": None}, ""),
        ({"dev.holdfast.session": {"workspace": "x"}, "dev": {"holdfast/session": {"workspace": "x"}}}, ""),
    ],
)
def test_workspace_is_read_from_our_own_key_then_from_the_aliases(
    meta: dict[str, Any], workspace: str
) -> None:
    assert ALIASES.workspace_in(meta) == workspace


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: st.dictionaries(
            st.sampled_from(
                ["orbit", "workspace", "orbit.workspace", "dev.holdfast/session", "workspace_id"]
            ),
            inner,
        ),
    )
)
def test_workspace_is_always_trimmed_text(meta: Any) -> None:
    workspace = ALIASES.workspace_in(meta if isinstance(meta, dict) else {})  # pyright: ignore[reportUnknownArgumentType]

    assert workspace == workspace.strip()


@given(st.sampled_from(["", "/home/ann/blog"]))
def test_workspace_round_trips_through_meta(folder: str) -> None:
    assert ALIASES.workspace_in(ALIASES.meta(CONTEXT, folder)) == (folder or "blog")


def test_variables_lists_every_variable_of_the_aliases() -> None:
    assert ALIASES.variables == {
        "PARACHUTE_SESSION_ID",
        "PARACHUTE_WORKSPACE_ID",
        "PARACHUTE_TRUST_LEVEL",
        "PARACHUTE_USER_ID",
        "PARACHUTE_PARENT_SESSION_ID",
        "AGENT_SESSION_ID",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"env_prefixes": ("LD",)},
        {"env_prefixes": ("HOLDFAST",)},
        {"env_prefixes": ("A B",)},
        {"env_prefixes": ("1A",)},
        {"session_variables": ("PATH",)},
        {"session_variables": ("",)},
        {"session_variables": ("A=B",)},
        {"workspace_keys": ("",)},
        {"workspace_keys": (".a",)},
        {"workspace_keys": ("a..b",)},
        {"workspace_keys": ("progressToken",)},
        {"workspace_keys": ("io.modelcontextprotocol/workspace",)},
        {"session_keys": ("tools.mcp/session",)},
        {"session_keys": ("dev.holdfast/session",)},
        {"session_keys": ("dev.holdfast/other",)},
    ],
    ids=str,
)
def test_invalid_or_reserved_alias_is_refused(
    wrong: dict[str, tuple[str, ...]],
) -> None:
    with pytest.raises(HoldfastError) as caught:
        ContextAliases(**wrong)

    assert caught.value.code == codes.BAD_SETTINGS
