"""An entry: a server as a config file, an application or a client describes it."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from holdfast.model.json import Json
from holdfast.model.server import Http, InProcess, Lifetime, ServerSpec, Source, Sse, Stdio

# Keys that grant something. They have an effect in entries from `TRUSTED_SOURCES`: a project or a client cannot grant itself anything.
TRUSTED_SOURCE_KEYS = (
    "trust_level",
    "lifetime",
    "network",
    "readable",
    "writable",
    "cwd",
    "asks",
    "pin_tools",
    "folders",
)
# The keys of `TRUSTED_SOURCE_KEYS` that also work in a project's entry: the user sees them when approving the server as confined.
APPROVED_KEYS = ("network", "readable")
COPY_HELP = (
    'copy the entry to your own list of servers (the setting servers.user_file), with "confined": true: without this key, '
    "the server runs with your rights"
)
ASKS_HELP = (
    '"asks" says which requests the server may send to its client: "all", "none", or a list of "roots", "sampling" and '
    '"elicitation".'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """A server as a config file, an application or a client's request describes it, before validation."""

    name: str
    source: Source
    origin: str
    """The path of the file, or another description of where the entry comes from."""
    value: Json = field(repr=False)
    is_in_process: bool = False
    """Whether the server is a toolbox that runs in the application's process. Then `value` has no command and no URL."""

    @property
    def digest(self) -> str:
        """A hash of the entry and its origin: it changes if the entry is edited or moved to another file."""
        text = json.dumps([self.origin, self.name, self.value], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def server_identity(spec: ServerSpec) -> str:
    """A hash of a server's origin, name, and command or address as written (`${VAR}`). It identifies the server.

    Its `env`, its headers and the values of `${VAR}` are left out: they change when a token is renewed.
    """
    if spec.identity:
        return spec.identity
    match spec.transport:
        case Stdio(command=command, args=args):
            words = [command, *args]
        case Http(url=url) | Sse(url=url):
            words = [url]
        case InProcess(service=service):
            words = [service]
    text = json.dumps([spec.origin, spec.name, words])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class EntryFields(msgspec.Struct, rename={"kind": "type"}):
    """The keys of an entry. Other keys (`timeout`, `autoApprove`, …) are ignored: other MCP clients use them.

    In an application's entry, the keys of `AppFields` also work, and `AppFields.pin_tools` counts instead of the one here.
    """

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    url: str | None = None
    kind: Literal["stdio", "http", "streamable-http", "streamableHttp", "sse"] | None = None
    headers: dict[str, str] = {}
    trust_level: str | None = None
    confined: bool = False
    lifetime: Lifetime = Lifetime.SESSION
    network: list[str] = []
    readable: list[str] = []
    writable: list[str] = []
    cwd: str = ""
    tools: Literal["all", "none"] | list[str] = "all"
    asks: Literal["all", "none"] | list[Literal["roots", "sampling", "elicitation"]] = "none"
    disabled: bool = False
    pin_tools: bool = True
    folders: list[str] = []
    era: Literal["handshake", "modern"] | None = None


class AppFields(msgspec.Struct):
    """What is different in an entry that an application passes to `Host` or `session`.

    It has the further keys `lazy`, `warm` and `timeout`, and `pin_tools` has another default.
    """

    lazy: bool = False
    warm: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    pin_tools: bool = False
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
