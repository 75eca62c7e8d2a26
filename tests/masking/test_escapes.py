"""A known secret is found however it is escaped: each character in any of its forms, and several encodings inside of each other."""

import html
import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.masking import MASKED
from holdfast.masking.escapes import Decoded, decode, decode_value
from holdfast.masking.mask import Mask
from holdfast.masking.stream_mask import StreamMask

SECRET = 'it\'s <a> "b"+é&c/\\d%😀'
PLAIN = "abcXYZ189._~-"
SPECIAL = "!\"#$%&'()*+,/:;<=>?@[]^`{|} é😀"


def _json_unit(number: int) -> str:
    return f"\\u{number:04x}"


def utf16(character: str, digits: Callable[[str], str] = str) -> str:
    raw = character.encode("utf-16-be")
    return "".join(f"\\u{digits(raw[at : at + 2].hex())}" for at in range(0, len(raw), 2))


def percent(character: str, digits: Callable[[str], str] = str.upper, sign: str = "%") -> str:
    return "".join(sign + digits(f"{byte:02x}") for byte in character.encode())


FORMS: list[Callable[[str], str]] = [
    str,
    percent,
    lambda character: percent(character, str.lower),
    lambda character: percent(character, sign="%25"),
    quote_plus,
    utf16,
    lambda character: utf16(character, str.upper),
    lambda character: utf16(character).replace("\\", "\\\\"),
    lambda character: percent(character, str.lower, "\\x"),
    lambda character: f"&#{ord(character)};",
    lambda character: f"&#x{ord(character):x};",
    lambda character: f"&#X{ord(character):04X};",
    html.escape,
    lambda character: html.escape(html.escape(character)),
    lambda character: "&apos;" if character == "'" else character,
    lambda character: f"\\{character}" if character in SPECIAL else character,
    lambda character: f"\\\\\\{character}" if character in SPECIAL else character,
    lambda character: f"\u200b{character}\x1b[0m",
]
secrets = st.text(alphabet=PLAIN + SPECIAL, min_size=8, max_size=30).filter(
    lambda secret: len(decode_value(secret)) >= 6
)


@st.composite
def encoded_secrets(draw: st.DrawFn) -> tuple[str, str]:
    """A secret, and the same with each character in any of its forms."""
    secret = draw(secrets)
    encoded = [draw(st.sampled_from(FORMS))(character) for character in secret]
    # Usual encoders do not escape the first character if it is plain, so an escape is not held back for it.
    return secret, "".join([secret[0] if secret[0] in PLAIN else encoded[0], *encoded[1:]])


def leaves_nothing(secret: str, masked: str) -> bool:
    text = masked.replace(MASKED, "\0")
    return secret not in text and decode_value(secret) not in Decoded(text).text


@pytest.mark.promise("AUD-03")
@given(pair=encoded_secrets())
def test_a_secret_is_masked_whichever_form_each_of_its_characters_has(pair: tuple[str, str]) -> None:
    secret, encoded = pair

    assert leaves_nothing(secret, Mask.of([secret]).mask_known(f"before: {encoded} after"))


ENCODERS: dict[str, Callable[[str], str]] = {
    "encodeURIComponent": lambda text: quote(text, safe="!'()*~"),
    "encodeURI": lambda text: quote(text, safe=";,/?:@&=+$-_.!~*'()#"),
    "form": quote_plus,
    "percent": lambda text: quote(text, safe=""),
    "JSON": json.dumps,
    "JSON with other letters": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON of PHP": lambda text: json.dumps(text).replace("/", "\\/"),
    "JSON of Go": lambda text: "".join(
        _json_unit(ord(character)) if character in "<>&" else character
        for character in json.dumps(text, ensure_ascii=False)
    ),
    "JSON of .NET": lambda text: (
        '"'
        + "".join(
            utf16(character, str.upper) if character in "<>&'+`\"" or character > "~" else character
            for character in text.replace("\\", "\\\\")
        )
        + '"'
    ),
    "repr": repr,
    "ascii": ascii,
    "HTML": html.escape,
    "HTML of Go": lambda text: html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    "HTML 5": lambda text: html.escape(text).replace("&#x27;", "&apos;"),
    "shlex": shlex.quote,
    "single quotes": lambda text: "'" + text.replace("'", "'\\''") + "'",
    "double quotes": lambda text: '"' + "".join(f"\\{c}" if c in '"\\$`' else c for c in text) + '"',
    "backslashes": lambda text: "".join(c if c.isalnum() else f"\\{c}" for c in text),
    "$'…'": lambda text: (
        "$'"
        + "".join(
            "".join(f"\\{byte:03o}" for byte in c.encode()) if c > "~" else f"\\{c}" if c in "'\\" else c
            for c in text
        )
        + "'"
    ),
    "SQL": lambda text: "'" + text.replace("'", "''") + "'",
}


@pytest.mark.promise("AUD-03")
@pytest.mark.parametrize("outer", [str, *ENCODERS.values()], ids=["nothing", *ENCODERS])
@pytest.mark.parametrize("inner", ENCODERS.values(), ids=ENCODERS)
def test_a_secret_is_masked_in_two_encodings(
    inner: Callable[[str], str], outer: Callable[[str], str]
) -> None:
    for secret in (SECRET, "p@ss!word*(4)~x", "Tr0ub4dor&3+zq=Q1x", "two words' end"):
        masked = Mask.of([secret]).mask_known(f"<{outer(inner(secret))}>")

        assert leaves_nothing(secret, masked)
        assert MASKED in masked


@pytest.mark.promise("AUD-04")
@example(pair=("ab'cdefg", "ab'\"'\"'cdefg"), cuts=set(range(20)))
@example(pair=("abécdefg", "ab%C3%A9cdefg"), cuts=set(range(20)))
@example(pair=("ab😀cdefg", "ab\\ud83d\\ude00cdefg"), cuts=set(range(30)))
@example(pair=("&abcdefg", "&amp;amp;abcdefg"), cuts=set(range(20)))
@example(pair=("abcdefgh", "abc\x1b[31mdefgh"), cuts=set(range(20)))
@example(pair=("abcdefgh", "abc\x1b]8;;http://x\x1b\\defgh"), cuts=set(range(40)))
@given(pair=encoded_secrets(), cuts=st.sets(st.integers(0, 200)))
def test_an_encoded_secret_in_pieces_is_masked(pair: tuple[str, str], cuts: set[int]) -> None:
    secret, encoded = pair
    text = f"it is {encoded}, really"
    borders = [0, *sorted(cut + 6 for cut in cuts if cut + 6 < len(text)), len(text)]
    stream = StreamMask(Mask.of([secret]))
    shown = "".join(stream.feed(text[begin:end]) for begin, end in pairwise(borders))

    assert leaves_nothing(secret, shown + stream.flush())


@pytest.mark.promise("AUD-04")
def test_most_of_an_encoded_secret_is_not_shown_at_the_end_of_a_message() -> None:
    stream = StreamMask(Mask.of(["p@ss word!x9"]))

    assert (stream.feed("it is p%40ss+word%2"), stream.flush()) == ("it is ", MASKED)


def test_an_escape_at_the_end_is_not_held_back_if_no_secret_can_begin_there() -> None:
    assert StreamMask(Mask.of(["plain-secret"])).feed("100 %") == "100 %"


def test_only_the_secret_is_masked() -> None:
    text = "%20&amp;\\n p%40ss\\u0021word &lt;p&#64;ss!word&gt; don\\'t"

    masked = Mask.of(["p@ss!word"]).mask_known(text)

    assert masked == f"%20&amp;\\n {MASKED} &lt;{MASKED}&gt; don\\'t"


@given(text=st.text(alphabet="a1f%25u&#x;'\"\\amp\x1b[]\u200b "))
def test_places_in_the_decoded_text_are_places_in_the_text(text: str) -> None:
    for part in decode(text):
        for begin in range(len(part.text)):
            ((first, last),) = part.locate([(begin, begin + 1)])
            assert 0 <= first < last <= len(text)
        if part.text:
            assert part.locate([(0, len(part.text))])[0][1] <= len(text)


@pytest.mark.parametrize("at", [0, 60_000, 65_530, 66_000, 130_000, 200_000])
def test_an_encoded_secret_is_found_anywhere_in_a_long_text(at: int) -> None:
    text = f"{'x' * at}p%40ss!word{'&amp;' * 20_000}"

    assert Mask.of(["p@ss!word"]).mask_known(text).startswith(f"{'x' * at}{MASKED}&amp;")


@pytest.mark.parametrize(
    "unit",
    ["\\", "%25", "%", "&amp;", "&#0", "'", "'\"", "\x1b[", "\x1b]", "\\x", "%C3", "\u200b", "\\ud83d"],
)
def test_decoding_takes_linear_time(unit: str) -> None:
    """Quadratic time would take minutes."""
    text = unit * (1_000_000 // len(unit))

    assert "word" in Mask.of(["p@ss!word"]).mask_known(f"{text} word")
