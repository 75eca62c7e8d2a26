from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import codes
from holdfast.model.aliases import NO_ALIASES, Aliases
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust

CONTEXT = SessionContext(
    session_id=SessionId("sess_0123456789abcdef"),
    trust_level=Trust.SANDBOXED,
    workspace_id="blog",
    cwd="/home/ann/blog",
)
KNOWN = Aliases(
    env_prefixes=("PARACHUTE",),
    session_variables=("AGENT_SESSION_ID",),
    workspace_keys=("orbit.workspace",),
    session_keys=("agent-session-id",),
)


@pytest.mark.promise("CTX-12")
def test_none_is_built_in() -> None:
    assert (NO_ALIASES.env(CONTEXT), NO_ALIASES.meta(CONTEXT, "/home/ann/blog"), NO_ALIASES.variables) == (
        {},
        {},
        frozenset(),
    )
    assert NO_ALIASES.announced({"orbit": {"workspace": "/x"}, "orbit.workspace": "/x"}) == ""


@pytest.mark.promise("CTX-12")
def test_servers_find_the_context_under_the_other_variables() -> None:
    assert KNOWN.env(CONTEXT) == {
        "PARACHUTE_SESSION_ID": "sess_0123456789abcdef",
        "PARACHUTE_WORKSPACE_ID": "blog",
        "PARACHUTE_TRUST_LEVEL": "sandboxed",
        "AGENT_SESSION_ID": "sess_0123456789abcdef",
    }


@pytest.mark.promise("CTX-12")
def test_a_local_server_finds_the_path_under_the_other_keys_nested_and_flat() -> None:
    assert KNOWN.meta(CONTEXT, "/home/ann/blog") == {
        "agent-session-id": "sess_0123456789abcdef",
        "orbit": {"workspace": "/home/ann/blog"},
        "orbit.workspace": "/home/ann/blog",
    }


@pytest.mark.promise("CTX-12")
def test_a_remote_server_learns_no_path() -> None:
    said = KNOWN.meta(CONTEXT)

    assert (said["orbit"], said["orbit.workspace"]) == ({"workspace": "blog"}, "blog")
    assert "/home" not in str(said)


def test_without_a_workspace_none_is_named() -> None:
    nowhere = SessionContext(session_id=CONTEXT.session_id, trust_level=Trust.DIRECT)

    assert KNOWN.meta(nowhere, "/home/ann") == {"agent-session-id": "sess_0123456789abcdef"}


def test_aliases_that_share_a_branch_share_it_and_none_hides_another() -> None:
    aliases = Aliases(workspace_keys=("a.b", "a.c", "a", "a.b.c"))

    assert aliases.meta(CONTEXT) == {"a": "blog", "a.b": "blog", "a.c": "blog", "a.b.c": "blog"}
    assert Aliases(workspace_keys=("a.b", "a.c")).meta(CONTEXT)["a"] == {"b": "blog", "c": "blog"}


def test_a_key_with_a_slash_is_flat() -> None:
    assert Aliases(workspace_keys=("com.example/workspace",)).meta(CONTEXT) == {
        "com.example/workspace": "blog"
    }


@pytest.mark.promise("CTX-12", "WSP-01")
@pytest.mark.parametrize(
    ("meta", "announced"),
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
def test_an_announcement_is_read_from_our_own_key_then_from_the_aliases(
    meta: dict[str, Any], announced: str
) -> None:
    assert KNOWN.announced(meta) == announced


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
def test_whatever_a_client_sends_the_announcement_is_a_trimmed_text(meta: Any) -> None:
    announced = KNOWN.announced(meta if isinstance(meta, dict) else {})  # pyright: ignore[reportUnknownArgumentType]

    assert announced == announced.strip()


@given(st.sampled_from(["", "/home/ann/blog"]))
def test_what_we_send_is_what_we_read(folder: str) -> None:
    assert KNOWN.announced(KNOWN.meta(CONTEXT, folder)) == (folder or "blog")


def test_every_variable_an_alias_takes_is_told_so_that_no_config_sets_it() -> None:
    assert KNOWN.variables == {
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
def test_an_alias_that_would_take_what_has_a_meaning_already_is_refused(
    wrong: dict[str, tuple[str, ...]],
) -> None:
    with pytest.raises(HoldfastError) as caught:
        Aliases(**wrong)

    assert caught.value.code == codes.BAD_SETTINGS
