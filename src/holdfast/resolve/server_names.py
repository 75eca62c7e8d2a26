"""Names of servers: which are allowed, and which look alike."""

import unicodedata
from functools import lru_cache

from holdfast.model.normal_form import normalize
from holdfast.model.visible_text import strip_invisible

MAX_NAME_LENGTH = 128
_CACHED_NAMES = 512
_MARKS = ("Mn", "Me", "Cf")  # accents, enclosing marks, and format characters

# For each letter, the characters that look like it. Names are case-folded and in NFKC form before these are replaced.
_LOOK_ALIKES = {
    look_alike: letter
    for letter, look_alikes in {
        "a": "\u0430\u03b1\u0251\uff41\u13aa\u15c5",
        "b": "\u042c\u044c\u0432\u03b2\u0184\u0185\u13cf\u15f7",
        "c": "\u0441\u03f2\u1d04\u2ca5\u13df",
        "d": "\u0501\u13e7\u146f\ua4d2\u0257",
        "e": "\u0435\u0454\u04bd\u03b5\u212e\u025b\u1d07",
        "f": "\u0584\ua799\u0192\u03dd",
        "g": "\u0581\u0261\u0262\u050d",
        "h": "\u04bb\u0570\u13c2\u043d",
        "i": "\u0456\u03b9\u0131\u0269\u026a\u1d09\u04cf\u01c0\u05d5\u0627\u2223\u23fd\u0196\ua647|l1!",
        "j": "\u0458\u03f3\u029d\u1d0a",
        "k": "\u043a\u03ba\u049b\u1d0b\u0138",
        "m": "\u043c\u1d0d",
        "n": "\u0578\u057c\u0438\u03b7\u0274",
        "o": "\u043e\u03bf\u03c3\u0585\u1d0f\u0e50\u0966\u09e6\u0665\u06f5\u2c9f0",
        "p": "\u0440\u03c1\u2ca3\u1d18",
        "q": "\u051b\u0563\u0566",
        "r": "\u0433\u1d26\u0280\u027e",
        "s": "\u0455\u0282\ua731\u01bd\u0405",
        "t": "\u0442\u03c4\u1d1b",
        "u": "\u057d\u03c5\u028b\u1d1c\u0446",
        "v": "\u0475\u03bd\u1d20\u05d8",
        "w": "\u051d\u0461\u03c9\u0561\u1d21",
        "x": "\u0445\u03c7\u04b3\u00d7",
        "y": "\u0443\u03b3\u04af\u028f\u1d8c",
        "z": "\u1d22\u0290",
        "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u02d7\u2043\u30fc",
        ".": "\u00b7\u2024\u2027\u30fb\u05c5\u3002",
        "_": "\u02cd\u203f",
    }.items()
    for look_alike in look_alikes
}
_TO_ASCII = str.maketrans(_LOOK_ALIKES)


def why_bad_name(name: str) -> str | None:
    """Why a server cannot have this name; None if it can."""
    if not name.strip() or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        return f"A server's name must have 1 to {MAX_NAME_LENGTH} printable characters."
    if name != name.strip():
        return "A server's name must not begin or end with a space."
    if strip_invisible(name) != name or "  " in name:
        return "A server's name must not contain invisible characters or several spaces in a row."
    if len(normal_form(name)) > MAX_NAME_LENGTH:  # normalization may replace one character by up to 18
        return (
            f"A server's name must have at most {MAX_NAME_LENGTH} characters when ligatures are written out."
        )
    return None


@lru_cache(_CACHED_NAMES)
def normal_form(name: str) -> str:
    """The form in which names are compared: case-folded, and with compatibility characters such as `ﬁ` replaced."""
    return normalize("NFKC", normalize("NFKC", name).casefold()).strip()


@lru_cache(_CACHED_NAMES)
def skeleton(name: str) -> str:
    """The skeleton of a name: equal for names that look alike (compare Unicode TR 39)."""
    decomposed = normalize("NFKD", normal_form(name))
    shapes = "".join(char for char in decomposed if unicodedata.category(char) not in _MARKS)
    return shapes.translate(_TO_ASCII)


def looks_like_tool_of(name: str, server: str) -> bool:
    """Whether a server's name looks like the name of another server's tool: `files.read`, `files__read`."""
    return skeleton(name).startswith(
        (f"{skeleton(server)}.", f"{skeleton(server)}__", f"{skeleton(server)}/")
    )
