"""The tools of one server."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, Unpack

import msgspec

from holdfast.model import codes
from holdfast.model.codes import Code
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.errors import HoldfastError
from holdfast.toolkit.authentication import Authenticator
from holdfast.toolkit.dispatcher import Dispatcher, DispatchOptions
from holdfast.toolkit.driven_sessions import SessionManager
from holdfast.toolkit.errors import CodeRegistry
from holdfast.toolkit.observers import Observer
from holdfast.toolkit.plugins import load_plugin
from holdfast.toolkit.tool import Tool, ToolDefinition, ToolOptions, build_tool, define_tool
from holdfast.toolkit.tool_server import ToolServer
from holdfast.toolkit.workspace import LocalWorkspaces, WorkspaceLookup
from holdfast.wire.mcp.eras import Implementation

P = ParamSpec("P")
T = TypeVar("T")


class Toolbox:
    """The tools of one server, with their error codes, observers and driven sessions. A tool is checked when it is added."""

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        instructions: str = "",
        workspaces: WorkspaceLookup | None = None,
        aliases: ContextAliases = NO_ALIASES,
    ) -> None:
        self.name = name
        self.version = version
        self.instructions = instructions
        self.aliases = aliases
        self.deadline = 120.0
        """Seconds that a call may take, unless its tool sets another deadline."""
        self.slow_after = 1.0
        """Seconds after which a call is logged as slow."""
        self._workspaces: WorkspaceLookup = workspaces or LocalWorkspaces()
        self._codes = CodeRegistry()
        self._tools: dict[str, Tool] = {}
        self._observers: list[Observer] = []
        self._managers: list[SessionManager[Any]] = []

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Every tool, by the name that clients see."""
        return self._tools

    def code(self, name: str, *, http: int, hint: str, retryable: bool = False) -> Code:
        """Add an error code for the tools of this box; raises BAD_TOOL when its name is taken or not valid."""
        try:
            return self._codes.add(Code(name=name, http_status=http, hint=hint, retryable=retryable))
        except ValueError as error:
            raise HoldfastError(codes.BAD_TOOL, str(error)) from None

    def tool(self, **options: Unpack[ToolOptions]) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorator: add the function to the box as a tool. The options are fields of `ToolDefinition`."""

        def decorate(handler: Callable[P, T]) -> Callable[P, T]:
            self.add(define_tool(handler, **options))
            return handler

        return decorate

    def add(self, definition: ToolDefinition) -> Tool:
        """Check a definition and add the tool; raises BAD_TOOL when it is not valid or its name is taken."""
        added = build_tool(definition, self._codes)
        if added.name in self._tools:
            other = self._tools[added.name].definition.name
            raise HoldfastError(
                codes.BAD_TOOL,
                f"Two tools would be called {added.name!r}: {other!r} and {definition.name!r}.",
            )
        self._tools[added.name] = added
        return added

    def include(self, box: "Toolbox", prefix: str) -> None:
        """Add the tools of another box, as `<prefix>_<tool>`, with its codes, observers and managers of driven sessions.

        If the name of a tool or a code is taken, nothing is added.
        """
        codes_before, tools_before = self._codes.custom_codes(), dict(self._tools)
        try:
            self._codes.include(box._codes.custom_codes())
            for included in box.tools.values():
                self.add(replace(included.definition, name=f"{prefix}_{included.name}"))
        except HoldfastError:
            self._codes = CodeRegistry()
            self._codes.include(codes_before)
            self._tools = tools_before
            raise
        self._observers += box._observers
        self._managers += box._managers

    def plug_in(self, *names: str) -> None:
        """Add the tools of these plugins; raises BAD_PLUGIN when one cannot be loaded."""
        for name in names:
            box = load_plugin(name)
            try:
                self.include(box, name)
            except HoldfastError as error:
                raise HoldfastError(
                    codes.BAD_PLUGIN, f"The plugin {name!r} cannot be added: {error.message}"
                ) from error

    def dispose_at_end(self, manager: SessionManager[T]) -> SessionManager[T]:
        """Register the manager: its driven sessions are disposed of when the server ends, even if SIGINT or SIGTERM ends it.

        Those of an anonymous caller over HTTP are disposed of when the caller's MCP session ends.
        """
        self._managers.append(manager)
        return manager

    def observe(self, observer: Observer) -> Observer:
        """Notify the observer after every call."""
        self._observers.append(observer)
        return observer

    def dispatcher(self, *, allow_eval: bool = False) -> Dispatcher:
        """A dispatcher for these tools."""
        options = DispatchOptions(
            workspaces=self._workspaces,
            allow_eval=allow_eval,
            deadline=self.deadline,
            slow_after=self.slow_after,
        )
        return Dispatcher(self._tools, self._codes, options, self._observers)

    def server(self, authenticator: Authenticator, *, allow_eval: bool = False) -> ToolServer:
        """An MCP server with these tools, not yet connected to a transport."""
        implementation = Implementation(self.name, self.version)
        return ToolServer(
            implementation,
            self.instructions,
            self.dispatcher(allow_eval=allow_eval),
            authenticator,
            self._managers,
        )

    def manifest(self) -> dict[str, Any]:
        """Describe every tool, including eval tools, with its schema and error codes, and explain each code."""
        return _build_manifest(self.name, self.version, self._tools.values())

    async def dispose(self) -> None:
        """Dispose of every driven session."""
        for manager in self._managers:
            await manager.dispose_all()

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Run the command line: serve on stdio or `--http HOST:PORT`, or print the `manifest`."""
        from holdfast.toolkit.main import main

        main(self, arguments)


def _build_manifest(name: str, version: str, tools: Iterable[Tool]) -> dict[str, Any]:
    listed = sorted(tools, key=lambda tool: tool.name)
    declared = {code.name: code for tool in listed for code in tool.codes}
    return {
        "name": name,
        "version": version,
        "tools": [_describe_tool(tool) for tool in listed],
        "codes": {code: _describe_code(declared[code]) for code in sorted(declared)},
    }


def _describe_tool(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.definition.title,
        "description": tool.description,
        "operation": tool.operation.value,
        "requires_eval_flag": tool.definition.requires_eval_flag,
        "takes_workspace": tool.signature.workspace is not None,
        "annotations": msgspec.to_builtins(tool.annotations),
        "input_schema": tool.schema,
        "codes": [code.name for code in tool.codes],
    }


def _describe_code(code: Code) -> dict[str, Any]:
    return {"http": code.http_status, "retryable": code.retryable, "hint": code.hint}
