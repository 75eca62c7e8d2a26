"""The tools of one server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, Unpack

from holdfast.model import codes
from holdfast.model.aliases import NO_ALIASES, Aliases
from holdfast.model.codes import Code
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.answer import Answers
from holdfast.toolkit.believe import Belief
from holdfast.toolkit.codes import Codes
from holdfast.toolkit.dispatcher import Dispatcher, Rules
from holdfast.toolkit.manifest import manifest
from holdfast.toolkit.observe import Observer
from holdfast.toolkit.plugins import load_plugin
from holdfast.toolkit.registered import Registered
from holdfast.toolkit.sessions import SessionManager
from holdfast.toolkit.tool import Tool, ToolDefinition, checked, tool
from holdfast.toolkit.words import ToolWords
from holdfast.toolkit.workspace import Workspaces
from holdfast.wire.mcp.eras import Implementation

P = ParamSpec("P")
T = TypeVar("T")


class Toolbox:
    """Tools, their codes, and what they drive. Whatever is wrong with a tool is told when it is added."""

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        instructions: str = "",
        workspaces: Workspaces | None = None,
        aliases: Aliases = NO_ALIASES,
    ) -> None:
        self.name = name
        self.version = version
        self.instructions = instructions
        self.aliases = aliases
        self.deadline = 120.0
        """Seconds a call may take, unless its tool says otherwise."""
        self.slow_after = 1.0
        """Seconds after which a call is logged as slow."""
        self._workspaces: Workspaces = workspaces or Registered()
        self._codes = Codes()
        self._tools: dict[str, Tool] = {}
        self._observers: list[Observer] = []
        self._managers: list[SessionManager[Any]] = []

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Every tool, by the name that clients see."""
        return self._tools

    def code(self, name: str, *, http: int, hint: str, retryable: bool = False) -> Code:
        """Register a code that tools of this box fail with."""
        try:
            return self._codes.add(Code(name=name, http=http, hint=hint, retryable=retryable))
        except ValueError as error:
            raise HoldfastError(codes.BAD_TOOL, str(error)) from None

    def tool(self, **words: Unpack[ToolWords]) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Make a tool of the function below; the words are those of `ToolDefinition`."""

        def decorate(handler: Callable[P, T]) -> Callable[P, T]:
            self.add(tool(handler, **words))
            return handler

        return decorate

    def add(self, definition: ToolDefinition) -> Tool:
        """Add a tool, checked."""
        added = checked(definition, self._codes)
        if added.name in self._tools:
            other = self._tools[added.name].definition.name
            raise HoldfastError(
                codes.BAD_TOOL,
                f"Two tools would be called {added.name!r}: {other!r} and {definition.name!r}.",
            )
        self._tools[added.name] = added
        return added

    def include(self, box: "Toolbox", prefix: str) -> None:
        """Take in all tools of another box, as `<prefix>_<tool>`; all of them or, when one clashes, none."""
        codes_before, tools_before = self._codes.own(), dict(self._tools)
        try:
            self._codes.include(box._codes.own())
            for included in box.tools.values():
                self.add(replace(included.definition, name=f"{prefix}_{included.name}"))
        except HoldfastError:
            self._codes = Codes()
            self._codes.include(codes_before)
            self._tools = tools_before
            raise
        self._observers += box._observers
        self._managers += box._managers

    def plug_in(self, *names: str) -> None:
        """Take in the tools of these plugins; one that cannot be loaded stops the boot."""
        for name in names:
            try:
                self.include(load_plugin(name), name)
            except HoldfastError as error:
                raise HoldfastError(codes.BAD_PLUGIN, f"The plugin {name!r}: {error.message}") from error

    def drive(self, manager: SessionManager[T]) -> SessionManager[T]:
        """What the manager holds is disposed of when the server ends, however it ends."""
        self._managers.append(manager)
        return manager

    def observe(self, observer: Observer) -> Observer:
        """Tell the observer of every call."""
        self._observers.append(observer)
        return observer

    def dispatcher(self, *, allow_eval: bool = False) -> Dispatcher:
        """What calls the tools, by name."""
        rules = Rules(
            workspaces=self._workspaces,
            allow_eval=allow_eval,
            deadline=self.deadline,
            slow_after=self.slow_after,
        )
        return Dispatcher(self._tools, self._codes, rules, self._observers)

    def answers(self, belief: Belief, *, allow_eval: bool = False) -> Answers:
        """What stands behind a server of these tools."""
        who = Implementation(self.name, self.version)
        return Answers(who, self.instructions, self.dispatcher(allow_eval=allow_eval), belief)

    def manifest(self) -> dict[str, Any]:
        """What the box offers, eval tools included."""
        return manifest(self.name, self.version, self._tools.values())

    async def dispose(self) -> None:
        """Dispose of everything that is driven."""
        for manager in self._managers:
            await manager.dispose_all()

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Be a server, as the command line says: stdio, or `--http HOST:PORT`; or print the `manifest`."""
        from holdfast.toolkit.main import main

        main(self, arguments)
