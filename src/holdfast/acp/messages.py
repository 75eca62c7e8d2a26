"""The messages that editors send, with the fields that Holdfast reads. Other fields, such as `_meta`, are ignored."""

from typing import Any, TypeVar

import msgspec

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.visible_text import to_line
from holdfast.wire.messages import Notification, Request
from holdfast.wire.strict_json import make_decoder

T = TypeVar("T")


def decode_params(message: Request | Notification, kind: type[T]) -> T:
    """Decode a message's params. Raise BAD_ARGUMENT if they do not match `kind`."""
    try:
        return make_decoder(kind)(message.params)
    except msgspec.ValidationError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"{message.method}: invalid params: {error}.") from None


_MAX_CLIENT_NAME = 60


class FileSystemCapabilities(msgspec.Struct, rename="camel"):
    """Whether the editor can read and write files for the agent."""

    read_text_file: bool = False
    write_text_file: bool = False


class ElicitationCapabilities(msgspec.Struct):
    """How the editor can pass a server's question to the user: as a form, as a URL to open, or both."""

    form: dict[str, Json] | None = None
    url: dict[str, Json] | None = None


class ClientCapabilities(msgspec.Struct, rename="camel"):
    """What the editor supports."""

    fs: FileSystemCapabilities = msgspec.field(default_factory=FileSystemCapabilities)
    terminal: bool = False
    session: dict[str, Json] | None = None
    elicitation: ElicitationCapabilities | None = None
    subagents: dict[str, Json] | None = None


class InitializeParams(msgspec.Struct, rename="camel"):
    """The params of `initialize`."""

    protocol_version: int
    client_capabilities: ClientCapabilities = msgspec.field(default_factory=ClientCapabilities)
    client_info: Any = None

    @property
    def client_name(self) -> str:
        """The editor's name for itself, if it sent one."""
        match self.client_info:
            case {"name": str(name)}:
                return to_line(name)[:_MAX_CLIENT_NAME]
            case _:
                return ""


class NewSessionParams(msgspec.Struct, rename="camel"):
    """The params of `session/new`."""

    cwd: Any
    mcp_servers: list[Any] | None
    additional_directories: list[Any] | None = None


class LoadSessionParams(msgspec.Struct, rename="camel"):
    """The params of `session/load` and `session/resume`."""

    session_id: str
    cwd: Any
    mcp_servers: list[Any] | None = None
    additional_directories: list[Any] | None = None


class SessionIdParams(msgspec.Struct, rename="camel"):
    """The params of a method that takes only a session id."""

    session_id: str


class PromptParams(msgspec.Struct, rename="camel"):
    """The params of `session/prompt`."""

    session_id: str
    prompt: list[dict[str, Any]]


class ListSessionsParams(msgspec.Struct, rename="camel"):
    """The params of `session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class SetModeParams(msgspec.Struct, rename="camel"):
    """The params of `session/set_mode`."""

    session_id: str
    mode_id: str


class SetConfigOptionParams(msgspec.Struct, rename="camel"):
    """The params of `session/set_config_option`."""

    session_id: str
    config_id: str
    value: Any = None


class PermissionOutcome(msgspec.Struct, rename="camel"):
    """The option that the user chose."""

    outcome: str
    option_id: str = ""


class PermissionResponse(msgspec.Struct):
    """The response to `session/request_permission`."""

    outcome: PermissionOutcome


class ElicitationResponse(msgspec.Struct):
    """The response to `elicitation/create`."""

    action: str
    content: dict[str, Json] | None = None


class ReadFileResponse(msgspec.Struct):
    """The response to `fs/read_text_file`."""

    content: str
