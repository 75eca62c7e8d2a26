"""Corrects streams of the Chat Completions API that endpoints other than OpenAI's send."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from openai.types.chat.chat_completion_chunk import Choice
from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse


@dataclass
class _CustomStream(OpenAIStreamedResponse):
    """Gives each call an index of its own, and leaves out repeated names.

    Some endpoints send several calls with the same index, and some repeat the id and the name of a call in each of its pieces.
    """

    _indexes: dict[int, int] = field(default_factory=dict[int, int], init=False)
    """For each index that was sent: the index of the latest call with it."""
    _calls: dict[int, tuple[str, str | None]] = field(
        default_factory=dict[int, tuple[str, str | None]], init=False
    )
    """The id and the name in the first piece of each call, by its index."""

    def _map_tool_call_delta(self, choice: Choice) -> Iterable[ModelResponseStreamEvent]:
        for call in choice.delta.tool_calls or ():
            if "index" not in call.model_fields_set:  # the library handles calls without an index
                continue
            index = self._indexes.get(call.index, call.index)
            function = call.function
            if call.id:
                first_id, name = self._calls.get(index, (call.id, None))
                if call.id != first_id:
                    index = max(self._calls) + 1
                elif function is not None and function.name == name:
                    function.name = None
                self._calls.setdefault(index, (call.id, None if function is None else function.name))
            self._indexes[call.index] = index
            call.index = index
        return super()._map_tool_call_delta(choice)


class CustomChatModel(OpenAIChatModel):
    """A model of Ollama, or at `model.base_url`, with the Chat Completions API."""

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _CustomStream
