"""The size of an answer while it arrives, and its limits."""

from dataclasses import dataclass

from holdfast.agent.model import failures
from holdfast.agent.model.config import ModelLimits


@dataclass(slots=True)
class AnswerSize:
    """How much of an answer has arrived. Raises `LimitReachedError` if it is too large."""

    limits: ModelLimits
    characters: int = 0
    calls: int = 0

    def add_text(self, text: str) -> None:
        """Count the characters of a piece of text, of reasoning, or of a call's arguments."""
        self.characters += len(text)
        if self.characters > self.limits.max_characters:
            raise failures.too_large(f"it has more than {self.limits.max_characters} characters")

    def add_call(self) -> None:
        self.calls += 1
        if self.calls > self.limits.max_response_calls:
            raise failures.too_large(f"it asks for more than {self.limits.max_response_calls} calls")
