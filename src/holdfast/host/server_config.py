"""The servers that an application passes to `Host` or to a session."""

import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from inspect import isawaitable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict, Union, cast, runtime_checkable

import msgspec

from holdfast.connect.scope import OpenService
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.server import Source, app_service
from holdfast.model.visible_text import to_line
from holdfast.resolve.inputs import APP_ORIGIN
from holdfast.resolve.server_entry import ServerEntry
from holdfast.resolve.validate import find_mistake

if TYPE_CHECKING:
    from holdfast.model.context import SessionContext
    from holdfast.toolkit.toolbox import Toolbox
    from holdfast.wire.mcp.server import Service

log = logging.getLogger(__name__)


@runtime_checkable
class ServiceSource(Protocol):
    """A server in the application's process that is not a toolbox, such as `holdfast.testing.FakeServer`."""

    def open_service(self, context: "SessionContext") -> "AbstractAsyncContextManager[Service]":
        """Open the server for one session."""
        ...


InProcessServer: TypeAlias = Union["Toolbox", "Callable[[], Toolbox]", ServiceSource]
"""A server in the application's process: a toolbox, a function that makes one for each session, or a `ServiceSource`."""


class ServerConfig(TypedDict, total=False):
    """A server, as an application describes it. It has a `command`, a `url` or a `toolbox`."""

    command: str | Path
    """The program to start."""
    args: Sequence[str | Path]
    env: Mapping[str, str]
    cwd: str | Path
    """The folder to start it in. By default, an empty folder, or the session's folder for a command such as `./server` or `node server.js`."""
    url: str
    """The address of a remote server."""
    headers: Mapping[str, str]
    type: Literal["stdio", "http", "streamable-http", "streamableHttp", "sse"]
    """The transport. By default, stdio for a `command`, and streamable HTTP for a `url`."""
    toolbox: InProcessServer
    """A toolbox, a function that makes one for each session, or a `ServiceSource`. Its tools run in this process."""
    tools: Literal["all", "none"] | Sequence[str]
    """The tools to offer. By default, all of them."""
    lifetime: Literal["run", "session", "host"]
    """For how long its process or connection is kept: for a run, for a session, or for the host, whose sessions share it."""
    trust_level: Literal["direct", "sandboxed"]
    """The lowest trust of a session that may use it."""
    confined: bool
    """Whether it runs confined in every session."""
    readable: Sequence[str | Path]
    writable: Sequence[str]
    network: Sequence[str]
    asks: Literal["all", "none"] | Sequence[Literal["roots", "sampling", "elicitation"]]
    """The requests that it may send to the session. A confined server needs this for each kind; a remote server for `roots`, and in a
    sandboxed session for each kind."""
    disabled: bool
    lazy: bool
    """Whether it is started by the first call of one of its tools, and not when the session is opened."""
    warm: int
    """How many of its processes to start in advance, so that sessions open faster. For servers that use the toolkit."""
    pin_tools: bool
    """Whether a tool that changes after the first use must be approved by a person."""
    timeout: float
    """How many seconds a call may take. By default, what the setting `links.call_seconds` says."""
    era: Literal["handshake", "modern"]
    """The only era of MCP to use. By default, the newest that the server supports."""


ServerConfigs: TypeAlias = Mapping[
    str, "ServerConfig | Mapping[str, object] | Toolbox | Callable[[], Toolbox] | ServiceSource"
]
"""Servers by name: `{"counter": {"command": "python", "args": ["counter.py"]}}`, or a toolbox: `{"counter": toolbox}`."""

_KEYS = frozenset(ServerConfig.__annotations__)
_OTHER_NAMES = {
    "cmd": "command",
    "environment": "env",
    "endpoint": "url",
    "server_url": "url",
    "box": "toolbox",
}
"""Keys that other libraries use, and the key that is meant. `get_close_matches` would find another key, or none."""
_FILE_KEYS = ("mcpServers", "servers")
"""The keys that contain the servers in the config files of MCP clients."""
_EXAMPLE = '{"name": {"command": "…"}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class AppServers:
    """Checked servers of an application, by name."""

    entries: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)
    """Plain JSON, also for the toolboxes."""
    services: Mapping[str, OpenService] = field(default_factory=dict[str, OpenService], repr=False)
    """How to open the toolboxes, by the name of their service."""
    kept_toolboxes: frozenset[str] = frozenset()
    """The names of the toolboxes that keep their state when a session ends: one object for all sessions."""

    @property
    def toolbox_names(self) -> frozenset[str]:
        """The names of the servers that are toolboxes."""
        return frozenset(name for name in self.entries if app_service(name) in self.services)


NO_APP_SERVERS = AppServers()


def parse_servers(servers: ServerConfigs) -> AppServers:
    """Check an application's servers, and copy them. Paths become strings."""
    entries: dict[str, Json] = {}
    services: dict[str, OpenService] = {}
    kept_toolboxes: set[str] = set()
    if not isinstance(cast("object", servers), Mapping):
        raise _bad_servers(f"it is a value of the type {type(servers).__name__}")
    if any(isinstance(cast("object", servers.get(key)), str) for key in ("command", "url")):
        raise _bad_servers("it is one server without a name")
    for name, value in cast("Mapping[object, object]", servers).items():
        config = cast("Mapping[str, object]", value if isinstance(value, Mapping) else {"toolbox": value})
        if name in _FILE_KEYS and all(isinstance(member, Mapping) for member in config.values()):
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"`servers` must be like {_EXAMPLE}. Give it what is inside {name!r}: servers=config[{name!r}].",
            )
        if unknown := [key for key in config if key not in _KEYS]:
            raise _unknown_key(name, unknown[0])
        if "toolbox" in config:
            toolbox = _check_toolbox(name, config["toolbox"])
            services[app_service(str(name))] = partial(open_toolbox, toolbox, str(name))
            if _keeps_state(toolbox):
                kept_toolboxes.add(str(name))
        entries[str(name)] = _to_json(name, {key: config[key] for key in config if key != "toolbox"})
        _check_entry(str(name), entries[str(name)], is_toolbox="toolbox" in config)
    return AppServers(entries=entries, services=services, kept_toolboxes=frozenset(kept_toolboxes))


@asynccontextmanager
async def open_toolbox(
    toolbox: InProcessServer, name: str, context: "SessionContext"
) -> "AsyncIterator[Service]":
    """Open a toolbox for one session: its tools get the session's context, and its lifespan runs as long as the connection."""
    async with AsyncExitStack() as stack:
        what = (
            f"`{_name_of(toolbox)}.open_service`"
            if isinstance(toolbox, ServiceSource)
            else f"The function {_name_of(toolbox)}, which makes its toolbox,"
        )
        try:
            opened = _make_service(toolbox, context)
            what = "Its lifespan"
            service = await stack.enter_async_context(opened)
        except HoldfastError:
            raise
        except Exception as error:  # the error's text may contain a secret, or data of another session
            log.exception("could not start %s", to_line(name), extra={"server": name})
            raise HoldfastError(
                codes.BAD_TOOL,
                f"Could not start {name!r}: {what} raised {type(error).__name__}. The application's log has the traceback.",
            ) from None
        yield service


def _make_service(
    toolbox: InProcessServer, context: "SessionContext"
) -> "AbstractAsyncContextManager[Service]":
    """The service of a toolbox for one session. If `toolbox` is a function, call it to make the toolbox."""
    from holdfast.toolkit.in_process import open_server
    from holdfast.toolkit.toolbox import Toolbox

    if isinstance(toolbox, ServiceSource):
        return toolbox.open_service(context)
    made = cast("object", toolbox if isinstance(toolbox, Toolbox) else toolbox())
    if not isinstance(made, Toolbox):
        kind = type(made).__name__
        what = "is a coroutine function" if isawaitable(made) else f"returned a value of the type {kind}"
        if isawaitable(made):
            _close(made)
        raise HoldfastError(codes.BAD_TOOL, f"{_name_of(toolbox)} must return a Toolbox, but it {what}.")
    return open_server(made, context)


def _name_of(toolbox: object) -> str:
    return getattr(toolbox, "__qualname__", type(toolbox).__name__)


def _close(awaitable: object) -> None:
    """Close a coroutine that is not awaited."""
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()


def _check_entry(name: str, value: Json, *, is_toolbox: bool) -> None:
    """Raise if a value is wrong: the application has a mistake."""
    entry = ServerEntry(
        name=name, source=Source.APP, origin=APP_ORIGIN, value=value, is_in_process=is_toolbox
    )
    if mistake := find_mistake(entry):
        raise HoldfastError(codes.BAD_ARGUMENT, f"servers: {name!r} cannot be used. {mistake}")


def _check_toolbox(name: object, toolbox: object) -> Any:
    """The toolbox or the function. Raise if it is neither."""
    from holdfast.toolkit.toolbox import Toolbox

    if isinstance(toolbox, Toolbox | ServiceSource) or (callable(toolbox) and not isinstance(toolbox, type)):
        return toolbox
    raise HoldfastError(
        codes.BAD_ARGUMENT,
        f"servers: {name!r} must be like {{'command': '…'}} or {{'url': '…'}}, a Toolbox, or a function that returns a "
        f"Toolbox; not a value of the type {type(toolbox).__name__}.",
    )


def _keeps_state(toolbox: object) -> bool:
    from holdfast.toolkit.toolbox import Toolbox

    return isinstance(toolbox, ServiceSource) or (isinstance(toolbox, Toolbox) and not toolbox.loses_state)


def _unknown_key(name: object, key: object) -> HoldfastError:
    """The error for an unknown key, with the key that was probably meant."""
    other = _OTHER_NAMES.get(str(key).lower())
    close = [other] if other else get_close_matches(str(key)[:80], sorted(_KEYS), n=1)
    if key == "transport":
        raise HoldfastError(
            codes.BAD_ARGUMENT,
            f"servers: {name!r} has an unknown key 'transport'. Leave it out: a 'command' is started, and a 'url' is "
            "streamable HTTP; for SSE, write 'type': 'sse'.",
        )
    suggestion = f" Did you mean {close[0]!r}?" if close else f" The keys are: {', '.join(sorted(_KEYS))}."
    return HoldfastError(
        codes.BAD_ARGUMENT, f"servers: {name!r} has an unknown key {str(key)[:80]!r}.{suggestion}"
    )


def _to_json(name: object, config: Mapping[str, object]) -> Json:
    """A copy of the configuration as plain JSON. Raise if that is not possible."""
    if not isinstance(name, str):
        raise _bad_servers(f"{name!r} is not a name")
    for key, value in config.items():
        if isinstance(value, float) and not math.isfinite(value):  # JSON has no such number
            raise HoldfastError(
                codes.BAD_ARGUMENT, f"servers: {name!r}: {key!r} must be finite, not {value}."
            )
    try:
        return msgspec.json.decode(msgspec.json.encode(config, enc_hook=_encode_value), type=dict[str, Any])
    except (TypeError, ValueError) as error:
        raise _bad_servers(f"{name!r}: {error}") from None


def _encode_value(value: Any) -> Any:
    match value:
        case PurePath():
            return str(value)
        case Mapping():
            return {**cast("Mapping[str, object]", value)}
        case _:
            raise TypeError(f"a value of the type {type(value).__name__} is not supported")


def _bad_servers(why: str) -> HoldfastError:
    return HoldfastError(codes.BAD_ARGUMENT, f"`servers` must be like {_EXAMPLE}: {why}.")
