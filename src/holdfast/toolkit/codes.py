"""The codes that the tools of one box can fail with: ours, and those of its author."""

from collections.abc import Iterable

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError

ALWAYS = (codes.BAD_ARGUMENT, codes.INTERNAL_ERROR, codes.TIMEOUT)
WORKSPACE = (codes.BAD_WORKSPACE, codes.MISSING_WORKSPACE, codes.UNKNOWN_WORKSPACE, codes.WORKSPACE_DENIED)
EVAL = (codes.EVAL_BLOCKED, codes.EVAL_DISABLED)


class Codes:
    """A namespace of codes over the common ones; a name means one thing."""

    def __init__(self) -> None:
        self._own: dict[str, Code] = {}

    def add(self, code: Code) -> Code:
        """Register a code of the author's."""
        if codes.find(code.name) is not None or code.name in self._own:
            raise HoldfastError(codes.BAD_TOOL, f"The code {code.name} is registered already.")
        self._own[code.name] = code
        return code

    def find(self, name: str) -> Code | None:
        """The code of this name."""
        return self._own.get(name) or codes.find(name)

    def get(self, name: str, tool: str) -> Code:
        """The code of this name; a tool that declares another one is mistaken."""
        code = self.find(name)
        if code is None:
            raise HoldfastError(
                codes.BAD_TOOL,
                f"The tool {tool!r} declares the code {name[:80]!r}, which is not registered. Add box.code({name[:80]!r}, …).",
            )
        return code

    def include(self, others: Iterable[Code]) -> None:
        """Take in the codes of a plugin."""
        for code in others:
            self.add(code)

    def own(self) -> tuple[Code, ...]:
        """The author's codes, by name."""
        return tuple(self._own[name] for name in sorted(self._own))
