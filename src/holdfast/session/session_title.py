"""Makes the title of a session from its first prompt."""

from collections.abc import Sequence

from holdfast.agent.parse_commands import CALL, is_command
from holdfast.masking.mask import Mask
from holdfast.masking.prompts import mask_prompts
from holdfast.model.json import JsonObject

_TITLE_LENGTH = 80  # characters
_TITLE_SOURCE = 4 * 1024  # the title is made from at most this many characters of each text
_TITLE_BLOCKS = 20  # the title is made from at most this many blocks of the prompt


def make_title(blocks: Sequence[JsonObject], mask: Mask) -> str:
    """The beginning of the prompt, masked; empty for commands other than `/call`.

    It is cut after masking, because a part of a secret would not be recognised.
    """
    texts = (
        _limit_text(str(block.get("text", "")), mask)
        for block in blocks[:_TITLE_BLOCKS]
        if block.get("type") == "text"
    )
    words = " ".join(" ".join(mask_prompts(texts, mask)).split())
    if is_command(blocks) and CALL not in words.split(" "):
        return ""
    return words if len(words) <= _TITLE_LENGTH else words[: _TITLE_LENGTH - 1] + "…"


def _limit_text(text: str, mask: Mask) -> str:
    """The beginning of a long text. If it ends with what may be part of a secret, that part is removed."""
    if len(text) <= _TITLE_SOURCE:
        return text
    start = text[:_TITLE_SOURCE]
    return start[: mask.find_partial_at_end(start)]
