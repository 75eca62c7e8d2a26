"""Opens a connection of whatever kind a server is reached by, and tells the server who is calling."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from holdfast.connect.asks import Asks
from holdfast.connect.connection import Connection
from holdfast.connect.inprocess import MakeService, open_in_process
from holdfast.connect.remote import Remote
from holdfast.connect.scope import Scope
from holdfast.connect.stdio import open_stdio
from holdfast.connect.terms import Terms
from holdfast.model.aliases import NO_ALIASES, Aliases
from holdfast.model.carriers import context_meta
from holdfast.model.json import JsonObject
from holdfast.model.ports import Door
from holdfast.model.server import Http, InProcess, ServerSpec, Sse, Stdio
from holdfast.sandbox.keeper import Keeper


def _no_door(scope: Scope) -> Door | None:
    return None


def _nobody(spec: ServerSpec, scope: Scope | None) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """A host's way to its servers."""

    keeper: Keeper
    remote: Remote
    terms: Terms
    aliases: Aliases = NO_ALIASES
    door: Callable[[Scope], Door | None] = _no_door
    tools_changed: Callable[[ServerSpec, Scope | None], None] = _nobody
    builtins: Mapping[str, MakeService] = field(default_factory=dict[str, MakeService])
    """What stands behind the servers that live in this process."""

    def open(self, spec: ServerSpec, scope: Scope | None) -> AbstractAsyncContextManager[Connection]:
        """A connection for a scope, or for nobody in particular (a shared server, a look at its tools)."""
        door = self.door(scope.home) if scope is not None else None
        asks = Asks(spec, scope, door, lambda: self.tools_changed(spec, scope))
        match spec.transport:
            case Stdio():
                meta = _meta(scope, self.aliases, local=True)
                return open_stdio(spec, scope, asks=asks, meta=meta, keeper=self.keeper, terms=self.terms)
            case Http() | Sse():
                meta = _meta(scope, self.aliases, local=False)
                return self.remote.open(spec, scope, asks=asks, meta=meta, terms=self.terms)
            case InProcess(service=service):
                assert scope is not None, "a built-in server belongs to somebody"
                made = self.builtins[service](scope.context, door)
                return open_in_process(spec, made, asks=asks, terms=self.terms)


def _meta(scope: Scope | None, aliases: Aliases, *, local: bool) -> JsonObject:
    if scope is None:
        return {}
    context = scope.context
    return {**aliases.meta(context, context.cwd if local else ""), **context_meta(context)}
