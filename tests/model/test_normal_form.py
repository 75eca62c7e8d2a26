"""Normal forms in linear time: the same as Python's, except for long rows of combining marks."""

import random
import sys
import unicodedata
from typing import get_args

import pytest

from holdfast.model.normal_form import Form, fold_key, normalize

FORMS: tuple[Form, ...] = get_args(Form)
# Characters that join the one before them, or are moved: marks of several classes, Hangul, Bengali, halfwidth kana, Tibetan.
JOINING = "\u0300\u0315\u0323\u0344\u0345\u0338\u1161\u11a8\u3162\u3131\uffc2\u09be\uff9e\uff9f\u0f71\u0f73\u0f81\u302a\u1dce"
STARTERS = "aeE /.\n<=한각ক\u09c7カﾊﾞ中ßſﬁİ\ufdfa\u00a8\u1100\uac00\U0001f468\u200d\u00e9\u1e69\ud800"


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_are_pythons(form: Form) -> None:
    choose = random.Random(form)
    for length in (*range(40), 200):
        runs = ("".join(choose.choices(JOINING, k=choose.randrange(12))) for _ in range(length))
        text = "".join(f"{choose.choice(STARTERS)}{run}" for run in runs)

        assert normalize(form, text) == unicodedata.normalize(form, text)


def test_no_character_of_unicode_is_cut_from_the_one_before_it() -> None:
    composed = [chr(number) for number in range(0x80, sys.maxunicode + 1)]
    moved = [
        f"\u0345{char}" for char in composed if unicodedata.combining(unicodedata.normalize("NFKD", char)[0])
    ]
    joined = [pair for char in composed if len(pair := unicodedata.normalize("NFD", char)) > 1]
    for before in ("-" * 31, "-" * 30):  # the first piece ends after 32 characters
        for text in (f"{before}{pair}" for pair in (*moved, *joined)):
            assert normalize("NFC", text) == unicodedata.normalize("NFC", text), ascii(text)


def test_a_long_row_of_marks_keeps_its_marks() -> None:
    text = "a" + "\u0315\u0300" * 1000 + "b"

    assert sorted(normalize("NFD", text)) == sorted(unicodedata.normalize("NFD", text))


def test_a_key_is_compared_by_its_start() -> None:
    assert fold_key("  ＤＥＶ.holdfast/X ") == "dev.holdfast/x"
    assert fold_key("\u3000" * 1000 + "dev.holdfast/" + "\u0315\u0300" * 1000).startswith("dev.holdfast/")
    assert len(fold_key("x" * 1000)) == 256
