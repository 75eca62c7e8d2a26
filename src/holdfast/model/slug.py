"""The slug of a workspace: its unique id, of lower-case letters, digits and hyphens."""

import re
import unicodedata
from collections.abc import Collection

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.normal_form import normalize

SLUG_LENGTH = 64
_SLUG = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def is_slug(text: str) -> bool:
    """Whether the text is a valid slug."""
    return len(text) <= SLUG_LENGTH and _SLUG.fullmatch(text) is not None


def parse_slug(text: str) -> str:
    """Return the text if it is a valid slug, else raise BAD_WORKSPACE."""
    if len(text) > SLUG_LENGTH:
        raise HoldfastError(
            codes.BAD_WORKSPACE,
            f"The workspace slug {text[:20]!r}… has {len(text)} characters; the maximum is {SLUG_LENGTH}.",
        )
    if not _SLUG.fullmatch(text):
        raise HoldfastError(
            codes.BAD_WORKSPACE,
            f"{text!r} is not a workspace slug. Use a-z, 0-9 and hyphens; begin and end with a letter or digit.",
        )
    return text


def slugify(name: str) -> str:
    """The slug of a name: lower-case, without accents, and hyphenated; `workspace` if no letter or digit of a slug is left."""
    plain = normalize("NFKD", name.casefold())
    without_accents = "".join(character for character in plain if not unicodedata.combining(character))
    slug = re.sub(r"[^a-z0-9]+", "-", without_accents).strip("-")[:SLUG_LENGTH].strip("-")
    return slug or "workspace"


def unique_slug(base: str, taken: Collection[str]) -> str:
    """The slug itself; if it is taken, the slug with the first free number, starting at 2."""
    slug, number = base, 1
    while slug in taken:
        number += 1
        suffix = f"-{number}"
        slug = base[: SLUG_LENGTH - len(suffix)].rstrip("-") + suffix
    return slug
