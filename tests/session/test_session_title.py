"""The title of a session, from its first prompt."""

import pytest

from holdfast.masking import MASKED
from holdfast.masking.mask import Mask
from holdfast.session.session_title import make_title


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Tidy\n  the garden", "Tidy the garden"),
        ("x" * 100, f"{'x' * 79}…"),
        ("Log in with hunter22", f"Log in with {MASKED}"),
        ("/call files.list {}", "/call files.list {}"),
        # Commands about the session are no title.
        ("/help", ""),
    ],
)
def test_the_title_is_the_beginning_of_the_prompt(prompt: str, title: str):
    assert make_title([{"type": "text", "text": prompt}], Mask.of(["hunter22"])) == title
