"""Mask secrets in prompts. The arguments of a typed `/call` are masked like those of any tool call."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.model.json import Json
from holdfast.model.mask import MASKED, Mask
from holdfast.model.secrets import is_secret_name

_CALL = re.compile(r"(\s*/call(?!\S)(?:\s+[^\s{]+)?\s*)(.*)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z][\w-]*")


def mask_prompt(text: str, mask: Mask) -> str:
    """Mask known secrets, and the arguments under secret names in `/call` commands."""
    return mask_prompts([text], mask)[0]


def mask_prompts(texts: Iterable[str], mask: Mask) -> list[str]:
    """Mask the texts of one prompt. The JSON of a call may continue in the next text."""
    kept: list[str] = []
    # None: no call is unfinished. Else: whether a secret may continue in the next text.
    hides_secret: bool | None = None
    for text in texts:
        if "/call" not in text and hides_secret is None:
            kept.append(mask.mask_text(text))
            continue
        pieces: list[str] = []
        for piece in _commands(text):
            masked_text, hides_secret = _mask_command(piece, mask, hides_secret=hides_secret)
            pieces.append(masked_text)
        kept.append("\n".join(pieces))
    return kept


def _commands(text: str) -> Iterator[str]:
    """Split the text before each line that begins with a slash."""
    piece: list[str] = []
    for line in text.split("\n"):
        if piece and line.lstrip().startswith("/"):
            yield "\n".join(piece)
            piece = []
        piece.append(line)
    yield "\n".join(piece)


def _mask_command(piece: str, mask: Mask, *, hides_secret: bool | None) -> tuple[str, bool | None]:
    """Mask a command, and return whether its JSON, or a secret in it, may continue in the next text."""
    call = _CALL.fullmatch(piece)
    if call is None:
        is_rest = hides_secret is not None and not piece.lstrip().startswith("/")
        return (
            _mask_invalid(piece, mask, hides_secret=bool(hides_secret))
            if is_rest
            else (mask.mask_text(piece), None)
        )
    head, rest = call[1], call[2]
    try:
        arguments, end = _DECODER.raw_decode(rest)
        masked = mask.mask_json(arguments)
        after = rest[end:]
        if after.partition("\n")[0].strip():
            raise ValueError("There is more than one value.")
    except (ValueError, RecursionError):
        masked_text, hides_secret = _mask_invalid(rest, mask)
        return mask.mask_text(head) + masked_text, hides_secret
    if masked == arguments:
        return mask.mask_text(piece), None
    return mask.mask_text(head) + _encode(masked) + mask.mask_text(after), None


def _mask_invalid(text: str, mask: Mask, *, hides_secret: bool = False) -> tuple[str, bool]:
    """Mask text that is not valid JSON. All of it, if a secret may begin in it: its end cannot be found."""
    hides_secret = hides_secret or any(map(is_secret_name, _WORD.findall(text)))
    return (MASKED if hides_secret else mask.mask_text(text)), hides_secret


def _encode(arguments: Json) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject duplicate names, which other parsers may read differently."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("A name occurs twice.")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicates)
