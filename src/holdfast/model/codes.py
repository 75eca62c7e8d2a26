"""The registry of error codes. Every error has a code with a stable name."""

import re
from dataclasses import dataclass

_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A kind of error: a name for programs, a hint for users, an HTTP status and a JSON-RPC error code."""

    name: str
    hint: str
    http_status: int
    rpc_code: int = -32603
    retryable: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"The name of a code must be UPPER_SNAKE_CASE, not {self.name!r}.")


_registry: dict[str, Code] = {}


def register(code: Code) -> Code:
    """Add a code to the registry; its name must be new."""
    if code.name in _registry:
        raise ValueError(f"The code {code.name} is already registered.")
    _registry[code.name] = code
    return code


def find(name: str) -> Code | None:
    """The code with this name, if it is registered."""
    return _registry.get(name)


def registered() -> tuple[Code, ...]:
    """Every registered code, sorted by name."""
    return tuple(_registry[name] for name in sorted(_registry))


# JSON-RPC
PARSE_ERROR = register(
    Code(
        name="PARSE_ERROR", http_status=400, rpc_code=-32700, hint="Send one JSON object per line, in UTF-8."
    )
)
INVALID_REQUEST = register(
    Code(
        name="INVALID_REQUEST",
        http_status=400,
        rpc_code=-32600,
        hint="Send a JSON-RPC 2.0 message: no batch, no bare value.",
    )
)
METHOD_NOT_FOUND = register(
    Code(
        name="METHOD_NOT_FOUND",
        http_status=404,
        rpc_code=-32601,
        hint="Check the method's name and the peer's capabilities.",
    )
)
BAD_ARGUMENT = register(
    Code(
        name="BAD_ARGUMENT",
        http_status=400,
        rpc_code=-32602,
        hint="Correct the arguments in the message and call again.",
    )
)
INTERNAL_ERROR = register(
    Code(
        name="INTERNAL_ERROR",
        http_status=500,
        rpc_code=-32603,
        hint="This is a bug; the log has the details.",
    )
)
CANCELLED = register(
    Code(name="CANCELLED", http_status=499, rpc_code=-32800, hint="The caller cancelled the request.")
)
TIMEOUT = register(
    Code(
        name="TIMEOUT",
        http_status=504,
        rpc_code=-32001,
        retryable=True,
        hint="The peer did not answer in time; raise the timeout, or request less.",
    )
)
BUSY = register(
    Code(
        name="BUSY",
        http_status=429,
        rpc_code=-32004,
        retryable=True,
        hint="Too many requests are in flight; wait until some have finished.",
    )
)
TOO_LARGE = register(
    Code(
        name="TOO_LARGE",
        http_status=413,
        rpc_code=-32600,
        hint="Send less at once, or raise the limits under [wire] in the settings.",
    )
)
CONNECTION_CLOSED = register(
    Code(
        name="CONNECTION_CLOSED",
        http_status=502,
        rpc_code=-32005,
        retryable=True,
        hint="The peer closed the connection; connect again.",
    )
)
PEER_ERROR = register(
    Code(
        name="PEER_ERROR",
        http_status=502,
        hint="The peer answered with an error; its message has the reason.",
    )
)
BAD_ANSWER = register(
    Code(name="BAD_ANSWER", http_status=502, hint="The peer violated the protocol; report it to its author.")
)
UNSUPPORTED_VERSION = register(
    Code(
        name="UNSUPPORTED_VERSION",
        http_status=400,
        rpc_code=-32022,
        hint="The peers have no protocol version in common; update the older one.",
    )
)

# Settings, ids and context
BAD_SETTINGS = register(
    Code(
        name="BAD_SETTINGS",
        http_status=500,
        hint="Correct the setting in the message; `holdfast settings path` prints the path of the settings file.",
    )
)
BAD_TRUST = register(
    Code(name="BAD_TRUST", http_status=400, rpc_code=-32602, hint='Trust is "direct" or "sandboxed".')
)
BAD_ID = register(
    Code(name="BAD_ID", http_status=400, rpc_code=-32602, hint="Use an id exactly as Holdfast printed it.")
)
BAD_WORKSPACE = register(
    Code(
        name="BAD_WORKSPACE",
        http_status=400,
        rpc_code=-32602,
        hint="Give a slug (lower-case letters, digits, hyphens), a workspace's name, or an absolute path.",
    )
)
NO_CONTEXT = register(Code(name="NO_CONTEXT", http_status=403, hint="Call from inside a session."))

# The store
UNKNOWN_SESSION = register(
    Code(
        name="UNKNOWN_SESSION",
        http_status=404,
        rpc_code=-32002,
        hint="`holdfast sessions list` shows all sessions.",
    )
)
SESSION_EXISTS = register(
    Code(
        name="SESSION_EXISTS",
        http_status=409,
        rpc_code=-32602,
        hint="Use a new session id; an id can be used only once.",
    )
)
SESSION_HELD = register(
    Code(
        name="SESSION_HELD",
        http_status=409,
        rpc_code=-32003,
        retryable=True,
        hint="Close the session where it is open. A process that has ended releases its sessions.",
    )
)
KEY_REUSED = register(
    Code(
        name="KEY_REUSED",
        http_status=409,
        rpc_code=-32602,
        hint="Give each event its own event key; reuse a key only to retry the same event.",
    )
)
UNSTORABLE = register(
    Code(name="UNSTORABLE", http_status=400, rpc_code=-32602, hint="Send valid Unicode and plain JSON.")
)
STREAM_BROKEN = register(
    Code(
        name="STREAM_BROKEN",
        http_status=500,
        hint="Resolve the first error, then open a new appender and append the failed events with the same event keys.",
    )
)
BAD_CURSOR = register(
    Code(
        name="BAD_CURSOR",
        http_status=400,
        rpc_code=-32602,
        hint="Use the cursor of the previous page with the same query, or start again without a cursor.",
    )
)
STORE_CLOSED = register(
    Code(
        name="STORE_CLOSED",
        http_status=503,
        hint="The store was closed, usually because the host is shutting down; open it again.",
    )
)
STORE_BUSY = register(
    Code(
        name="STORE_BUSY",
        http_status=503,
        retryable=True,
        hint="Another process is using the store; try again.",
    )
)
STORE_FULL = register(
    Code(
        name="STORE_FULL",
        http_status=507,
        retryable=True,
        hint="Free some space on the disk, then try again.",
    )
)
STORE_READ_ONLY = register(
    Code(
        name="STORE_READ_ONLY",
        http_status=500,
        hint="Make the store's folder writable, or set `data_dir` to a writable folder.",
    )
)
STORE_UNREADABLE = register(
    Code(
        name="STORE_UNREADABLE",
        http_status=500,
        hint="Check the path and its permissions; `holdfast settings show` prints `data_dir`.",
    )
)
STORE_CORRUPT = register(
    Code(
        name="STORE_CORRUPT",
        http_status=500,
        hint="Keep the file, run `holdfast store check`, and restore a backup.",
    )
)
STORE_TOO_NEW = register(
    Code(
        name="STORE_TOO_NEW",
        http_status=500,
        hint="Update Holdfast; the data was written by a newer version.",
    )
)
STORE_FOREIGN = register(
    Code(
        name="STORE_FOREIGN",
        http_status=500,
        hint="Give the path of a Holdfast store, or a path that does not exist yet.",
    )
)
STORE_FAILED = register(
    Code(
        name="STORE_FAILED",
        http_status=500,
        hint="The disk failed; see the system log, then restart Holdfast.",
    )
)
FILE_EXISTS = register(
    Code(
        name="FILE_EXISTS",
        http_status=409,
        hint="Give the path of a file that does not exist yet; files are not overwritten.",
    )
)

# Context tokens
BAD_TOKEN = register(
    Code(
        name="BAD_TOKEN",
        http_status=401,
        rpc_code=-32000,
        hint="Send the context token that the host signed for this request; details.reason has the cause.",
    )
)
TOKEN_REPLAYED = register(
    Code(
        name="TOKEN_REPLAYED",
        http_status=409,
        rpc_code=-32000,
        hint="Sign a new token for every request; a token can be used for only one request that changes something.",
    )
)
BAD_KEY = register(
    Code(
        name="BAD_KEY",
        http_status=500,
        hint="Correct the file with the signing key or key set. If you delete a signing key, Holdfast creates a new one and existing tokens become invalid.",
    )
)

# Workspaces
BAD_FOLDER = register(
    Code(
        name="BAD_FOLDER",
        http_status=400,
        rpc_code=-32602,
        hint="Give the absolute path of an existing folder; Holdfast's own folders are not allowed.",
    )
)
UNKNOWN_WORKSPACE = register(
    Code(
        name="UNKNOWN_WORKSPACE",
        http_status=404,
        rpc_code=-32602,
        hint="`holdfast workspaces list` shows all workspaces.",
    )
)
WORKSPACE_EXISTS = register(
    Code(
        name="WORKSPACE_EXISTS",
        http_status=409,
        rpc_code=-32602,
        hint="Use the registered workspace, or remove it first.",
    )
)
BAD_WORKSPACE_FILE = register(
    Code(
        name="BAD_WORKSPACE_FILE",
        http_status=500,
        hint="Correct the key in the message; docs/workspaces.md lists the keys.",
    )
)

# Starting servers
NO_SANDBOX = register(
    Code(
        name="NO_SANDBOX",
        http_status=503,
        hint="Run `holdfast doctor` to see what is missing. Servers that must be confined do not start without a sandbox.",
    )
)
SPAWN_FAILED = register(
    Code(
        name="SPAWN_FAILED",
        http_status=502,
        hint="Check the server's command, its folder and their permissions.",
    )
)

# Connections to servers
SCOPE_CLOSED = register(
    Code(
        name="SCOPE_CLOSED",
        http_status=409,
        hint="The session is closed; open another one.",
    )
)
TOO_MANY_LINKS = register(
    Code(
        name="TOO_MANY_LINKS",
        http_status=503,
        retryable=True,
        hint="Close sessions that you no longer need, or raise links.max_open.",
    )
)
NOT_SHAREABLE = register(
    Code(
        name="NOT_SHAREABLE",
        http_status=500,
        hint="Only servers that declare the capability dev.holdfast/session can be shared.",
    )
)
UNKNOWN_TOOL = register(
    Code(
        name="UNKNOWN_TOOL",
        http_status=404,
        rpc_code=-32602,
        hint="List the tools and use a name from the list.",
    )
)
RESTART_DELAYED = register(
    Code(
        name="RESTART_DELAYED",
        http_status=503,
        rpc_code=-32005,
        retryable=True,
        hint="The server keeps failing. Correct the cause in the message, or wait for the time in it and call again.",
    )
)
STATE_LOST = register(
    Code(
        name="STATE_LOST",
        http_status=409,
        hint="The server was restarted and has lost its state; repeat the calls that built it.",
    )
)
NOT_GRANTED = register(
    Code(
        name="NOT_GRANTED",
        http_status=403,
        rpc_code=-32601,
        hint='The message says what is not allowed. "asks" in a server\'s entry allows its requests.',
    )
)
NO_ANSWER = register(
    Code(
        name="NO_ANSWER",
        http_status=403,
        hint="Attach a terminal or an editor that may answer, and try again.",
    )
)
UNSUPPORTED_BY_CLIENT = register(
    Code(
        name="UNSUPPORTED_BY_CLIENT",
        http_status=501,
        rpc_code=-32601,
        hint="Open the session in a client that supports this; the terminal and some editors do not.",
    )
)
UNKNOWN_SERVER = register(
    Code(
        name="UNKNOWN_SERVER",
        http_status=404,
        rpc_code=-32602,
        hint="`holdfast servers list` shows all servers.",
    )
)
NOT_REACHABLE = register(
    Code(
        name="NOT_REACHABLE",
        http_status=403,
        hint="To allow a private address, add its host to servers.reachable in the settings.",
    )
)
LOGIN_NEEDED = register(
    Code(name="LOGIN_NEEDED", http_status=401, hint="Run `holdfast servers login NAME`, then try again.")
)

# MCP servers over HTTP
HEADER_MISMATCH = register(
    Code(
        name="HEADER_MISMATCH",
        http_status=400,
        rpc_code=-32020,
        hint="Send each MCP header once, with the same value as in the body.",
    )
)
MISSING_CAPABILITY = register(
    Code(
        name="MISSING_CAPABILITY",
        http_status=400,
        rpc_code=-32021,
        hint="Use a client that declares the capability that the tool needs.",
    )
)
HOST_NOT_ALLOWED = register(
    Code(
        name="HOST_NOT_ALLOWED",
        http_status=403,
        rpc_code=-32600,
        hint="Use a host name that the server allows; --allow-host and --allow-origin add one.",
    )
)
BAD_HTTP = register(
    Code(
        name="BAD_HTTP",
        http_status=400,
        rpc_code=-32600,
        hint="POST one JSON-RPC message as application/json, and accept application/json and text/event-stream.",
    )
)
UNKNOWN_MCP_SESSION = register(
    Code(
        name="UNKNOWN_MCP_SESSION",
        http_status=404,
        rpc_code=-32600,
        hint="The session has ended; send initialize again and use the new Mcp-Session-Id.",
    )
)
TOO_MANY_SESSIONS = register(
    Code(
        name="TOO_MANY_SESSIONS",
        http_status=503,
        rpc_code=-32004,
        retryable=True,
        hint="End sessions that are no longer needed (DELETE), or raise the server's limit.",
    )
)

# Tools
BAD_TOOL = register(
    Code(
        name="BAD_TOOL",
        http_status=500,
        hint="Correct the tool's definition; the server will not start until then.",
    )
)
BAD_PLUGIN = register(
    Code(
        name="BAD_PLUGIN",
        http_status=500,
        hint="Install or correct the plugin, or remove it from the command.",
    )
)
DENIED = register(
    Code(
        name="DENIED",
        http_status=403,
        hint="This session is not allowed to do that; the message has the reason.",
    )
)
EVAL_DISABLED = register(
    Code(name="EVAL_DISABLED", http_status=403, hint="The user can start the server with --allow-eval.")
)
EVAL_BLOCKED = register(
    Code(name="EVAL_BLOCKED", http_status=403, hint="Avoid the keyword in the message, or use another tool.")
)
NOT_RUNNING = register(
    Code(
        name="NOT_RUNNING",
        http_status=409,
        hint="Start a session of the tool first (a browser, an app), or give the id of a running one.",
    )
)
MISSING_WORKSPACE = register(
    Code(
        name="MISSING_WORKSPACE",
        http_status=400,
        rpc_code=-32602,
        hint="Pass `workspace`: a slug, a name, or an absolute path in a workspace.",
    )
)
WORKSPACE_DENIED = register(
    Code(
        name="WORKSPACE_DENIED",
        http_status=403,
        hint="A sandboxed session can use only its own workspace; leave `workspace` out.",
    )
)
NOT_APPROVED = register(
    Code(
        name="NOT_APPROVED",
        http_status=403,
        hint="Review the server with `holdfast servers approve`.",
    )
)
NOT_PERMITTED = register(
    Code(
        name="NOT_PERMITTED",
        http_status=403,
        hint="Try again and allow the call, or change the session's mode.",
    )
)

# File tools
BAD_PATH = register(
    Code(
        name="BAD_PATH",
        http_status=400,
        rpc_code=-32602,
        hint="Give a path inside the session's folders, as `list` shows it.",
    )
)
OUTSIDE_ROOTS = register(
    Code(
        name="OUTSIDE_ROOTS",
        http_status=403,
        hint="Use the session's folders, or open a session with that folder among its directories.",
    )
)
NO_FILE = register(
    Code(name="NO_FILE", http_status=404, hint="Use `list` or `find` to see the existing files.")
)
NOT_A_FILE = register(
    Code(
        name="NOT_A_FILE",
        http_status=409,
        hint="Give the path of a file to read or change it, or of a folder to list it.",
    )
)
NOT_TEXT = register(
    Code(name="NOT_TEXT", http_status=415, hint="These tools read and write UTF-8 text only.")
)
FILE_TOO_LARGE = register(Code(name="FILE_TOO_LARGE", http_status=413, hint="Use smaller files."))
NO_MATCH = register(
    Code(
        name="NO_MATCH",
        http_status=409,
        hint="Read the file again, and give the exact text including whitespace.",
    )
)
SEVERAL_MATCHES = register(
    Code(
        name="SEVERAL_MATCHES",
        http_status=409,
        hint="Give more of the surrounding text, or set `all` to true.",
    )
)
FILE_CHANGED = register(
    Code(
        name="FILE_CHANGED",
        http_status=409,
        retryable=True,
        hint="The file has changed since it was read; read it again and repeat the change.",
    )
)
FILE_ERROR = register(
    Code(
        name="FILE_ERROR",
        http_status=500,
        hint="The operating system refused the operation; the message has the reason.",
    )
)
EDITOR_REFUSED = register(
    Code(
        name="EDITOR_REFUSED",
        http_status=502,
        hint="This session's files are read and written by the editor, which refused; the message has the reason.",
    )
)
