"""Recognise generated keys and tokens by their random look or by a known prefix such as `ghp_`, and references to variables."""

import re

# The prefixes of keys, each with the separator of its provider: `npm-check-updates` and `skeleton-component` are names.
_KNOWN_KEY = re.compile(
    r"(?:sk[-_]|pk_|rk_|gh[oprsu]_|github_pat_|glpat-|xox[a-z]-|xapp-|dop_v1_|shpat_|whsec_|AIza|eyJ|SG\.)[\w.-]{12,}"
    r"|(?:npm|hf)_[A-Za-z0-9]{12,}|pypi-Ag[\w-]{12,}|A[KS]IA[A-Z0-9]{12,}"
)
_DIGEST = re.compile(r"(?:.*[@:])?sha(?:1|256|384|512)[:-][0-9A-Za-z+/=]+")
_RANDOM = re.compile(r"[\w+/=.~:-]{16,}")
_CHANGE = re.compile(r"[0-9][A-Za-z]|[A-Za-z](?=[0-9])|[a-z](?=[A-Z])")
_OWN_ID = re.compile(r"(?:sess|turn|msg|call|agent)_[0-9a-f]{16,64}")  # Holdfast's ids are in many records
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_HEX = re.compile(r"[0-9a-fA-F-]{20,}")
_REFERENCE = re.compile(r"\$\{[A-Za-z_]\w*\}")


def looks_generated(value: str) -> bool:
    """Whether a value looks like a generated key: it has a known prefix such as `ghp_`, or looks random.

    These do not look generated: values under 16 characters, values that begin like a path (`/`, `./`, `../`, `~`) or like a package with a
    scope (`@`), image digests, and Holdfast's own ids.
    """
    if len(value) < 16 or value.startswith(("/", "./", "../", "~", "@")):
        return False
    if _DIGEST.fullmatch(value) or _OWN_ID.fullmatch(value):
        return False
    return _KNOWN_KEY.fullmatch(value) is not None or looks_random(value)


def looks_random(value: str) -> bool:
    """Whether a value of at least 16 characters, without spaces, looks random.

    At least 14 letters and digits must change on average once in four characters: from letter to digit, from digit to letter, or
    from lower to upper case. A hexadecimal value of at least 20 characters, which may contain hyphens, needs only a letter and a
    digit. A value that begins with a date does not look random.
    """
    if not _RANDOM.fullmatch(value) or _DATE.match(value):
        return False
    characters = re.sub(r"[\W_]", "", value)
    has_digit = any(map(str.isdigit, characters))
    if _HEX.fullmatch(value):
        return has_digit and not characters.isdigit()
    changes = sum(1 for _ in _CHANGE.finditer(characters))
    return 4 * changes >= len(characters) >= 14


def is_reference(value: str) -> bool:
    """Whether a value is only a reference to a variable, such as `${TOKEN}`."""
    return _REFERENCE.fullmatch(value) is not None
