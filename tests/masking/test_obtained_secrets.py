"""Secrets that are obtained after a mask was made: masked until their owner exits, within limits."""

from collections.abc import Iterator

import pytest

from holdfast.masking import MASKED, obtained_secrets
from holdfast.masking.mask import Mask
from holdfast.masking.obtained_secrets import CONTEXT_TOKEN_START, ObtainedSecrets
from holdfast.masking.stream_mask import StreamMask

TOKEN = "opaque-token-4f9a2c81"
SIGNED = f"{CONTEXT_TOKEN_START}mFhYWEiLCJ0eXAiOiJ4In0.eyJpc3MiOiJob2xkZmFzdCJ9.c2ln-bmF_0dXJl"


@pytest.fixture
def obtained() -> Iterator[ObtainedSecrets]:
    with ObtainedSecrets() as found:
        yield found


def test_mask_that_was_made_before_masks_what_is_obtained_later_until_the_owner_exits():
    mask = Mask.of(["configured-secret"])
    with ObtainedSecrets() as obtained:
        obtained.add_credentials("ours", [TOKEN, None, "short"])
        masked = mask.mask_known(f"{TOKEN} configured-secret short")

    assert masked == f"{MASKED} {MASKED} short"
    assert mask.mask_known(TOKEN) == TOKEN
    assert obtained_secrets.count() == 0


def test_same_secret_of_two_owners_is_masked_until_both_exit(obtained: ObtainedSecrets):
    obtained.add_credentials("ours", [TOKEN])
    with ObtainedSecrets() as other:
        other.add_credentials("ours", [TOKEN, TOKEN])

    assert Mask().mask_known(TOKEN) == MASKED


def test_questions_can_leave_out_what_servers_chose(obtained: ObtainedSecrets):
    obtained.add_credentials("ours", [TOKEN])

    assert Mask().without_obtained().mask_known(TOKEN) == TOKEN


@pytest.mark.parametrize("text", [SIGNED, SIGNED[:60], SIGNED.rpartition(".")[0]])
def test_signed_token_is_masked_by_its_beginning_to_its_end(obtained: ObtainedSecrets, text: str):
    obtained.add_context_tokens()

    assert Mask().mask_known(f"a {text}, b") == f"a {MASKED}, b"


@pytest.mark.parametrize("size", range(1, 40, 3))
def test_signed_token_in_pieces_is_masked_to_its_end(obtained: ObtainedSecrets, size: int):
    obtained.add_context_tokens()
    stream, text = StreamMask(Mask()), f"the token is {SIGNED}, really"

    shown = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]

    assert "".join((*shown, stream.flush())) == f"the token is {MASKED}, really"


@pytest.mark.parametrize(
    "value",
    ["completed", "drop-database-production-1", "/root/.ssh/id_ed25519", "eyJ-delete-all-of-it", "a b"],
)
def test_server_cannot_mask_words_by_a_cookie(obtained: ObtainedSecrets, value: str):
    obtained.add_from_server("", "link", value)
    obtained.add_from_server("", "link", "q7Rk2Zp9Xw4Lm8Tb" * 4 + f"{value:.^64}")

    assert Mask().mask_known(f"{value:.^64}") == f"{value:.^64}"


def test_value_that_a_server_chose_is_masked_in_its_session_only_until_that_closes(obtained: ObtainedSecrets):
    cookie = "a1B2c3D4e5F6g7H8"
    obtained.add_from_server("mine", "link", cookie)
    masks = [Mask.of(["other-secret"]).for_session(session_id) for session_id in ("mine", "theirs", "")]

    during = [mask.mask_known(cookie) for mask in masks]
    streamed = [StreamMask(mask).feed(cookie[:-1]) for mask in masks]
    obtained.forget_session("mine")

    assert during == [MASKED, cookie, cookie]
    assert streamed == ["", cookie[:-1], cookie[:-1]]
    assert [mask.mask_known(cookie) for mask in masks] == [cookie] * 3
    assert [mask.size for mask in masks] == [len(masks[1].secrets)] * 3


def test_secrets_in_a_file_replace_those_that_were_in_it_before(obtained: ObtainedSecrets):
    obtained.set_in_file("a", ("before-secret", "same-secret"))
    obtained.set_in_file("b", ("same-secret",))
    obtained.set_in_file("a", ("after-secret",))

    assert Mask().mask_known("before-secret same-secret after-secret") == f"before-secret {MASKED} {MASKED}"


def test_one_server_takes_no_room_from_others(obtained: ObtainedSecrets):
    obtained.add_credentials("ours", [TOKEN])
    obtained.add_from_server("", "ours", "a1B2c3D4e5F6g7H8")
    for number in range(1000):
        obtained.add_from_server("", "theirs", f"q7Rk2Zp9Xw4Lm8Tb1Vn6{number}")

    assert Mask().mask_known(f"{TOKEN} a1B2c3D4e5F6g7H8 q7Rk2Zp9Xw4Lm8Tb1Vn6999") == " ".join([MASKED] * 3)
    assert obtained_secrets.count() < 100


def test_number_of_credentials_is_limited_and_the_oldest_are_forgotten(obtained: ObtainedSecrets):
    tokens = [f"opaque-token-{number:05}" for number in range(1000)]
    obtained.add_credentials("ours", tokens)

    assert Mask().mask_known(f"{tokens[0]} {tokens[-1]}") == f"{tokens[0]} {MASKED}"
    assert obtained_secrets.count() < 1000


def test_one_login_that_is_refreshed_often_takes_no_room_from_another(obtained: ObtainedSecrets):
    obtained.add_credentials("ours", [TOKEN])
    for number in range(1000):
        obtained.add_credentials("theirs", [f"access-token-{number:05}", f"refresh-token-{number:05}"])

    assert Mask().mask_known(f"{TOKEN} access-token-00999 access-token-00000") == (
        f"{MASKED} {MASKED} access-token-00000"
    )
    assert obtained_secrets.count() < 200


def test_control_without_a_share_per_login_the_other_token_is_forgotten(obtained: ObtainedSecrets):
    obtained.add_credentials("all", [TOKEN])
    for number in range(1000):
        obtained.add_credentials("all", [f"access-token-{number:05}"])

    assert Mask().mask_known(TOKEN) == TOKEN
