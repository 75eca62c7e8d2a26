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
    hides: bool | None = None  # of a call's JSON that may go on: whether a secret may
    for text in texts:
        if "/call" not in text and hides is None:
            kept.append(mask.text(text))
            continue
        pieces: list[str] = []
        for piece in _commands(text):
            told, hides = _piece(piece, mask, hides=hides)
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


def _piece(piece: str, mask: Mask, *, hides: bool | None) -> tuple[str, bool | None]:
    """The piece as it may be kept, and what may go on behind it: nothing of its JSON, some of it, or a secret."""
    call = _CALL.fullmatch(piece)
    if call is None:
        is_rest = hides is not None and not piece.lstrip().startswith("/")
        return _unread(piece, mask, hides=bool(hides)) if is_rest else (mask.text(piece), None)
    head, rest = call[1], call[2]
    try:
        arguments, end = _DECODER.raw_decode(rest)
        masked = mask.json(arguments)
        after = rest[end:]
        if after.partition("\n")[0].strip():
            raise ValueError("More than one value stands there.")
    except (ValueError, RecursionError):
        told, hides = _unread(rest, mask)
        return mask.text(head) + told, hides
    if masked == arguments:
        return mask.text(piece), None
    return mask.text(head) + _written(masked) + mask.text(after), None


def _unread(text: str, mask: Mask, *, hides: bool = False) -> tuple[str, bool]:
    """What is no JSON: where a secret that began in it ends, nobody can say."""
    hides = hides or any(map(tells, _WORD.findall(text)))
    return (MASKED if hides else mask.text(text)), hides


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
