"""Estimates how many tokens a request has, before it is sent or if the endpoint does not report it."""

from collections.abc import Sequence

from pydantic_ai.messages import (
    ModelMessage,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import StreamedResponse

from holdfast.agent.model.tools import ToolList
from holdfast.agent.model.transport import Exchange

_CHARACTERS_PER_TOKEN = 4


def expected_tokens(messages: Sequence[ModelMessage], tools: ToolList, instructions: str) -> int:
    """Estimate how many tokens a request will have. Images and the arguments of earlier calls are not counted."""
    texts = (
        len(part.content)
        for message in messages
        for part in message.parts
        if isinstance(part, TextPart | UserPromptPart | ToolReturnPart) and isinstance(part.content, str)
    )
    return (len(instructions) + tools.size + sum(texts)) // _CHARACTERS_PER_TOKEN


def used_tokens(stream: StreamedResponse, exchange: Exchange) -> tuple[int, int]:
    """Estimate the tokens of a request and of its answer, so that budgets also limit endpoints that report no tokens."""
    written = sum(
        len(str(part.args) if isinstance(part, ToolCallPart) else part.content)
        for part in stream.get().parts
        if isinstance(part, TextPart | ThinkingPart | ToolCallPart)
    )
    return exchange.sent_bytes // _CHARACTERS_PER_TOKEN, written // _CHARACTERS_PER_TOKEN
