"""What the servers and calls of a session need from its host."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.connect.argument_check import ArgumentChecker
from holdfast.connect.connection import ConnectOptions
from holdfast.connect.link_pool import LinkPool
from holdfast.model.context import SessionContext
from holdfast.model.resolution import Resolution
from holdfast.model.server import ServerSpec
from holdfast.resolve.screen_tools import ScreenedTools
from holdfast.session.server_tools import Recall
from holdfast.tracing import Tracer
from holdfast.wire.loop_throttle import LoopThrottle
from holdfast.wire.mcp.tools import Tool

Resolve = Callable[[SessionContext], Awaitable[Resolution]]
Screen = Callable[[ServerSpec, Sequence[Tool], LoopThrottle], Awaitable[ScreenedTools]]


class MaskSecretFiles(Protocol):
    """Reads the secrets in Holdfast's own files that have changed, so that they are masked. See `ServerDeps.mask_secret_files`."""

    def __call__(self, result_size: int, /, *, is_only_call: bool) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDeps:
    """What a session's servers and calls need from the host."""

    links: LinkPool
    options: ConnectOptions
    arguments: ArgumentChecker
    resolve: Resolve
    """Resolves the session's servers again."""
    recall: Recall
    """Returns the tools that a lazy server listed last, if they are known."""
    screen: Screen
    """Screens the tools that a server lists."""
    read_log: Callable[[str, str], Awaitable[str]]
    """Reads the log of a server, by the id of the session and the name of the server."""
    mask_secret_files: MaskSecretFiles
    """Called with the size of each result before it is stored, because the tool may have read Holdfast's own files. With `is_only_call`, no
    other call of the host is waiting for its result, so no other call can share this check of the files."""
    stage_seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """How long each step of opening the session took, before its servers are started."""
    tracer: Tracer | None = None
    """Traces what the session does; None if tracing is off."""
    describe_missing: Callable[[str], str] = lambda tool: ""
    """How a session gets the built-in server of this tool; empty if the tool is not of a built-in server."""
