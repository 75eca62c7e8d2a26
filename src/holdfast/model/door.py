"""How a session reaches its user.

A *door* is an editor (`holdfast acp`), a terminal (`holdfast chat`), an MCP client (`holdfast up`) or an application's functions.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from holdfast.model.call import ToolCall
from holdfast.model.event import Decision
from holdfast.model.event_text import FileChange
from holdfast.model.json import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorCapabilities:
    """What a door supports."""

    permission: bool = False
    elicitation: bool = False
    elicitation_url: bool = False
    """With `elicitation`: whether it can also show the address of a page that the user should open."""
    sampling: bool = False
    read_files: bool = False
    write_files: bool = False
    terminal: bool = False
    """Whether it is a `CommandRunner`."""
    name: str = ""
    """Its name in messages to the user, such as the editor's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionQuestion:
    """Asks the user whether a call may run."""

    call: ToolCall
    """The call, with the user's secrets masked in its arguments."""
    title: str
    """Names the tool, its server and where it runs. A door must show the whole title."""
    can_remember: bool
    """Whether to offer *always allow*. The answer to a question that an `ask` rule requires cannot be remembered."""
    remembers_arguments: bool = False
    """Whether *always allow* is remembered for these arguments only, as for a shell command."""
    always_scope: str = "in this session"
    """What *always allow* covers. A door must show it with this answer: `Always allow in this session`."""
    change: FileChange | None = None
    """What the call would change in a file, if that is known. Show it instead of the arguments."""

    @property
    def choices(self) -> dict[Decision, str]:
        """The answers that a door offers, with their labels."""
        always = {Decision.ALLOW_ALWAYS: f"Always allow {self.always_scope}"} if self.can_remember else {}
        return {Decision.ALLOW_ONCE: "Allow once", **always, Decision.REJECT: "Reject"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """A shell command to run."""

    text: str
    cwd: str
    seconds: float
    """The command is ended after this time."""
    output_bytes: int
    """How many bytes of the output to keep."""
    variables: tuple[str, ...] = ()
    """The names of the environment variables that the command gets in a terminal of an editor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended, and what it wrote."""

    output: str
    exit_code: int | None = None
    """None if a signal or the time limit ended the command."""
    timed_out: bool = False
    truncated: bool = False
    """Whether the output is not complete."""


@runtime_checkable
class CommandRunner(Protocol):
    """A door that can run a command where the user sees it, such as in a terminal of the editor."""

    async def run_command(self, command: ShellCommand) -> CommandResult:
        """Run a command and wait until it ends. If the caller is cancelled, the command is ended."""
        ...


class Door(Protocol):
    """An editor, a terminal, an MCP client or an application, as seen by a session."""

    @property
    def capabilities(self) -> DoorCapabilities:
        """What this door supports. The session calls no method that needs more than that."""
        ...

    async def request_permission(self, question: PermissionQuestion) -> Decision:
        """Ask the user whether a call may run."""
        ...

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the user for input that a server requests. The params and the result are those of MCP."""
        ...

    async def sample(self, params: JsonObject) -> JsonObject:
        """Let the client's model answer a sampling request of a server. The params and the result are those of MCP."""
        ...

    async def read_text(self, path: str) -> str:
        """Read a file through the editor, including unsaved changes; raise NO_FILE if the editor does not have it."""
        ...

    async def write_text(self, path: str, text: str) -> None:
        """Write a file through the editor."""
        ...
