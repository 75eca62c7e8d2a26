"""Which parts of a URL are masked, and what stays readable."""

import pytest

from holdfast.masking.urls import mask_url_passwords, mask_urls, secrets_in_urls

GENERATED = "q7Rk2Zp9Xw4Lm8Tb1Vn6"


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgres://bob:hunter2@db:5432/x", "postgres://bob:[masked]@db:5432/x"),
        ("postgres://bob:hun/ter2@db/x", "postgres://bob:[masked]@db/x"),
        ("redis://:pw@cache", "redis://:[masked]@cache"),
        ("https://ghp_abcdefghij1234567890@github.com/a", "https://[masked]@github.com/a"),
        ("GET https://x/mcp?tenant=a&k=b failed", "GET https://x/mcp?tenant=[masked]&k=[masked] failed"),
        ("https://x/#access_token=abc", "https://x/#access_token=[masked]"),
        ("https://x/hooks/T000/B000/xxxx", "https://x/hooks/[masked]/[masked]/[masked]"),
        (f"https://x/mcp/{GENERATED}/sse", "https://x/mcp/[masked]/sse"),
        # These stay readable.
        ("ssh://git@github.com/a/b", "ssh://git@github.com/a/b"),
        ("http://host:80/@scope/pkg@1.0", "http://host:80/@scope/pkg@1.0"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
    ],
)
def test_secret_in_a_url_is_masked_by_its_place(text: str, masked: str) -> None:
    assert mask_urls(text) == masked


def test_query_values_stay_where_only_passwords_are_masked() -> None:
    text = "postgres://bob:hunter2@db/x?tenant=a"

    assert mask_url_passwords(text) == "postgres://bob:[masked]@db/x?tenant=a"
    assert list(secrets_in_urls(text)) == ["hunter2"]
