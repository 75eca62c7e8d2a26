"""Recognise generated keys and tokens: they look random."""

import re

_KNOWN_KEY = re.compile(
    r"(?:sk|pk|rk|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[a-z]|xapp|npm|pypi|hf|dop_v1|shpat|whsec|AKIA|ASIA|AIza|eyJ|SG\.)"
    r"[\w.-]{12,}"
)
_DIGEST = re.compile(r"(?:.*[@:])?sha(?:1|256|384|512)[:-][0-9A-Za-z+/=]+")
_RANDOM = re.compile(r"[\w+/=.~:-]{16,}")
_KIND_CHANGE = re.compile(r"[0-9][A-Za-z]|[A-Za-z](?=[0-9])|[a-z](?=[A-Z])")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_HEX = re.compile(r"[0-9a-fA-F-]{20,}")


def looks_generated(value: str) -> bool:
    """Whether a value looks random, as generated keys do.

    At least 16 characters, without spaces, in which letters, digits, upper and lower case change at least once in four
    characters; or with a known beginning such as `ghp_`; or at least 20 hexadecimal digits. Paths, package names and
    image digests do not count.
    """
    if len(value) < 16 or value.startswith(("/", "./", "../", "~", "@")) or _DIGEST.fullmatch(value):
        return False
    return _KNOWN_KEY.fullmatch(value) is not None or looks_random(value)


def looks_random(value: str) -> bool:
    """Whether letters, digits, upper and lower case change as often as in a random text. A known beginning is not enough."""
    if not _RANDOM.fullmatch(value) or _DATE.match(value):
        return False
    letters = re.sub(r"[\W_]", "", value)
    has_digit = any(map(str.isdigit, letters))
    if _HEX.fullmatch(value):
        return has_digit and not letters.isdigit()
    changes = sum(1 for _ in _KIND_CHANGE.finditer(letters))
    return 4 * changes >= len(letters) >= 14
