"""A door made of functions, so that a Python application can answer the session's questions itself."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.model import codes
from holdfast.model.door import Door, DoorCapabilities, PermissionQuestion
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Decision
from holdfast.model.json import JsonObject
from holdfast.session.callbacks import check_callback, run_callback
from holdfast.wire.call_arguments import Arguments
from holdfast.wire.mcp.client_answers import elicitation_result, sampling_result, wrong_answer

log = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[PermissionQuestion], "Awaitable[Decision | bool] | Decision | bool"]
"""Whether a call may run: True, False, or a `Decision`."""
Fields: TypeAlias = "Arguments | str | float | list[str] | bool | None"
"""What a function that answers a server's question may return; see `Elicit`."""
Elicit: TypeAlias = Callable[[JsonObject], "Awaitable[Fields] | Fields"]
"""Answers a server's question: the fields of the form, the value of its only field, True to accept a question without fields, None to decline.

The fields are a mapping, a dataclass or a pydantic model. The whole result of `elicitation/create`, with its `action`, is also accepted.
"""
Sample: TypeAlias = Callable[[JsonObject], "Awaitable[str | Arguments] | str | Arguments"]
"""Answers a server's sampling request: the text of the model, or the whole result of `sampling/createMessage`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackDoor(Door):
    """Answers questions with functions, and supports the kinds of questions that it has functions for."""

    ask: Ask | None = None
    elicit_with: Elicit | None = None
    sample_with: Sample | None = None

    def __post_init__(self) -> None:
        for name, function in (("ask", self.ask), ("elicit", self.elicit_with), ("sample", self.sample_with)):
            if function is not None:
                check_callback(name, function)

    @property
    def has_functions(self) -> bool:
        """Whether the door has any function."""
        return self.capabilities != DoorCapabilities()

    @property
    def capabilities(self) -> DoorCapabilities:
        return DoorCapabilities(
            permission=self.ask is not None,
            elicitation=self.elicit_with is not None,
            elicitation_url=self.elicit_with is not None,
            sampling=self.sample_with is not None,
        )

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        assert self.ask is not None
        answer = await _call("ask", self.ask, question)
        if isinstance(answer, bool):
            return Decision.ALLOW_ONCE if answer else Decision.REJECT
        try:
            return Decision(answer)
        except ValueError:
            allowed = ", ".join(Decision)
            got = f"a value of the type {type(answer).__name__}"
            raise wrong_answer("ask", f"True, False or one of {allowed}", got) from None

    async def elicit(self, params: JsonObject) -> JsonObject:
        assert self.elicit_with is not None
        return elicitation_result(await _call("elicit", self.elicit_with, params), params)

    async def sample(self, params: JsonObject) -> JsonObject:
        assert self.sample_with is not None
        return sampling_result(await _call("sample", self.sample_with, params))

    async def read_text(self, path: str) -> str:
        raise HoldfastError(
            codes.UNSUPPORTED_BY_CLIENT, "This application does not open files for the session."
        )

    async def write_text(self, path: str, text: str) -> None:
        raise HoldfastError(
            codes.UNSUPPORTED_BY_CLIENT, "This application does not open files for the session."
        )


async def _call(name: str, function: Callable[[Any], Any], argument: object) -> Any:
    """Call the application's function. If it raises, the question has no answer, and the log has the traceback."""
    try:
        return await run_callback(function, argument)
    except HoldfastError:
        raise
    except Exception as error:
        log.exception("a callback failed: %s", name, extra={"callback": name})
        raise HoldfastError(
            codes.NO_ANSWER,
            f"The application's function `{name}` raised {type(error).__name__}; the log has the traceback.",
            function=name,
        ) from None
