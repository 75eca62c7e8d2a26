"""Masking a text that arrives in pieces: nothing of a secret passes, and everything else passes at once."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.masking import MASKED
from holdfast.masking.escapes import Decoded, unfinished_escapes
from holdfast.masking.known_secrets import MAX_FRAGMENT_LENGTH, SecretIndex
from holdfast.masking.mask import Mask
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.masking.stream_mask import StreamMask

SECRET = "canary-4f9a2c81"


def stream(mask: Mask, pieces: list[str]) -> list[str]:
    """What is shown after each piece, and at the end."""
    masked = StreamMask(mask)
    return [*(masked.feed(piece) for piece in pieces), masked.flush()]


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize("size", range(1, 20))
def test_secret_in_pieces_of_any_size_is_masked(size: int) -> None:
    text = f"the key is {SECRET}, really"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]

    assert "".join(stream(Mask.of([SECRET]), pieces)) == f"the key is {MASKED}, really"


letters = st.text(alphabet="abc", min_size=6, max_size=12)


@given(
    secrets=st.lists(letters, min_size=1, max_size=4),
    text=st.text(alphabet="abcd", max_size=60),
    cuts=st.sets(st.integers(0, 60)),
)
def test_pieces_are_masked_like_the_whole_text(secrets: list[str], text: str, cuts: set[int]) -> None:
    mask = Mask.of(secrets)
    borders = [0, *sorted(cut for cut in cuts if 0 < cut < len(text)), len(text)]
    masked = StreamMask(mask)
    shown = [masked.feed(text[begin:end]) for begin, end in pairwise(borders)]

    whole = "".join(shown) + masked.delayed
    assert whole.replace(MASKED, "*").replace("**", "*") == mask.mask_known(text).replace(MASKED, "*")


@given(text=st.text(), size=st.integers(1, 9))
def test_text_without_secrets_is_unchanged_and_only_the_beginning_of_a_secret_waits(
    text: str, size: int
) -> None:
    masked, shown = StreamMask(Mask.of([SECRET])), ""
    for at in range(0, len(text), size):
        shown += masked.feed(text[at : at + size])
        # There may be characters that are not drawn inside of the secret, and an escape after its beginning.
        ends = [len(masked.delayed), *(end for end, _ in unfinished_escapes(masked.delayed))]
        held = [masked.delayed, *(Decoded(masked.delayed[:end]).text for end in ends)]
        secrets = (SECRET, "hft_", *Mask.of([SECRET]).secrets)
        assert any(secret.startswith(pending) for secret in secrets for pending in held)

    assert shown + masked.flush() == text


def test_only_a_beginning_of_a_secret_is_held_back() -> None:
    assert stream(Mask.of([SECRET]), ["see ca", "n you? ", "canary", " bird"]) == [
        "see ",
        "can you? ",
        "",
        "canary bird",
        "",
    ]


@pytest.mark.promise("AUD-04")
def test_most_of_a_secret_is_not_shown_at_the_end_of_a_message() -> None:
    assert stream(Mask.of([SECRET]), [f"it is {SECRET[:-1]}"]) == ["it is ", MASKED]


@pytest.mark.promise("AUD-04")
def test_secret_that_goes_on_in_the_next_message_is_masked_there() -> None:
    masked = StreamMask(Mask.of([SECRET]))
    first = masked.feed("it is cana") + masked.flush()

    assert (first, masked.feed(SECRET[4:] + "!")) == ("it is cana", f"{MASKED}!")


def test_secret_that_is_the_beginning_of_another_is_masked_once() -> None:
    masks = Mask.of([SECRET, f"{SECRET}-and-more"])

    assert "".join(stream(masks, [SECRET, "-and", "-more", "!"])) == f"{MASKED}!"
    assert "".join(stream(masks, [SECRET, "-and", " so on"])) == f"{MASKED}-and so on"


def test_little_is_held_back_of_a_very_long_secret() -> None:
    secret = "".join(f"{number:x}" for number in range(4_000))
    masked = StreamMask(Mask.of([secret]))
    longest, shown = 0, ""
    for at in range(0, len(secret), 4):
        shown += masked.feed(secret[at : at + 4])
        longest = max(longest, len(masked.delayed))

    assert longest < MAX_FRAGMENT_LENGTH
    assert set((shown + masked.flush()).split(MASKED)) == {""}


def test_overlapping_secrets_are_masked_whole() -> None:
    assert Mask.of(["abcdef123", "123456789"]).mask_known("-abcdef123456789-") == f"-{MASKED}-"


@pytest.mark.promise("AUD-04")
def test_secret_over_two_texts_is_masked_in_both() -> None:
    assert Mask.of([SECRET]).mask_known_in_texts(["it is cana", SECRET[4:] + "!", "end"]) == [
        f"it is {MASKED}",
        f"{MASKED}!",
        "end",
    ]


@given(secrets=st.lists(letters, max_size=6), text=st.text(alphabet="abc", max_size=80))
@example(secrets=["cccccc", "cccccca"], text="cccccc")
def test_both_ways_to_search_find_the_same(secrets: list[str], text: str) -> None:
    index = SecretIndex(secrets)
    separately, together = (
        sorted(set(find(text))) for find in (index._find_separately, index._find_together)
    )

    assert {at for begin, end in separately for at in range(begin, end)} == {
        at for begin, end in together for at in range(begin, end)
    }


def test_index_forgets_a_secret_that_was_removed_as_often_as_it_was_added() -> None:
    index = SecretIndex([SECRET, SECRET, "canary-2"])
    index.remove([SECRET])
    still = index.find(SECRET)
    index.remove([SECRET])

    assert (still, index.find(SECRET), index.find("canary-2")) == ([(0, len(SECRET))], [], [(0, 8)])


def test_many_secrets_and_a_long_text() -> None:
    """One search per secret would take minutes."""
    mask = Mask.of(f"canary-{number:06}-4f9a" for number in range(4_000))

    assert mask.mask_known(f"{'ab1' * 100_000} canary-001234-4f9a").endswith(f" {MASKED}")


@pytest.mark.promise("AUD-04")
def test_text_is_masked_before_it_is_cut() -> None:
    assert Mask.of([SECRET]).mask_start(f"1234567 {SECRET}", 12) == "1234567 [mas"


UNRELATED = "zq81-unrelated-obtained"
LONG_SECRET = "superse" + "x" * 26


def test_short_prefix_of_a_secret_is_shown_at_the_end_although_there_are_other_secrets() -> None:
    with ObtainedSecrets() as obtained:
        obtained.add_credentials("login", [UNRELATED])

        assert "".join(stream(Mask.of([LONG_SECRET]), ["it is superse"])) == "it is superse"
        assert "".join(stream(Mask(), [f"it is {UNRELATED[:8]}"])) == f"it is {UNRELATED[:8]}"


@pytest.mark.promise("AUD-04")
def test_nearly_whole_secret_is_masked_at_the_end() -> None:
    with ObtainedSecrets() as obtained:
        obtained.add_credentials("login", [UNRELATED])
        token = "hft_" + "a" * 12 + "_" + "b" * 43

        assert stream(Mask.of([LONG_SECRET]), [f"it is {LONG_SECRET[:-1]}"]) == ["it is ", MASKED]
        assert stream(Mask(), [f"it is {UNRELATED[:-1]}"]) == ["it is ", MASKED]
        assert stream(Mask(), [f"it is {token[:-1]}"]) == ["it is ", MASKED]


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize(
    "longer", [SECRET[:-2] + "!" * 40, "x" + SECRET + "!" * 40], ids=["same start", "earlier start"]
)
def test_nearly_whole_secret_is_masked_although_the_text_also_begins_a_longer_one(longer: str) -> None:
    text = longer[: longer.index("!")].removesuffix(SECRET[-2:])

    assert stream(Mask(tuple(sorted([SECRET, longer]))), [text]) == ["", MASKED]


@pytest.mark.promise("AUD-04")
def test_secret_that_was_added_after_the_last_piece_is_masked_at_the_end() -> None:
    with ObtainedSecrets() as obtained:
        masked = StreamMask(Mask.of([LONG_SECRET]))
        assert masked.feed("superse") == ""

        obtained.add_credentials("login", ["superse-1"])

        assert masked.flush() == MASKED
