"""The failure that a handler saw coming."""

from collections.abc import Sequence

from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json


class ToolError(HoldfastError):
    """A tool could not do what it was asked: a code of its own, a sentence, and perhaps what to do next.

    ```python
    raise ToolError(NOTE_EXISTS, f"There is a note called {title!r} already.", next_actions=["Choose another title."])
    ```
    """

    def __init__(
        self, code: Code, message: str, *, next_actions: Sequence[str] = (), **details: Json
    ) -> None:
        super().__init__(code, message, **details)
        self.next_actions = tuple(next_actions)
