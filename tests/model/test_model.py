import ast
import asyncio
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import holdfast.model
from holdfast.model import codes
from holdfast.model.choice import ALL, NONE, Choice
from holdfast.model.codes import Code
from holdfast.model.context import SessionContext, current_context, within
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import new_call_id, new_message_id, new_session_id, new_turn_id, parse_session_id
from holdfast.model.resolution import Refusal, Resolution, Stage
from holdfast.model.server import Http, ServerSpec, Source, Stdio
from holdfast.model.trust import Trust, lowest, parse_trust
from holdfast.model.workspace import SLUG_LENGTH, parse_slug, slug_for

choices = st.one_of(st.just(ALL), st.frozensets(st.sampled_from("abcd")).map(Choice))


def test_the_model_is_made_of_the_standard_library_alone():
    imported = {
        node.module.partition(".")[0]
        if isinstance(node, ast.ImportFrom) and node.module
        else alias.name.partition(".")[0]
        for file in Path(holdfast.model.__path__[0]).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }

    assert imported - set(sys.stdlib_module_names) == {"holdfast"}


@pytest.mark.promise("CTX-09")
def test_ids_are_minted_with_a_kind_and_enough_randomness():
    minted = [new_session_id(), new_turn_id(), new_message_id(), new_call_id()]

    assert [identity.partition("_")[0] for identity in minted] == ["sess", "turn", "msg", "call"]
    assert all(len(identity.partition("_")[2]) >= 16 for identity in minted)
    assert len({new_session_id() for _ in range(1000)}) == 1000
    assert parse_session_id(minted[0]) == minted[0]


@pytest.mark.parametrize(
    "text", ["", "sess_", "sess_0123456789abcde", "sess_0123456789ABCDEF", "sess_0123456789abcdef\n", "../x"]
)
def test_what_is_no_session_id_is_refused(text: str):
    with pytest.raises(HoldfastError, match="is not a session id") as refused:
        parse_session_id(text)

    assert refused.value.code is codes.BAD_ID


@pytest.mark.promise("RES-03")
def test_trust_has_two_levels_under_several_names():
    words = ["direct", "Trusted", "FULL", " vault ", "sandboxed", "Untrusted"]

    assert [parse_trust(word) for word in words] == [Trust.DIRECT] * 4 + [Trust.SANDBOXED] * 2


@given(st.text())
@pytest.mark.promise("RES-03")
def test_an_unknown_word_is_never_direct(word: str):
    assume(word.strip().lower() not in ("direct", "trusted", "full", "vault", "sandboxed", "untrusted"))

    with pytest.raises(HoldfastError, match="is no trust level") as refused:
        parse_trust(word)
    assert refused.value.code is codes.BAD_TRUST


def test_the_lowest_trust_is_sandboxed_as_soon_as_one_is():
    assert lowest(Trust.DIRECT, Trust.DIRECT) is Trust.DIRECT
    assert lowest(Trust.DIRECT, Trust.SANDBOXED, Trust.DIRECT) is Trust.SANDBOXED


@given(choices, choices, st.sampled_from("abcde"))
def test_narrowing_a_choice_allows_just_what_both_allow(one: Choice, other: Choice, name: str):
    assert one.narrowed(other).allows(name) == (one.allows(name) and other.allows(name))


def test_none_allows_nothing_and_all_allows_everything():
    assert (NONE.allows("x"), ALL.allows("x")) == (False, True)


@pytest.mark.parametrize("slug", ["a", "a1", "my-project", "0", "a--b"])
@pytest.mark.promise("RES-10")
def test_a_slug_is_read_as_it_is(slug: str):
    assert parse_slug(slug) == slug


@pytest.mark.parametrize("slug", ["", "-a", "a-", "A", "a/b", "a\\b", "..", "a b", "é", "a\n", "x" * 65])
@pytest.mark.promise("RES-10")
def test_what_is_no_slug_is_refused(slug: str):
    with pytest.raises(HoldfastError) as refused:
        parse_slug(slug)

    assert refused.value.code is codes.BAD_WORKSPACE


@pytest.mark.promise("RES-10")
def test_a_name_becomes_a_slug_and_a_taken_one_is_numbered():
    assert slug_for("My Project!") == "my-project"
    assert slug_for("x", ["x"]) == "x-2"
    assert slug_for("x", ["x", "x-2"]) == "x-3"
    with pytest.raises(HoldfastError, match="no letter or digit"):
        slug_for("…")


@given(st.text(min_size=1), st.integers(1, 5))
@pytest.mark.promise("RES-10")
def test_every_slug_made_of_a_name_is_a_free_slug(name: str, times: int):
    taken: list[str] = []
    try:
        for _ in range(times):
            taken.append(slug_for(name, taken))
    except HoldfastError:
        return

    assert [parse_slug(slug) for slug in taken] == taken
    assert len(set(taken)) == times
    assert all(len(slug) <= SLUG_LENGTH for slug in taken)


def test_the_context_is_current_inside_its_block_only():
    outer = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)
    inner = SessionContext(session_id=new_session_id(), trust_level=Trust.SANDBOXED)

    with within(outer):
        with within(inner):
            assert current_context() is inner
        assert current_context() is outer
    assert current_context() is None


@pytest.mark.anyio
async def test_a_child_task_inherits_the_context_and_cannot_change_its_parent_s():
    mine = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)
    other = SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT)

    async def child() -> SessionContext | None:
        inherited = current_context()
        within(other).__enter__()
        return inherited

    with within(mine):
        inherited = await asyncio.create_task(child())

        assert (inherited, current_context()) == (mine, mine)


def server(name: str, *, trust: Trust = Trust.DIRECT, source: Source = Source.HOST) -> ServerSpec:
    return ServerSpec(name=name, source=source, transport=Stdio(command="x"), trust=trust)


def test_a_server_admits_sandboxed_sessions_when_marked_or_brought_by_their_client():
    specs = [server("a"), server("b", trust=Trust.SANDBOXED), server("c", source=Source.CLIENT)]

    assert [spec.admits(Trust.SANDBOXED) for spec in specs] == [False, True, True]
    assert all(spec.admits(Trust.DIRECT) for spec in specs)


def test_sifting_a_resolution_gives_each_fallen_server_one_refusal():
    before = Resolution(servers=(server("a"), server("b"), server("c")))

    after = before.sift(lambda spec: "not for you" if spec.name == "b" else None, stage=Stage.ADMIT)

    assert after == Resolution(
        servers=(server("a"), server("c")),
        refusals=(Refusal(server="b", stage=Stage.ADMIT, reason="not for you"),),
    )


@pytest.mark.promise("AUD-03")
def test_secrets_of_a_server_do_not_show_when_it_is_printed():
    specs = [
        ServerSpec(name="a", source=Source.HOST, transport=Stdio(command="x", env={"KEY": "canary"})),
        ServerSpec(
            name="b", source=Source.HOST, transport=Http(url="http://x", headers={"Authorization": "canary"})
        ),
    ]

    assert "canary" not in repr(specs)
    assert len({*specs}) == 2


def test_every_code_has_a_name_a_hint_and_a_status():
    assert [code.name for code in codes.registered()] == sorted({code.name for code in codes.registered()})
    assert all(code.hint and 400 <= code.http < 600 for code in codes.registered())
    assert codes.find("BAD_TRUST") is codes.BAD_TRUST
    assert codes.find("NOPE") is None


def test_a_code_is_registered_once_and_named_in_capitals():
    with pytest.raises(ValueError, match="registered already"):
        codes.register(Code(name="BAD_TRUST", hint="x", http=400))
    with pytest.raises(ValueError, match="UPPER_SNAKE_CASE"):
        Code(name="badTrust", hint="x", http=400)
