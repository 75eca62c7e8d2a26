"""The messages that editors send: the fields Holdfast reads. Unknown fields, `_meta` among them, are ignored."""

from typing import Any, TypeVar

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.wire.frame import Notification, Request

T = TypeVar("T")


def decode_params(message: Request | Notification, kind: type[T]) -> T:
    """Decode a message's parameters; raises BAD_ARGUMENT when they do not have the shape of `kind`."""
    try:
        return msgspec.json.decode(message.params, type=kind)
    except msgspec.ValidationError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{message.method} cannot be read: {error}.") from None


class Implementation(msgspec.Struct):
    """The name and version that a client gives itself."""

    name: str = ""
    version: str = ""


class FileSystem(msgspec.Struct, rename="camel"):
    """Whether the editor reads and writes files for the agent."""

    read_text_file: bool = False
    write_text_file: bool = False


class Elicitation(msgspec.Struct):
    """How the editor can ask its user for a server: with a form, or by opening a URL."""

    form: dict[str, Json] | None = None
    url: dict[str, Json] | None = None


class ClientCapabilities(msgspec.Struct, rename="camel"):
    """What the editor supports."""

    fs: FileSystem = msgspec.field(default_factory=FileSystem)
    session: dict[str, Json] | None = None
    elicitation: Elicitation | None = None


class Initialize(msgspec.Struct, rename="camel"):
    """The parameters of `initialize`."""

    protocol_version: int
    client_capabilities: ClientCapabilities = msgspec.field(default_factory=ClientCapabilities)
    client_info: Implementation | None = None


class NewSession(msgspec.Struct, rename="camel"):
    """The parameters of `session/new`. Servers and directories are checked later, one by one."""

    cwd: Any
    mcp_servers: list[Any] | None
    additional_directories: list[Any] | None = None


class ExistingSession(msgspec.Struct, rename="camel"):
    """The parameters of `session/load` and `session/resume`."""

    session_id: str
    cwd: Any
    mcp_servers: list[Any] | None = None
    additional_directories: list[Any] | None = None


class SessionParams(msgspec.Struct, rename="camel"):
    """The parameters of a method that names only a session."""

    session_id: str


class Prompt(msgspec.Struct, rename="camel"):
    """The parameters of `session/prompt`."""

    session_id: str
    prompt: list[dict[str, Any]]


class ListSessions(msgspec.Struct, rename="camel"):
    """The parameters of `session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class SetMode(msgspec.Struct, rename="camel"):
    """The parameters of `session/set_mode`."""

    session_id: str
    mode_id: str


class SetConfigOption(msgspec.Struct, rename="camel"):
    """The parameters of `session/set_config_option`."""

    session_id: str
    config_id: str
    value: Any = None


class PermissionOutcome(msgspec.Struct, rename="camel"):
    """The option that the user chose."""

    outcome: str
    option_id: str = ""


class PermissionAnswer(msgspec.Struct):
    """The answer to `session/request_permission`."""

    outcome: PermissionOutcome


class ElicitationAnswer(msgspec.Struct):
    """The answer to `elicitation/create`."""

    action: str
    content: dict[str, Json] | None = None


class FileContent(msgspec.Struct):
    """The answer to `fs/read_text_file`."""

    content: str
