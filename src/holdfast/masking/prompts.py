"""Mask secrets in prompts. The arguments of a typed `/call` are masked like those of any tool call."""

import json
import re
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Any

from holdfast.masking import MASKED
from holdfast.masking.mask import Mask
from holdfast.masking.secret_names import is_secret_name
from holdfast.model.json import Json

_CALL = re.compile(r"(\s*/call(?!\S)(?:\s+[^\s{]+)?\s*)(.*)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z][\w-]*")


def mask_prompt(text: str, mask: Mask) -> str:
    """Mask known secrets, and the arguments under secret names in `/call` commands."""
    return mask_prompts([text], mask)[0]


def mask_prompts(texts: Iterable[str], mask: Mask) -> list[str]:
    """Mask the texts of one prompt. The JSON of a call may continue in the next text."""
    masked_texts: list[str] = []
    continuation = _Continuation.NOTHING
    for text in texts:
        if "/call" not in text and continuation is _Continuation.NOTHING:
            masked_texts.append(mask.mask_known(text))
            continue
        pieces: list[str] = []
        for piece in _split_commands(text):
            masked_text, continuation = _mask_command(piece, mask, continuation)
            pieces.append(masked_text)
        masked_texts.append("\n".join(pieces))
    return masked_texts


class _Continuation(Enum):
    """What may continue in the next text: nothing, the arguments of a call, or a secret in these arguments."""

    NOTHING = auto()
    ARGUMENTS = auto()
    SECRET = auto()


def _split_commands(text: str) -> Iterator[str]:
    """Split the text before each line that begins with a slash."""
    piece: list[str] = []
    for line in text.split("\n"):
        if piece and line.lstrip().startswith("/"):
            yield "\n".join(piece)
            piece = []
        piece.append(line)
    yield "\n".join(piece)


def _mask_command(piece: str, mask: Mask, continuation: _Continuation) -> tuple[str, _Continuation]:
    """Mask a command, and return what may continue after it."""
    call = _CALL.fullmatch(piece)
    if call is None:
        if continuation is _Continuation.NOTHING or piece.lstrip().startswith("/"):
            return mask.mask_known(piece), _Continuation.NOTHING
        return _mask_invalid(piece, mask, continuation)
    head, rest = call[1], call[2]
    try:
        arguments, end = _DECODER.raw_decode(rest)
        masked = mask.mask_all_in_json(arguments)
        after = rest[end:]
        if after.partition("\n")[0].strip():
            raise ValueError("There is text after the JSON value.")
    except (ValueError, RecursionError):
        masked_text, continuation = _mask_invalid(rest, mask, _Continuation.ARGUMENTS)
        return mask.mask_known(head) + masked_text, continuation
    if masked == arguments:
        return mask.mask_known(piece), _Continuation.NOTHING
    return mask.mask_known(head) + _encode(masked) + mask.mask_known(after), _Continuation.NOTHING


def _mask_invalid(text: str, mask: Mask, continuation: _Continuation) -> tuple[str, _Continuation]:
    """Mask arguments that are not valid JSON. If a secret may begin in them, mask them all: the secret's end cannot be found."""
    if continuation is _Continuation.SECRET or any(map(is_secret_name, _WORD.findall(text))):
        return MASKED, _Continuation.SECRET
    return mask.mask_known(text), _Continuation.ARGUMENTS


def _encode(arguments: Json) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject duplicate names, which other parsers may read differently."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("A name occurs twice.")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicates)
