"""Ids, trust, allowlists, slugs, servers, codes and budgets."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.model import codes
from holdfast.model.agent_definition import parse_definition
from holdfast.model.allowlist import ALLOW_ALL, ALLOW_NONE, Allowlist
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import new_call_id, new_message_id, new_session_id, new_turn_id, parse_session_id
from holdfast.model.resolution import Refusal, Resolution, Stage
from holdfast.model.server import Http, ServerSpec, Source, Stdio
from holdfast.model.slug import SLUG_LENGTH, parse_slug, slugify, unique_slug
from holdfast.model.trust import Trust, lowest_trust, parse_trust

allowlists = st.one_of(st.just(ALLOW_ALL), st.frozensets(st.sampled_from("abcd")).map(Allowlist))


@pytest.mark.promise("CTX-09")
def test_ids_have_a_prefix_and_are_random():
    ids = [new_session_id(), new_turn_id(), new_message_id(), new_call_id()]

    assert [identity.partition("_")[0] for identity in ids] == ["sess", "turn", "msg", "call"]
    assert all(len(identity.partition("_")[2]) >= 16 for identity in ids)
    assert len({new_session_id() for _ in range(1000)}) == 1000
    assert parse_session_id(ids[0]) == ids[0]


@pytest.mark.parametrize(
    "text", ["", "sess_", "sess_0123456789abcde", "sess_0123456789ABCDEF", "sess_0123456789abcdef\n", "../x"]
)
def test_invalid_session_id_is_refused(text: str):
    with pytest.raises(HoldfastError, match="is not a session id") as refused:
        parse_session_id(text)

    assert refused.value.code is codes.BAD_ID


@pytest.mark.promise("RES-03")
def test_trust_levels_have_several_names():
    words = ["direct", "Trusted", "FULL", " vault ", "sandboxed", "Untrusted"]

    assert [parse_trust(word) for word in words] == [Trust.DIRECT] * 4 + [Trust.SANDBOXED] * 2


@given(st.text())
@pytest.mark.promise("RES-03")
def test_unknown_trust_is_an_error(word: str):
    assume(word.strip().lower() not in ("direct", "trusted", "full", "vault", "sandboxed", "untrusted"))

    with pytest.raises(HoldfastError, match="is not a trust level") as refused:
        parse_trust(word)
    assert refused.value.code is codes.BAD_TRUST


def test_lowest_trust_is_sandboxed_if_any_is():
    assert lowest_trust(Trust.DIRECT, Trust.DIRECT) is Trust.DIRECT
    assert lowest_trust(Trust.DIRECT, Trust.SANDBOXED, Trust.DIRECT) is Trust.SANDBOXED


@given(allowlists, allowlists, st.sampled_from("abcde"))
def test_intersection_allows_what_both_allow(one: Allowlist, other: Allowlist, name: str):
    assert one.intersect(other).allows(name) == (one.allows(name) and other.allows(name))


def test_allow_none_and_allow_all():
    assert (ALLOW_NONE.allows("x"), ALLOW_ALL.allows("x")) == (False, True)


@pytest.mark.parametrize("slug", ["a", "a1", "my-project", "0", "a--b"])
@pytest.mark.promise("RES-10")
def test_valid_slug_is_accepted(slug: str):
    assert parse_slug(slug) == slug


@pytest.mark.parametrize("slug", ["", "-a", "a-", "A", "a/b", "a\\b", "..", "a b", "é", "a\n", "x" * 65])
@pytest.mark.promise("RES-10")
def test_invalid_slug_is_refused(slug: str):
    with pytest.raises(HoldfastError) as refused:
        parse_slug(slug)

    assert refused.value.code is codes.BAD_WORKSPACE


@pytest.mark.promise("RES-10")
def test_slug_of_a_name_is_numbered_if_taken():
    assert slugify("My Project!") == "my-project"
    assert unique_slug("x", ["x"]) == "x-2"
    assert unique_slug("x", ["x", "x-2"]) == "x-3"
    assert [slugify(name) for name in ("Meine Bücher", "Straße É", "日本語", "…")] == [
        "meine-bucher",
        "strasse-e",
        "workspace",
        "workspace",
    ]


@given(st.text(min_size=1), st.integers(1, 5))
@pytest.mark.promise("RES-10")
def test_slug_of_any_name_is_valid_and_free(name: str, times: int):
    taken: list[str] = []
    for _ in range(times):
        taken.append(unique_slug(slugify(name), taken))

    assert [parse_slug(slug) for slug in taken] == taken
    assert len(set(taken)) == times
    assert all(len(slug) <= SLUG_LENGTH for slug in taken)


def server(name: str, *, min_trust: Trust = Trust.DIRECT, source: Source = Source.OPERATOR) -> ServerSpec:
    return ServerSpec(name=name, source=source, transport=Stdio(command="x"), min_trust=min_trust)


def test_sandboxed_sessions_may_use_marked_servers_and_those_of_their_client():
    specs = [server("a"), server("b", min_trust=Trust.SANDBOXED), server("c", source=Source.CLIENT)]

    assert [spec.may_be_used_by(Trust.SANDBOXED) for spec in specs] == [False, True, True]
    assert all(spec.may_be_used_by(Trust.DIRECT) for spec in specs)


def test_refuse_if_moves_servers_to_refusals():
    before = Resolution(servers=(server("a"), server("b"), server("c")))

    after = before.refuse_if(lambda spec: "not allowed" if spec.name == "b" else None, stage=Stage.ADMIT)

    assert after == Resolution(
        servers=(server("a"), server("c")),
        refusals=(Refusal(server="b", stage=Stage.ADMIT, reason="not allowed"),),
    )


@pytest.mark.promise("AUD-03")
def test_repr_of_a_server_shows_no_secrets():
    specs = [
        ServerSpec(name="a", source=Source.OPERATOR, transport=Stdio(command="x", env={"KEY": "canary"})),
        ServerSpec(
            name="b",
            source=Source.OPERATOR,
            transport=Http(url="http://x", headers={"Authorization": "canary"}),
        ),
    ]

    assert "canary" not in repr(specs)
    assert len({*specs}) == 2


def test_every_code_has_a_unique_name_a_hint_and_a_status():
    assert [code.name for code in codes.registered()] == sorted({code.name for code in codes.registered()})
    assert all(code.hint and 400 <= code.http_status < 600 for code in codes.registered())
    assert codes.find("BAD_TRUST") is codes.BAD_TRUST
    assert codes.find("NOPE") is None


def test_code_is_registered_once_and_named_in_upper_case():
    with pytest.raises(ValueError, match="already registered"):
        codes.register(Code(name="BAD_TRUST", hint="x", http_status=400))
    with pytest.raises(ValueError, match="UPPER_SNAKE_CASE"):
        Code(name="badTrust", hint="x", http_status=400)


@pytest.mark.parametrize(
    "number", ["0", "-1", "1000000001", "1" + "0" * 30, "0" * 19 + "1" + "9" * 30, "one"]
)
def test_a_budget_outside_of_its_range_is_refused(number: str):
    with pytest.raises(ValueError, match="its budget has 'tokens'"):
        parse_definition("worker", f"---\nbudget:\n  tokens: {number}\n---\nWork.")
