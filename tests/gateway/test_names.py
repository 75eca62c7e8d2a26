"""The names under which the tools of several servers are offered."""

import pytest

from holdfast.gateway.names import MAX_LENGTH, ServerItem, build_names
from holdfast.gateway.signed_state import MAX_STATES_PER_SESSION, State, StateSigner
from holdfast.model.errors import HoldfastError


def names(*items: ServerItem, bare: bool = False, reserved: frozenset[str] = frozenset()) -> list[str]:
    return [*build_names(items, is_bare=lambda _: bare, reserved=reserved).by_name]


def test_a_name_is_that_of_the_server_and_the_tool_unless_it_is_bare():
    assert names(ServerItem("my server", "read.file")) == ["my_server__read_file"]
    assert names(ServerItem("my server", "read.file"), bare=True) == ["read.file"]


def test_every_tool_has_a_name_of_its_own_that_clients_accept():
    items = [
        ServerItem("a", "b__c"),
        ServerItem("a__b", "c"),
        ServerItem("a", "x" * 100),
        ServerItem("a", "x" * 101),
    ]

    made = names(*items)

    assert len(set(made)) == 4
    assert max(map(len, made)) <= MAX_LENGTH


def test_no_server_can_take_the_name_of_anothers_tool():
    long = ServerItem("files", "read_" + "x" * 60)
    (cut,) = names(long)
    imitation = ServerItem("files", cut.removeprefix("files__"))

    assert names(long, imitation)[0] == cut
    assert names(imitation, long)[1] == cut
    assert names(ServerItem("holdfast", "status"), reserved=frozenset({"holdfast__status"})) != [
        "holdfast__status"
    ]


def test_a_state_is_valid_once_and_only_for_the_session_and_the_request_that_it_was_signed_for():
    signer = StateSigner()
    bound = {"session": "one", "method": "tools/call", "request": "pay ann"}
    signed = signer.sign(State(server="bank", server_state="s"), **bound)

    flipped = signed[:-2] + ("A" if signed[-2] != "A" else "B") + signed[-1]
    for text, changed in (
        (signed, {"session": "two"}),
        (signed, {"method": "prompts/get"}),
        (signed, {"request": "pay eve"}),
        (flipped, {}),
        ("not base64!", {}),
        ("", {}),
    ):
        with pytest.raises(HoldfastError):
            signer.verify(text, **{**bound, **changed})
    with pytest.raises(HoldfastError):
        StateSigner().verify(signed, **bound)  # of another process
    verified = signer.verify(signed, **bound)
    assert (verified.server, verified.server_state) == ("bank", "s")
    with pytest.raises(HoldfastError):
        signer.verify(signed, **bound)  # a second time


def test_if_there_are_too_many_states_the_oldest_become_invalid():
    signer = StateSigner()
    bound = {"session": "one", "method": "tools/call", "request": "pay ann"}
    signed = [signer.sign(State(server="bank"), **bound) for _ in range(MAX_STATES_PER_SESSION + 1)]

    assert signer.verify(signed[-1], **bound).server == "bank"
    assert signer.verify(signed[1], **bound).server == "bank"
    with pytest.raises(HoldfastError):
        signer.verify(signed[0], **bound)
