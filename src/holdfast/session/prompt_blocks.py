"""A prompt, as an application gives it: a string, or a list of content blocks."""

from collections.abc import Mapping, Sequence
from typing import cast

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import JsonObject

_EXAMPLE = 'a string, or a list of content blocks: [{"type": "text", "text": "…"}]'

_REQUIRED = {"text": ("text",), "image": ("data", "mimeType"), "audio": ("data", "mimeType")}


def parse_prompt(prompt: str | Sequence[JsonObject]) -> Sequence[JsonObject]:
    """The content blocks of a prompt. Raise BAD_ARGUMENT if an agent could not read them."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise _bad_prompt("the text is empty")
        return [{"type": "text", "text": prompt}]
    blocks = cast("object", prompt)
    if not isinstance(blocks, Sequence) or isinstance(blocks, bytes | bytearray):
        raise _bad_prompt(f"it is a value of the type {type(blocks).__name__}")
    if not blocks:
        raise _bad_prompt("the list is empty")
    for index, block in enumerate(cast("Sequence[object]", blocks)):
        if not isinstance(block, Mapping):
            raise _bad_prompt(f"block {index} is a value of the type {type(block).__name__}")
        members = cast("Mapping[str, object]", block)
        kind = members.get("type")
        if not isinstance(kind, str) or not kind:
            raise _bad_prompt(f'block {index} has no "type"')
        for name in _REQUIRED.get(kind, ()):
            if not isinstance(members.get(name), str):
                raise _bad_prompt(f'block {index} of the type "{kind}" has no "{name}"')
    if all(block["type"] == "text" and not str(block["text"]).strip() for block in prompt):
        raise _bad_prompt("the text is empty")
    return prompt


def _bad_prompt(why: str) -> HoldfastError:
    return HoldfastError(codes.BAD_ARGUMENT, f"A prompt must be {_EXAMPLE}; {why}.")
