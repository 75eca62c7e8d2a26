r"""Decode the escapes in a text, so that a secret is found in every way that programs write it.

Two texts that mean the same have the same decoded text. It does not matter which characters a program escapes, whether it writes hexadecimal digits
in upper or lower case, or how many times it encodes. These are decoded:

* percent-encoding: `%40`, `%2540`, `%u0040`, and `+` for a space. In decoded text, `+` stands for both.
* backslashes, as in JSON, source code and shells: `\u0026`, `\/`, `\"`, `\x26`, `\046`, `\n`. A backslash that escapes nothing is left out.
* entities of HTML and XML: `&amp;`, `&#38;`, `&#x26;`, `&amp;amp;`.
* a quote within single quotes of a shell or of SQL: `'\''`, `'"'"'`, `''`.
* Control sequences of terminals, control characters and invisible characters are left out. Line breaks and tabs stay.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from html.entities import html5
from itertools import accumulate

Span = tuple[int, int]

MAX_ENCODED_LENGTH = 1024
"""A fragment of a secret is recognised if it takes up at most this many characters in its encoded form."""
_WINDOW = 64 * 1024  # characters that are decoded at once
_MAX_PASSES = 4  # an encoding may be inside of another one
_MAX_CACHED, _MAX_CACHE = 12, 4096  # the length and the number of the escapes that are kept in the cache
_MAX_UNFINISHED = 40  # the length of an escape at the end of a text that may continue

_ASCII_STARTS = bytes((*b"%\\&'+", *range(9), *range(11, 32), 127))
"""Each escape in an ASCII text begins with one of these."""

_HEX = "[0-9A-Fa-f]"


def _utf8(prefix: str, two: str, three: str, four: str, next_byte: str, any_byte: str) -> str:
    """A pattern for one character, written as the bytes of its UTF-8; or else for one byte. The first byte has no prefix."""
    more = f"{prefix}{next_byte}"
    return f"(?:{two}{more}|{three}(?:{more}){{2}}|{four}(?:{more}){{3}}|{any_byte})"


_HEX_BYTES = (f"[cCdD]{_HEX}", f"[eE]{_HEX}", "[fF][0-7]", f"[89abAB]{_HEX}", _HEX * 2)
_PERCENT = _utf8("%(?:25)*", *_HEX_BYTES)
_HEXADECIMAL = "x" + _utf8(r"\\++x", *_HEX_BYTES)
_OCTAL = _utf8(r"\\++", "3[0-3][0-7]", "3[45][0-7]", "36[0-7]", "2[0-7]{2}", "[0-3][0-7]{2}")
_PARAMETERS = "[0-?]*+[ -/]*+[@-~]?"
_LINK = r"[^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)?"
_INVISIBLE = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U00016fe4\U0001d159\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
# Texts may be hostile, so each pattern takes linear time. A pattern that begins with a set of characters is searched 20 times faster.
_ESCAPE = re.compile(
    rf"""([%\\&'{_INVISIBLE}](?:
    (?<=%)(?:25)*(?:{_PERCENT} | u{_HEX}{{4}})
    | (?<=\\)\\*+(?:
        u[dD][89abAB]{_HEX}{{2}}\\++u[dD][c-fC-F]{_HEX}{{2}}  # one character as two surrogates
        | u{_HEX}{{4}} | u\{{{_HEX}{{1,6}}\}} | U{_HEX}{{8}} | {_HEXADECIMAL} | {_OCTAL} | .?
    )
    | (?<=&)(?:amp;)*(?:\#0{{0,8}}[0-9]{{1,7}} | \#[xX]0{{0,8}}{_HEX}{{1,6}} | [A-Za-z][A-Za-z0-9]{{1,31}});
    | (?<=')(?:\\*+'|\\*+"\\*+'\\*+")++
    | (?<=\x1b)(?:\[{_PARAMETERS} | \]{_LINK} | [ -/]*+[0-~]?)
    | (?<=\x9b){_PARAMETERS}
    | (?<=\x9d){_LINK}
    | (?<=[{_INVISIBLE}])(?:(?![\x1b\x9b\x9d])[{_INVISIBLE}])*+
    ))""",
    re.VERBOSE | re.DOTALL,
)
_UNFINISHED = re.compile(r"%[%uU0-9A-Fa-f]*+|\\[\\uUx{{0-9A-Fa-f]*+|&[#;\w]*+|'['\"\\]*+", re.ASCII)
_UNFINISHED_SEQUENCE = re.compile(
    r"(?:\x1b(?:\[|\][^\x07\x1b\x9c\n]*+)?|\x9b|\x9d[^\x07\x1b\x9c\n]*+)[ -?]*+"
)
_MAY_CONTINUE = re.compile(r"(?<!\\)\\|[%&']")
_BACKSLASHES = re.compile(r"\\+")
_CONTROLS = {
    "n": "\n",
    "t": "\t",
    "r": "",
    "b": "",
    "f": "",
    "v": "",
    "a": "",
    "0": "",
    "e": "\x1b",
    "E": "\x1b",
}
_PLAIN = re.compile(r"[A-Za-z0-9._~-]")


class Decoded:
    """A text, or a part of it, with its escapes decoded."""

    __slots__ = ("_offset", "_passes", "text")

    def __init__(self, text: str, offset: int = 0) -> None:
        self._offset = offset
        self._passes: list[tuple[list[str], list[str]]] = []
        """For each pass, the literal parts and the escapes in turn: decoded and encoded."""
        for _ in range(_MAX_PASSES):
            encoded = _ESCAPE.split(text)
            if len(encoded) == 1:
                break
            decoded = encoded.copy()
            decoded[1::2] = map(_cache.__getitem__, encoded[1::2])
            result = "".join(decoded)
            if result == text:
                break
            self._passes.append((decoded, encoded))
            text = result
        self.text = text.replace(" ", "+")
        """The decoded text."""

    def locate(self, spans: Iterable[Span]) -> list[Span]:
        """Where parts of the decoded text are in the encoded text."""
        located = [*spans]
        for decoded, encoded in reversed(self._passes) if located else ():
            located = _locate(located, _starts(decoded), _starts(encoded))
        return [(self._offset + begin, self._offset + end) for begin, end in located]


def has_escapes(text: str) -> bool:
    """Whether the decoded text may differ from the text by more than its spaces."""
    return may_have_escapes(text) and ("+" in text or _ESCAPE.search(text) is not None)


def may_have_escapes(text: str) -> bool:
    """Whether there may be an escape in the text, or an unfinished one at its end. Faster than `has_escapes`: usually there is none."""
    if not text.isascii():
        return True
    data = text.encode()
    return len(data.translate(None, _ASCII_STARTS)) != len(data)  # faster than a search


def decode(text: str) -> Iterator[Decoded]:
    """The text with its escapes decoded: in parts that overlap, if it is long. Nothing if the text has no escapes."""
    if has_escapes(text):
        for begin in range(0, max(1, len(text) - MAX_ENCODED_LENGTH), _WINDOW):
            yield Decoded(text[begin : begin + _WINDOW + MAX_ENCODED_LENGTH], begin)


def find_decoded(text: str, find: Callable[[str], list[Span]]) -> list[Span]:
    """The places of what `find` finds in the decoded text."""
    return [span for part in decode(text) for span in part.locate(find(part.text))]


def decode_value(value: str) -> str:
    """The decoded text of a whole secret.

    Its end is left out if it could be the beginning of an escape: it would have another meaning together with the text after it.
    """
    return Decoded(value).text.rstrip("%&'\\")


def unfinished_escapes(text: str) -> Iterator[tuple[int, bool]]:
    """Where an escape may begin that continues after the end of the text, and whether it is a sequence for a terminal, which is left out."""
    begin = max(text.rfind("\x1b"), text.rfind("\x9b"), text.rfind("\x9d"))
    if begin >= 0 and _UNFINISHED_SEQUENCE.fullmatch(text, begin):
        yield begin, True
    for found in _MAY_CONTINUE.finditer(text, max(0, len(text) - _MAX_UNFINISHED)):
        if _UNFINISHED.fullmatch(text, found.start()):
            yield found.start(), False


def may_be_escaped(character: str) -> bool:
    """Whether usual encoders escape a character: not letters, digits, `.`, `_`, `~` and `-`."""
    return _PLAIN.fullmatch(character) is None


def _locate(spans: Iterable[Span], decoded: list[int], encoded: list[int]) -> list[Span]:
    """Where parts of the decoded text were before a pass. The lists are the beginnings of the parts before and after it."""
    located: list[Span] = []
    for begin, end in spans:
        # Each literal part has an even number, and each escape an odd one.
        first, last = bisect_right(decoded, begin) - 1, bisect_right(decoded, end - 1) - 1
        located.append(
            (
                encoded[first] if first % 2 else encoded[first] + begin - decoded[first],
                encoded[last + 1] if last % 2 else encoded[last] + end - decoded[last],
            )
        )
    return located


def _starts(parts: list[str]) -> list[int]:
    return [*accumulate(map(len, parts), initial=0)]


def _decode(escape: str) -> str:
    match escape[0]:
        case "%":
            units = escape.split("%")[1:]
            if "u" in escape:
                return chr(int(escape[-4:], 16))
            return _decode_bytes(bytes.fromhex("".join(unit[-2:] for unit in units)))
        case "\\":
            return _decode_backslashes(escape)
        case "&":
            name = escape.rpartition("&")[2].replace("amp;", "") or "amp;"
            return _decode_entity(name) or escape
        case "'":
            return "'"
        case _:
            return ""


class _Cache(dict[str, str]):
    """The decoded texts of short escapes. Asking it is faster than a call of a function."""

    def __missing__(self, escape: str) -> str:
        decoded = _decode(escape)
        if len(escape) <= _MAX_CACHED and len(self) < _MAX_CACHE:
            self[escape] = decoded
        return decoded


_cache = _Cache()


def _decode_backslashes(escape: str) -> str:
    units = _BACKSLASHES.split(escape)[1:]
    unit = units[0]
    match unit[:1]:
        case "u" | "U" if len(unit) > 1:
            codes = [int(unit[1:].strip("{}"), 16) for unit in units]
            if max(codes) > 0x10FFFF:
                return escape
            text = "".join(map(chr, codes))
            return text.encode("utf-16", "surrogatepass").decode("utf-16") if len(codes) > 1 else text
        case "x" if len(unit) > 1:
            return _decode_bytes(bytes(int(unit[1:], 16) for unit in units))
        case _ if len(unit) > 1:
            return _decode_bytes(bytes(int(unit, 8) for unit in units))
        case _:
            return _CONTROLS.get(unit, unit)


def _decode_bytes(raw: bytes) -> str:
    """The character with these bytes in UTF-8. Other bytes are read as Latin-1."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _decode_entity(name: str) -> str | None:
    """The characters of `amp;` or `#38;`; None if there is no such entity."""
    if not name.startswith("#"):
        return html5.get(name)
    number = name[1:-1]
    code = int(number[1:], 16) if number[0] in "xX" else int(number)
    return chr(code) if code <= 0x10FFFF else None
