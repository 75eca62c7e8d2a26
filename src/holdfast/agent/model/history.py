"""The model's view of a conversation, rebuilt from the session's events."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import msgspec
from pydantic import TypeAdapter
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model

from holdfast.agent.model.instructions import tag_author
from holdfast.agent.model.prompt import PromptImage, prompt_parts, result_parts, shown_blocks
from holdfast.agent.parse_commands import is_command
from holdfast.model.event import (
    HistoryCompacted,
    MessageReceived,
    ModelResponded,
    Outcome,
    Prompted,
    Replied,
    StopReason,
    ToolEnded,
    TurnEnded,
)
from holdfast.model.json import Json, JsonObject, is_all_finite
from holdfast.model.message_text import mark_message
from holdfast.model.visible_text import replace_surrogates
from holdfast.store.types import StoredEvent

_RESPONSE = TypeAdapter(ModelResponse)
# Formats in which every complete answer says why it ends, by the names of the library's classes. The classes themselves are not
# imported here: each is in a module that is imported only if it is used.
_FORMATS_WITH_REASON = frozenset(
    {"OpenAIChatModel", "OpenAIResponsesModel", "AnthropicModel", "CustomChatModel"}
)
_NO_RESULT = "The call was interrupted. It may have taken effect; its result is not known."
CUT_OFF = " […]"
"""Ends the text of an answer that was cut off."""


def encode_response(response: ModelResponse) -> JsonObject:
    """Encode a response to store it. Signatures are not changed."""
    return _RESPONSE.dump_python(
        response, mode="json", exclude_none=True, exclude={"timestamp", "provider_url", "usage"}
    )


def decode_response(stored: JsonObject) -> ModelResponse:
    """Decode a stored response."""
    return _RESPONSE.validate_python(stored)


async def load_history(events: AsyncIterator[StoredEvent], max_result: int) -> "History":
    """Rebuild the conversation so far from the session's events."""
    history = History(max_result)
    async for stored in events:
        if not stored.origin.agent:
            history.add(stored)
    return history


class History:
    """Builds the model's messages event by event: prompts, answers, and the results of the calls that the answers ask for."""

    def __init__(self, max_result: int) -> None:
        self.messages: list[ModelMessage] = []
        self.turn_starts: dict[str, int] = {}
        """The index of each turn's first message."""
        self._max_result = max_result
        self._turn_id = ""
        self._partial = ""
        """What has arrived of an answer that is not complete."""
        self._calls: dict[str, ToolCallPart] = {}
        """The calls of the last answer, by Holdfast's id of the call."""
        self._results: dict[str, list[ModelRequestPart]] = {}
        """The results of these calls that have arrived, by the same ids."""

    def _add_message(self, message: MessageReceived) -> None:
        """Add another agent's message, which started a turn or arrived during one."""
        if message.turn_id != self._turn_id:
            self._turn_id, self._partial = message.turn_id, ""
            self.turn_starts[message.turn_id] = len(self.messages)
        else:
            self._add_results()
        self.messages.append(user_request([{"type": "text", "text": mark_message(message)}]))

    def add(self, stored: StoredEvent) -> None:
        """Add one event of the session's own agent."""
        match stored.event:
            case Prompted(turn_id=turn_id, blocks=blocks):
                self._turn_id = "" if is_command(blocks) else turn_id
                self._partial = ""
                if self._turn_id:
                    self.turn_starts[turn_id] = len(self.messages)
                    self.messages.append(user_request(blocks))
            case MessageReceived():
                self._add_message(stored.event)
            case Replied(message_id=message_id, text=text) if self._is_in_turn(message_id):
                self._partial += text
            case ModelResponded(message=message, calls=calls) if self._turn_id:
                self._add_results()
                response, self._partial = decode_response(message), ""
                self.messages.append(response)
                by_id = {part.tool_call_id: part for part in response.tool_calls}
                self._calls = {
                    call_id: by_id[model_id] for model_id, call_id in calls.items() if model_id in by_id
                }
            case ToolEnded(call_id=call_id) if call_id in self._calls:
                part = self._calls[call_id]
                content = shown_blocks(stored.event.content, stored.event.structured)
                self._results[call_id] = call_result(part, content, stored.event.outcome, self._max_result)
            case TurnEnded(reason=reason) if self._turn_id:
                self._end_turn(reason)
            case HistoryCompacted(summary=summary, kept_from=kept_from):
                self.compact(summary, kept_from)
            case _:
                pass

    def forget_turn(self, turn_id: str) -> None:
        """Remove this turn, which must be the last one."""
        if (start := self.turn_starts.pop(turn_id, None)) is not None:
            del self.messages[start:]
        self._turn_id = ""

    def replace_messages(self, messages: list[ModelMessage], turn_id: str) -> None:
        """Replace the messages with those of a run that began with this history and answered this turn."""
        self.turn_starts[turn_id] = len(self.messages)
        self.messages = messages

    def compact(self, summary: str, kept_from: str) -> None:
        """Replace the messages before the turn `kept_from` with a summary."""
        start = self.turn_starts.get(kept_from, len(self.messages))
        self.messages = [summary_request(summary), *self.messages[start:]]
        self.turn_starts = {
            turn: index - start + 1 for turn, index in self.turn_starts.items() if index >= start
        }

    def _is_in_turn(self, message_id: str) -> bool:
        return bool(self._turn_id) and message_id.startswith(f"{self._turn_id}.")

    def _end_turn(self, reason: StopReason) -> None:
        self._add_results()
        if self._partial and reason in (StopReason.CANCELLED, StopReason.INTERRUPTED):
            self.messages.append(ModelResponse(parts=[TextPart(content=self._partial + CUT_OFF)]))
        self._turn_id = self._partial = ""

    def _add_results(self) -> None:
        if self._calls:
            results = [
                self._results.get(call_id) or [tool_return(part, _NO_RESULT, Outcome.CANCELLED)]
                for call_id, part in self._calls.items()
            ]
            self.messages.append(ModelRequest(parts=join_results(results)))
            self._calls, self._results = {}, {}


def user_request(blocks: Sequence[JsonObject]) -> ModelRequest:
    """Make the message for a prompt."""
    return ModelRequest(
        parts=[UserPromptPart(content=_content(part)) for part in prompt_parts(blocks) or [""]]
    )


def _content(part: str | PromptImage) -> str | list[UserContent]:
    if isinstance(part, str):
        return part
    return [BinaryContent(data=part.data, media_type=part.media_type)]


def summary_request(summary: str) -> ModelRequest:
    """Make the message for a summary of the beginning of the conversation."""
    text = tag_author("Holdfast: a summary of the conversation so far", summary)
    return ModelRequest(parts=[UserPromptPart(content=text)])


def tool_return(call: ToolCallPart, text: str, outcome: Outcome) -> ToolReturnPart:
    """Make the result of a call as a part of a message. The text says if the call failed, because not every API format has a field for it."""
    text = text or "(The result is empty.)"  # Anthropic rejects an empty text
    content = text if outcome is Outcome.COMPLETED else f"Failed: {text}"
    return ToolReturnPart(tool_name=call.tool_name, content=content, tool_call_id=call.tool_call_id)


def call_result(
    call: ToolCallPart, content: Sequence[JsonObject], outcome: Outcome, limit: int
) -> list[ModelRequestPart]:
    """Make the result of a call: its text, and a prompt with its images, because not every API format allows images in results."""
    text, images = result_parts(content, limit)
    shown: list[UserContent] = [BinaryContent(data=each.data, media_type=each.media_type) for each in images]
    label = tag_author("a tool, not the user", "The images of the result above:")
    return [
        tool_return(call, text, outcome),
        *([UserPromptPart(content=[label, *shown])] if shown else []),
    ]


def join_results(results: Sequence[Sequence[ModelRequestPart]]) -> list[ModelRequestPart]:
    """Join the results of all calls of an answer for one message. API formats require that the results precede all prompts."""
    parts = [part for result in results for part in result]
    return sorted(parts, key=lambda part: not isinstance(part, ToolReturnPart))


def text_of(response: ModelResponse) -> str:
    """Return the text of an answer. A part of a kind that the library does not know has no content."""
    return "".join(part.content or "" for part in response.parts if isinstance(part, TextPart))


def ends_properly(response: ModelResponse, model: Model) -> bool:
    """Return whether the endpoint said why the answer ends. If not, the answer was cut off, even if the connection was closed properly."""
    if type(model).__name__ not in _FORMATS_WITH_REASON:
        return True
    return not {"finish_reason", "refusal"}.isdisjoint(response.provider_details or {})


def clean_response(response: ModelResponse) -> ModelResponse:
    """Prepare an answer for the store: make the ids of calls unique and their arguments JSON objects; drop reasoning without a signature."""
    seen: set[str] = set()
    parts: list[ModelResponsePart] = []
    for part in response.parts:
        match part:
            case ThinkingPart() if not part.signature and part.id is None:
                continue  # providers reject reasoning that they have not signed
            case TextPart() if not part.content:
                continue
            case TextPart():
                parts.append(replace(part, content=replace_surrogates(part.content)))
            case ToolCallPart():
                parts.append(_clean_call(part, seen))
            case _:
                parts.append(part)
    return replace(response, parts=parts)


def _clean_call(part: ToolCallPart, seen: set[str]) -> ToolCallPart:
    call_id = replace_surrogates(part.tool_call_id)
    while call_id in seen:
        call_id = f"{call_id}_"
    seen.add(call_id)
    return replace(
        part,
        tool_call_id=call_id,
        tool_name=replace_surrogates(part.tool_name),
        args=parse_arguments(part.args),
    )


def parse_arguments(raw: str | dict[str, object] | None) -> dict[str, object]:
    """Return the arguments of a call. Text that is not a JSON object becomes the argument `invalid_json`."""
    if isinstance(raw, dict):
        return raw if is_all_finite(raw) else {"invalid_json": str(raw)[:1000]}
    raw = replace_surrogates(raw or "")
    try:
        value: Json = msgspec.json.decode(raw or "{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    return {**value} if isinstance(value, dict) else {"invalid_json": (raw or "")[:1000]}
