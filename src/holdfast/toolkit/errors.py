"""`ToolError`, the error that tools raise, and the registry of a toolbox's error codes."""

from collections.abc import Iterable, Sequence
from typing import overload

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json

COMMON_CODES = (codes.BAD_ARGUMENT, codes.INTERNAL_ERROR, codes.TIMEOUT, codes.TOOL_FAILED)
WORKSPACE_CODES = (
    codes.BAD_FOLDER,
    codes.BAD_WORKSPACE,
    codes.BAD_WORKSPACE_FILE,
    codes.MISSING_WORKSPACE,
    codes.UNKNOWN_WORKSPACE,
    codes.WORKSPACE_DENIED,
)
EVAL_CODES = (codes.EVAL_BLOCKED, codes.EVAL_DISABLED)


class ToolError(HoldfastError):
    """An expected failure of a tool: a code, a message for the model and, optionally, what to do next.

    ```python
    raise ToolError(NOTE_EXISTS, f"There is a note called {title!r} already.", next_actions=["Choose another title."])
    raise ToolError("The printer is out of paper.")
    ```

    Without a code, it is TOOL_FAILED.
    """

    has_own_words = False

    @overload
    def __init__(self, message: str, /, *, next_actions: Sequence[str] = (), **details: Json) -> None: ...

    @overload
    def __init__(
        self, code: Code, message: str, *, next_actions: Sequence[str] = (), **details: Json
    ) -> None: ...

    def __init__(
        self, code: Code | str, message: Json = "", *, next_actions: Sequence[str] = (), **details: Json
    ) -> None:
        if isinstance(code, str):
            if message:
                raise TypeError("ToolError takes a message, or a code of box.code(…) and a message.")
            code, message = codes.TOOL_FAILED, code
        super().__init__(code, str(message), **details)
        self.next_actions = tuple(next_actions)


class ResultMismatchError(Exception):
    """A handler returned a value that is not JSON, or that does not have the type that it declares."""


class CodeRegistry:
    """The error codes that the tools of one box can use: Holdfast's, and those that the box's author added."""

    def __init__(self) -> None:
        self._custom: dict[str, Code] = {}

    def add(self, code: Code) -> Code:
        """Add a code; raises BAD_TOOL when its name is taken."""
        if codes.find(code.name) is not None or code.name in self._custom:
            raise HoldfastError(
                codes.BAD_TOOL, f"The code {code.name} is registered already. Choose another name."
            )
        self._custom[code.name] = code
        return code

    def find(self, name: str) -> Code | None:
        """The code with this name; None when there is none."""
        return self._custom.get(name) or codes.find(name)

    def get(self, name: str, tool: str) -> Code:
        """The code that a tool, a resource or a prompt declares; raises BAD_TOOL when there is no such code."""
        code = self.find(name)
        if code is None:
            raise HoldfastError(
                codes.BAD_TOOL,
                f"{tool!r} declares the code {name[:80]!r}, which does not exist. Add it first: box.code({name[:80]!r}, …).",
            )
        return code

    def include(self, others: Iterable[Code]) -> None:
        """Add the codes of another box."""
        for code in others:
            self.add(code)

    def restore(self, earlier: Iterable[Code]) -> None:
        """Make these the custom codes again."""
        self._custom = {code.name: code for code in earlier}

    def custom_codes(self) -> tuple[Code, ...]:
        """The codes that the author added, sorted by name."""
        return tuple(self._custom[name] for name in sorted(self._custom))
