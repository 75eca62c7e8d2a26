"""The names under which the tools of several servers are offered."""

import pytest

from holdfast.gateway.names import MAX_LENGTH, Origin, build_names
from holdfast.gateway.sealed_state import MAX_STATES, State, StateSealer
from holdfast.model.errors import HoldfastError


def names(*origins: Origin, bare: bool = False, reserved: frozenset[str] = frozenset()) -> list[str]:
    return [*build_names(origins, is_bare=lambda _: bare, reserved=reserved).origins]


def test_a_name_is_that_of_the_server_and_the_tool_unless_it_is_bare():
    assert names(Origin("my server", "read.file")) == ["my_server__read_file"]
    assert names(Origin("my server", "read.file"), bare=True) == ["read.file"]


def test_every_tool_has_a_name_of_its_own_that_clients_accept():
    origins = [Origin("a", "b__c"), Origin("a__b", "c"), Origin("a", "x" * 100), Origin("a", "x" * 101)]

    made = names(*origins)

    assert len(set(made)) == 4
    assert max(map(len, made)) <= MAX_LENGTH


def test_no_server_can_take_the_name_of_anothers_tool():
    long = Origin("files", "read_" + "x" * 60)
    (cut,) = names(long)
    imitation = Origin("files", cut.removeprefix("files__"))

    assert names(long, imitation)[0] == cut
    assert names(imitation, long)[1] == cut
    assert names(Origin("holdfast", "status"), reserved=frozenset({"holdfast__status"})) != [
        "holdfast__status"
    ]


def test_a_state_opens_once_and_only_for_the_session_and_the_request_that_it_was_sealed_for():
    sealer = StateSealer()
    bound = {"session": "one", "method": "tools/call", "request": "pay ann"}
    sealed = sealer.seal(State(server="bank", server_state="s"), **bound)

    flipped = sealed[:-2] + ("A" if sealed[-2] != "A" else "B") + sealed[-1]
    for text, changed in (
        (sealed, {"session": "two"}),
        (sealed, {"method": "prompts/get"}),
        (sealed, {"request": "pay eve"}),
        (flipped, {}),
        ("not base64!", {}),
        ("", {}),
    ):
        with pytest.raises(HoldfastError):
            sealer.open(text, **{**bound, **changed})
    with pytest.raises(HoldfastError):
        StateSealer().open(sealed, **bound)  # of another process
    opened = sealer.open(sealed, **bound)
    assert (opened.server, opened.server_state) == ("bank", "s")
    with pytest.raises(HoldfastError):
        sealer.open(sealed, **bound)  # a second time


def test_of_too_many_states_the_oldest_become_invalid():
    sealer = StateSealer()
    bound = {"session": "one", "method": "tools/call", "request": "pay ann"}
    sealed = [sealer.seal(State(server="bank"), **bound) for _ in range(MAX_STATES + 1)]

    assert sealer.open(sealed[-1], **bound).server == "bank"
    assert sealer.open(sealed[1], **bound).server == "bank"
    with pytest.raises(HoldfastError):
        sealer.open(sealed[0], **bound)
