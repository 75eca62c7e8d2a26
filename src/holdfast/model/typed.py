"""What a person typed, as it may be written down: the arguments of a typed call are masked like those of any call."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.model.json import Json
from holdfast.model.mask import MASKED, Mask, tells

_CALL = re.compile(r"(\s*/call(?!\S)(?:\s+[^\s{]+)?\s*)(.*)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z][\w-]*")


def typed(text: str, mask: Mask) -> str:
    """The text without known secrets, and its calls without what stands under a telling name."""
    return all_typed([text], mask)[0]


def all_typed(texts: Iterable[str], mask: Mask) -> list[str]:
    """The same for the texts of one prompt: a call's JSON may go on from one to the next."""
    kept: list[str] = []
    goes_on = False
    for text in texts:
        if "/call" not in text and not goes_on:
            kept.append(mask.text(text))
            continue
        pieces: list[str] = []
        for piece in _commands(text):
            told, goes_on = _piece(piece, mask, goes_on=goes_on)
            pieces.append(told)
        kept.append("\n".join(pieces))
    return kept


def _commands(text: str) -> Iterator[str]:
    """The text in pieces: a line that begins with a slash, and all up to the next such line."""
    piece: list[str] = []
    for line in text.split("\n"):
        if piece and line.lstrip().startswith("/"):
            yield "\n".join(piece)
            piece = []
        piece.append(line)
    yield "\n".join(piece)


def _piece(piece: str, mask: Mask, *, goes_on: bool) -> tuple[str, bool]:
    """The piece as it may be kept, and whether what follows may belong to its JSON."""
    call = _CALL.fullmatch(piece)
    if call is None:
        is_rest = goes_on and not piece.lstrip().startswith("/")
        return (_unread(piece, mask) if is_rest else mask.text(piece)), is_rest
    head, rest = call[1], call[2]
    try:
        arguments, end = _DECODER.raw_decode(rest)
        masked = mask.json(arguments)
        after = rest[end:]
        if after.partition("\n")[0].strip():
            raise ValueError("More than one value stands there.")
    except (ValueError, RecursionError):
        return mask.text(head) + _unread(rest, mask), True
    if masked == arguments:
        return mask.text(piece), False
    return mask.text(head) + _written(masked) + mask.text(after), False


def _unread(text: str, mask: Mask) -> str:
    """What is no JSON: where a secret would end in it, nobody can say."""
    return MASKED if any(map(tells, _WORD.findall(text))) else mask.text(text)


def _written(arguments: Json) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def _without_doubt(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A name that stands there twice means one value to us and another to somebody else."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("A name stands there twice.")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_without_doubt)
