"""What editors send, as far as we read it; everything else in a message is left alone."""

from typing import Any

import msgspec

from holdfast.model.json import Json


class Implementation(msgspec.Struct):
    """A program, by its own account."""

    name: str = ""
    version: str = ""


class FileSystem(msgspec.Struct, rename="camel"):
    """Which files the editor reads and writes for us."""

    read_text_file: bool = False
    write_text_file: bool = False


class Elicitation(msgspec.Struct):
    """How the editor asks its person for a server: by a form, by sending them to an address."""

    form: dict[str, Json] | None = None
    url: dict[str, Json] | None = None


class ClientCapabilities(msgspec.Struct, rename="camel"):
    """What the editor can do."""

    fs: FileSystem = msgspec.field(default_factory=FileSystem)
    session: dict[str, Json] | None = None
    elicitation: Elicitation | None = None


class Initialize(msgspec.Struct, rename="camel"):
    """The first message."""

    protocol_version: int
    client_capabilities: ClientCapabilities = msgspec.field(default_factory=ClientCapabilities)
    client_info: Implementation | None = None


class NewSession(msgspec.Struct, rename="camel"):
    """A new conversation in a folder. Entries are checked one by one, so they are taken as they come."""

    cwd: Any
    mcp_servers: list[Any] | None
    additional_directories: list[Any] | None = None


class OldSession(msgspec.Struct, rename="camel"):
    """A conversation to go on with."""

    session_id: str
    cwd: Any
    mcp_servers: list[Any] | None = None
    additional_directories: list[Any] | None = None


class Named(msgspec.Struct, rename="camel"):
    """A message about one session."""

    session_id: str


class Prompt(msgspec.Struct, rename="camel"):
    """The user's words."""

    session_id: str
    prompt: list[dict[str, Any]]


class ListSessions(msgspec.Struct, rename="camel"):
    """Which sessions to list."""

    cwd: str | None = None
    cursor: str | None = None


class SetMode(msgspec.Struct, rename="camel"):
    """Another mode for a session."""

    session_id: str
    mode_id: str


class SetConfigOption(msgspec.Struct, rename="camel"):
    """Another value for one of a session's options."""

    session_id: str
    config_id: str
    value: Any = None


class PermissionOutcome(msgspec.Struct, rename="camel"):
    """What the person chose."""

    outcome: str
    option_id: str = ""


class PermissionAnswer(msgspec.Struct):
    """The editor's answer when asked for permission."""

    outcome: PermissionOutcome


class Elicited(msgspec.Struct):
    """What the person answered to a server's question."""

    action: str
    content: dict[str, Json] | None = None


class FileText(msgspec.Struct):
    """A file as the editor has it."""

    content: str
