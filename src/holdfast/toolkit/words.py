"""What can be said of a tool in its decorator."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from holdfast.model.json import JsonObject
from holdfast.toolkit.annotations import Annotations
from holdfast.toolkit.guards import Guard


class ToolWords(TypedDict, total=False):
    """The words of `ToolDefinition`; what is not said follows from the function."""

    name: str
    title: str
    description: str
    operation: Literal["command", "query", "eval", "screenshot", "logs", "dialog", "window_info"]
    requires_eval_flag: bool
    codes: Sequence[str]
    input_schema: JsonObject
    annotations: Annotations
    guards: Sequence[Guard]
    deadline: float
    meta: JsonObject | None
    needs: Mapping[str, Any]
