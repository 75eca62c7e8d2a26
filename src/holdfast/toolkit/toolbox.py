"""The tools, resources and prompts of a server."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, cast, overload
from weakref import WeakSet

import msgspec

from holdfast.model import codes
from holdfast.model.check_seconds import check_seconds
from holdfast.model.codes import Code
from holdfast.model.context_aliases import NO_ALIASES, ContextAliases
from holdfast.model.errors import HoldfastError, advise_about_names
from holdfast.toolkit.authentication import Authenticator
from holdfast.toolkit.check_options import check_parameter_count
from holdfast.toolkit.dispatcher import Dispatcher, DispatchOptions
from holdfast.toolkit.driven_sessions import DrivenSessions
from holdfast.toolkit.errors import CodeRegistry
from holdfast.toolkit.features import Features
from holdfast.toolkit.observers import Observer
from holdfast.toolkit.plugins import load_plugin
from holdfast.toolkit.return_type import EnvelopeKind
from holdfast.toolkit.server_state import LifespanFunction, read_lifespan
from holdfast.toolkit.subscriptions import Change, ListName
from holdfast.toolkit.tool import Tool, ToolDefinition, ToolOptions, build_tool, define_tool, include_tool
from holdfast.toolkit.tool_server import ToolServer
from holdfast.toolkit.workspace import LocalWorkspaces, WorkspaceLookup
from holdfast.wire.mcp.eras import Implementation, OwnInfo

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from holdfast.toolkit.client import BoxClient, ClientOptions
    from holdfast.toolkit.feature_handler import BoxContext
    from holdfast.toolkit.http_app import BoxApp, HttpAppOptions
    from holdfast.toolkit.prompt import PromptOptions
    from holdfast.toolkit.resource import ResourceOptions

P = ParamSpec("P")
T = TypeVar("T")

_METHODS_OF_FASTMCP = {
    "run": "box.main(), and start the program with --http HOST:PORT for HTTP",
    "run_async": "box.main(), and start the program with --http HOST:PORT for HTTP",
    "mount": 'box.include(other, "prefix")',
    "import_server": 'box.include(other, "prefix")',
    "add_tool": "box.tool(function)",
    "add_resource": 'box.resource("shop://menu")(function)',
    "add_prompt": "box.prompt(function)",
    "remove_tool": 'box.remove(tool="name")',
    "streamable_http_app": "box.http_app(…)",
    "sse_app": "box.http_app(…)",
    "custom_route": 'app.mount("/tools", box.http_app(…)) in an application that has the route',
}
"""What to write instead of methods that authors know from FastMCP and the MCP SDK."""


@advise_about_names(_METHODS_OF_FASTMCP)
class Toolbox:
    """The tools, resources and prompts of a server, with their error codes and observers. Each is checked when it is added.

    The box also disposes of the driven sessions: the browsers, apps or shells that its tools control.
    """

    def __init__(  # noqa: PLR0913
        self,
        name: str,
        *,
        version: str = "0",
        instructions: str = "",
        workspaces: WorkspaceLookup | None = None,
        aliases: ContextAliases = NO_ALIASES,
        envelope: EnvelopeKind = "content",
        arguments: Literal["strict", "lax"] = "strict",
        lifespan: LifespanFunction | None = None,
        dynamic: bool = False,
        listing: Literal["full", "short"] = "full",
    ) -> None:
        self.name = name
        self.version = version
        self.instructions = instructions
        self.aliases = aliases
        self.envelope: EnvelopeKind = _one_of("envelope", envelope, ("content", "meta"))
        """Where the envelope (`ok`, `code`, `elapsed_ms`, …) is: in the content of a result, or in its `_meta`."""
        self.arguments: Literal["strict", "lax"] = _one_of("arguments", arguments, ("strict", "lax"))
        """Whether strings such as "2" are converted to numbers where a tool needs a number (`lax`), or refused (`strict`)."""
        self.listing: Literal["full", "short"] = _one_of("listing", listing, ("full", "short"))
        """Whether `tools/list` has everything, or leaves out what a model can do without. The manifest has everything."""
        self.deadline = 120.0
        """Seconds that a call may take, unless its tool sets another deadline."""
        self.slow_after = 1.0
        """Seconds after which a call is logged as slow."""
        self._workspaces: WorkspaceLookup = workspaces or LocalWorkspaces()
        self._codes = CodeRegistry()
        self._tools: dict[str, Tool] = {}
        self._observers: list[Observer] = []
        self._driven: list[DrivenSessions[Any]] = []
        self._features = Features()
        self._servers: WeakSet[ToolServer] = WeakSet()
        self._lifespan = None if lifespan is None else read_lifespan(lifespan, self)
        self._lifespans = [] if self._lifespan is None else [self._lifespan]
        self.dynamic = dynamic
        """Whether tools, resources or prompts are added or removed while the server runs. Clients are told of such changes only if this is true."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Every tool, by the name that clients see."""
        return self._tools

    @property
    def loses_state(self) -> bool:
        """Whether a server of this box has state that is lost when it ends: of a lifespan, given values that are kept, or driven sessions."""
        handlers = (*self._tools.values(), *self._features.tools())
        given = (parameter for handler in handlers for parameter in handler.signature.given)
        return bool(
            self._lifespans or self._driven or any(parameter.provider.per != "call" for parameter in given)
        )

    def code(self, name: str, *, http: int, hint: str, retryable: bool = False) -> Code:
        """Add an error code for the tools of this box; raises BAD_TOOL when its name is taken or not valid."""
        try:
            return self._codes.add(Code(name=name, http_status=http, hint=hint, retryable=retryable))
        except ValueError as error:
            raise HoldfastError(codes.BAD_TOOL, str(error)) from None

    @overload
    def tool(self, handler: Callable[P, T], /) -> Callable[P, T]: ...

    @overload
    def tool(
        self, handler: None = None, /, **options: Unpack[ToolOptions]
    ) -> Callable[[Callable[P, T]], Callable[P, T]]: ...

    def tool(self, handler: Callable[P, T] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
        """Decorator: add the function to the box as a tool. The options are fields of `ToolDefinition`."""

        def decorate(handler: Callable[P, T]) -> Callable[P, T]:
            self.add(define_tool(handler, **options))
            return handler

        if isinstance(handler, str):
            raise HoldfastError(codes.BAD_TOOL, f"To name a tool, write @box.tool(name={handler!r}).")
        return decorate if handler is None else decorate(handler)

    def add(self, definition: ToolDefinition) -> Tool:
        """Check a definition and add the tool; raises BAD_TOOL when it is not valid or its name is taken."""
        if not isinstance(cast("object", definition), ToolDefinition):
            kind = type(definition).__name__
            raise HoldfastError(
                codes.BAD_TOOL,
                f"box.add takes a ToolDefinition, not a {kind}. To add a function, write box.tool(…).",
            )
        if definition.lifespan is None:
            definition = replace(definition, lifespan=self._lifespan)
        added = build_tool(
            definition,
            self._codes,
            envelope=self.envelope,
            lax=self.arguments == "lax",
            short=self.listing == "short",
        )
        return self._add_built(added)

    def _add_built(self, added: Tool) -> Tool:
        if added.name in self._tools:
            name, other = added.definition.name, self._tools[added.name].definition.name
            both = "" if other == name else f": {other!r} and {name!r}"
            raise HoldfastError(
                codes.BAD_TOOL,
                f"Two tools would be called {added.name!r}{both}. Give one another name: @box.tool(name=…).",
            )
        self._tools[added.name] = added
        self._publish(Change(list_name="tools"))
        return added

    @overload
    def prompt(self, handler: Callable[P, T], /) -> Callable[P, T]: ...

    @overload
    def prompt(
        self, handler: None = None, /, **options: "Unpack[PromptOptions]"
    ) -> Callable[[Callable[P, T]], Callable[P, T]]: ...

    def prompt(self, handler: Callable[P, T] | None = None, /, **options: "Unpack[PromptOptions]") -> Any:
        """Decorator: add the function to the box as a prompt. The function returns a string, a `Message`, content, or a list of them."""

        def decorate(handler: Callable[P, T]) -> Callable[P, T]:
            self._features.add_prompt(handler, options, self._context())
            self._publish(Change(list_name="prompts"))
            return handler

        if isinstance(handler, str):
            raise HoldfastError(codes.BAD_TOOL, f"To name a prompt, write @box.prompt(name={handler!r}).")
        return decorate if handler is None else decorate(handler)

    def resource(
        self, uri: str, **options: "Unpack[ResourceOptions]"
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorator: add the function to the box as a resource. The function returns text, bytes or data.

        The variables of a template, such as `shop://{id}`, are parameters of the function.
        """
        if callable(uri):
            raise HoldfastError(codes.BAD_TOOL, 'A resource needs a URI: write @box.resource("shop://menu").')

        def decorate(handler: Callable[P, T]) -> Callable[P, T]:
            self._features.add_resource(uri, handler, options, self._context())
            self._publish(Change(list_name="resources"))
            return handler

        return decorate

    def completion(self, target: str, argument: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorator: the function suggests values for an argument of a prompt, or for a variable of a resource template.

        The function may take `value` (what the user has typed) and `arguments` (the arguments that are known already), and returns a list of
        strings or a `Completion`.
        """

        def decorate(handler: Callable[P, T]) -> Callable[P, T]:
            self._features.add_completer(target, argument, handler, self._context())
            return handler

        return decorate

    def remove(self, *, tool: str = "", resource: str = "", prompt: str = "") -> None:
        """Remove a tool or a prompt by the name that clients see, or a resource by its URI; raises BAD_TOOL when there is none."""
        removals: list[tuple[ListName, str, dict[str, Any]]] = [
            ("tools", tool, self._tools),
            ("resources", resource, self._features.resources),
            ("prompts", prompt, self._features.prompts),
        ]
        for list_name, name, registered in removals:
            if not name:
                continue
            if registered.pop(name, None) is None:
                raise HoldfastError(codes.BAD_TOOL, f"There is no {list_name[:-1]} {name[:200]!r} to remove.")
            if list_name != "tools":
                self._features.remove_completers(name)
            self._publish(Change(list_name=list_name))

    def resource_updated(self, uri: str, *, session_id: str = "") -> None:
        """Tell the clients that subscribed to this resource that it has changed. Can be called from any thread.

        With `session_id`, only clients of that session are told: use it if the resource differs for each caller.
        """
        self._publish(Change(uri=uri, session_id=session_id))

    def _publish(self, change: Change) -> None:
        for server in list(self._servers):
            server.publish(change)

    def _context(self) -> "BoxContext":
        """What the handlers of resources, prompts and completions get from this box."""
        from holdfast.toolkit.feature_handler import BoxContext

        return BoxContext(self._codes, self._lifespan)

    def include(self, box: "Toolbox", prefix: str) -> None:
        """Add the tools and prompts of another box, as `<prefix>_<tool>`, and its resources, whose URIs stay the same.

        The tools keep the options `envelope`, `listing` and `arguments` of their own box. Its codes, observers, lifespan and
        driven sessions are also added. If a name is taken, nothing is added.
        """
        codes_before, tools_before = self._codes.custom_codes(), dict(self._tools)
        features_before = self._features.copy()
        try:
            self._codes.include(box._codes.custom_codes())
            for included in box.tools.values():
                self._add_built(include_tool(included, f"{prefix}_{included.name}", self._lifespan))
            self._features.include(box._features, prefix, self._context())
        except HoldfastError:
            self._codes.restore(codes_before)
            self._tools.clear()
            self._tools.update(tools_before)
            self._features.restore(features_before)
            raise
        self._observers += box._observers
        self._driven += box._driven
        self._lifespans += box._lifespans

    def plug_in(self, *names: str) -> None:
        """Add the tools, resources and prompts of these plugins; raises BAD_PLUGIN when one cannot be loaded."""
        for name in names:
            box = load_plugin(name)
            try:
                self.include(box, name)
            except HoldfastError as error:
                raise HoldfastError(
                    codes.BAD_PLUGIN, f"The plugin {name!r} cannot be added: {error.message}"
                ) from error

    def dispose_at_end(self, driven: DrivenSessions[T]) -> DrivenSessions[T]:
        """Dispose of these driven sessions when the server ends, also by SIGINT or SIGTERM.

        The driven sessions of an anonymous caller over HTTP are disposed of when the caller's MCP session ends.
        """
        self._driven.append(driven)
        return driven

    def observe(self, observer: Observer) -> Observer:
        """Notify the observer after every call that was not cancelled."""
        check_parameter_count(observer, 1, "An observer must take one parameter, the observation")
        self._observers.append(observer)
        return observer

    def dispatcher(
        self, *, allow_eval: bool = False, workspaces: WorkspaceLookup | None = None
    ) -> Dispatcher:
        """A dispatcher for these tools. `workspaces` replaces the box's own."""
        check_seconds("box.deadline", self.deadline, codes.BAD_TOOL)
        options = DispatchOptions(
            workspaces=workspaces or self._workspaces,
            allow_eval=allow_eval,
            deadline=self.deadline,
            slow_after=self.slow_after,
            envelope=self.envelope,
        )
        return Dispatcher(self._tools, self._codes, options, self._observers)

    def server(
        self,
        authenticator: Authenticator,
        *,
        allow_eval: bool = False,
        workspaces: WorkspaceLookup | None = None,
    ) -> ToolServer:
        """An MCP server with these tools, not yet connected to a transport. `workspaces` replaces the box's own."""
        info = OwnInfo(
            implementation=Implementation(self.name, self.version),
            capabilities=self._features.capabilities(is_dynamic=self.dynamic),
            instructions=self.instructions,
        )
        server = ToolServer(
            info,
            self.dispatcher(allow_eval=allow_eval, workspaces=workspaces),
            authenticator,
            self._features,
            self._lifespans,
            self._driven,
        )
        self._servers.add(server)
        return server

    def client(self, **options: "Unpack[ClientOptions]") -> "AbstractAsyncContextManager[BoxClient]":
        """Connect a client to this box in memory, to test it: `async with box.client(trust="direct") as client`.

        `ClientOptions` describes the options. The caller is anonymous if none of `trust`, `user_id`, `workspace` and
        `session_id` is given. Otherwise `trust` is `direct` by default.
        """
        from holdfast.toolkit.client import ClientOptions, connect

        known = ClientOptions.__annotations__
        if unknown := [name for name in options if name not in known]:
            raise TypeError(f"A client has no option {unknown[0]!r}. The options are: {', '.join(known)}.")
        return connect(self, cast("ClientOptions", _without_none(options)))

    def http_app(self, **options: "Unpack[HttpAppOptions]") -> "BoxApp":
        """This box as an ASGI application: `app.mount("/tools", box.http_app(auth=Bearer(token)))`.

        `HttpAppOptions` describes the options. Without `auth`, it serves only programs on this machine.
        """
        from holdfast.toolkit.http_app import BoxApp, HttpAppOptions

        known = HttpAppOptions.__annotations__
        if unknown := [name for name in options if name not in known]:
            raise TypeError(f"http_app has no option {unknown[0]!r}. The options are: {', '.join(known)}.")
        return BoxApp(self, cast("HttpAppOptions", _without_none(options)))

    def manifest(self) -> dict[str, Any]:
        """Describe every tool, including eval tools, with its schema and error codes, and explain each code.

        Resources, templates and prompts are described as clients see them.
        """
        manifest = _build_manifest(self.name, self.version, self._tools.values()) | self._features.manifest()
        feature_codes = {code.name: code for tool in self._features.tools() for code in tool.codes}
        manifest["codes"] |= {name: _describe_code(code) for name, code in feature_codes.items()}
        manifest["codes"] = dict(sorted(manifest["codes"].items()))
        return manifest

    async def dispose(self) -> None:
        """Dispose of every driven session."""
        for driven in self._driven:
            await driven.dispose_all()

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Run the command line: serve on stdio or `--http HOST:PORT`, or print the `manifest`."""
        from holdfast.toolkit.main import main

        main(self, arguments)


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given: None means that an option is left out."""
    return {name: value for name, value in options.items() if value is not None}


def _one_of(option: str, value: T, allowed: tuple[T, ...]) -> T:
    """The value of an option; raises BAD_TOOL when it is not allowed."""
    if value not in allowed:
        choices = " or ".join(f'"{choice}"' for choice in allowed)
        raise HoldfastError(codes.BAD_TOOL, f"{option} must be {choices}, not {value!r}.")
    return value


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
        "output_schema": tool.output_schema,
        "codes": [code.name for code in tool.codes],
    }


def _describe_code(code: Code) -> dict[str, Any]:
    return {"http": code.http_status, "retryable": code.retryable, "hint": code.hint}
