"""The registry of error codes. Every error has a code with a stable name."""

import re
from dataclasses import dataclass

_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A kind of error: its name for programs, its hint for users, its HTTP status and JSON-RPC number."""

    name: str
    hint: str
    http: int
    rpc: int = -32603
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
    Code(name="PARSE_ERROR", http=400, rpc=-32700, hint="Send one JSON object per line, in UTF-8.")
)
INVALID_REQUEST = register(
    Code(
        name="INVALID_REQUEST",
        http=400,
        rpc=-32600,
        hint="Send a JSON-RPC 2.0 message: no batch, no bare value.",
    )
)
METHOD_NOT_FOUND = register(
    Code(
        name="METHOD_NOT_FOUND",
        http=404,
        rpc=-32601,
        hint="Check the method's name and the peer's capabilities.",
    )
)
BAD_ARGUMENT = register(
    Code(name="BAD_ARGUMENT", http=400, rpc=-32602, hint="Correct the named arguments and call again.")
)
INTERNAL_ERROR = register(
    Code(
        name="INTERNAL_ERROR",
        http=500,
        rpc=-32603,
        hint="This is a bug; the log has the details.",
    )
)
CANCELLED = register(Code(name="CANCELLED", http=499, rpc=-32800, hint="The caller cancelled the request."))
TIMEOUT = register(
    Code(
        name="TIMEOUT",
        http=504,
        rpc=-32001,
        retryable=True,
        hint="The peer did not answer in time; raise the time-out or request less.",
    )
)
BUSY = register(
    Code(
        name="BUSY",
        http=429,
        rpc=-32004,
        retryable=True,
        hint="Too many requests are in flight; wait until some have finished.",
    )
)
TOO_LARGE = register(
    Code(
        name="TOO_LARGE",
        http=413,
        rpc=-32600,
        hint="Send less at once, or raise the limits in [wire] of the settings.",
    )
)
CONNECTION_CLOSED = register(
    Code(
        name="CONNECTION_CLOSED",
        http=502,
        rpc=-32005,
        retryable=True,
        hint="The peer closed the connection; connect again.",
    )
)
PEER_ERROR = register(
    Code(name="PEER_ERROR", http=502, hint="The peer answered with an error; its message has the reason.")
)
BAD_ANSWER = register(
    Code(name="BAD_ANSWER", http=502, hint="The peer violated the protocol; report it to its author.")
)
UNSUPPORTED_VERSION = register(
    Code(
        name="UNSUPPORTED_VERSION",
        http=400,
        rpc=-32022,
        hint="The peers have no protocol version in common; update the older one.",
    )
)

# Settings, ids and context
BAD_SETTINGS = register(
    Code(
        name="BAD_SETTINGS",
        http=500,
        hint="Correct the named setting; `holdfast settings path` prints the settings file.",
    )
)
BAD_TRUST = register(Code(name="BAD_TRUST", http=400, rpc=-32602, hint='Trust is "direct" or "sandboxed".'))
BAD_ID = register(Code(name="BAD_ID", http=400, rpc=-32602, hint="Use an id exactly as Holdfast printed it."))
BAD_WORKSPACE = register(
    Code(
        name="BAD_WORKSPACE",
        http=400,
        rpc=-32602,
        hint="Name a workspace by its slug (lower-case letters, digits, hyphens), its name, or an absolute path.",
    )
)
NO_CONTEXT = register(Code(name="NO_CONTEXT", http=403, hint="Call from inside a session."))

# The store
UNKNOWN_SESSION = register(
    Code(
        name="UNKNOWN_SESSION",
        http=404,
        rpc=-32002,
        hint="`holdfast sessions list` shows all sessions.",
    )
)
SESSION_EXISTS = register(
    Code(name="SESSION_EXISTS", http=409, rpc=-32602, hint="Use a new session id; an id can be used once.")
)
SESSION_HELD = register(
    Code(
        name="SESSION_HELD",
        http=409,
        rpc=-32003,
        retryable=True,
        hint="Close the session where it is open. A process that has ended releases its sessions.",
    )
)
KEY_REUSED = register(
    Code(
        name="KEY_REUSED",
        http=409,
        rpc=-32602,
        hint="Use a new key for each event; only a retry repeats a key.",
    )
)
UNSTORABLE = register(
    Code(name="UNSTORABLE", http=400, rpc=-32602, hint="Send valid Unicode and plain JSON.")
)
STREAM_BROKEN = register(
    Code(
        name="STREAM_BROKEN",
        http=500,
        hint="Fix the first error, then open the stream again and retry with the same keys.",
    )
)
BAD_CURSOR = register(
    Code(
        name="BAD_CURSOR",
        http=400,
        rpc=-32602,
        hint="Use the cursor of the previous page with the same query, or start again without a cursor.",
    )
)
STORE_CLOSED = register(
    Code(name="STORE_CLOSED", http=503, hint="The host is shutting down; open the store again.")
)
STORE_BUSY = register(
    Code(
        name="STORE_BUSY",
        http=503,
        retryable=True,
        hint="Another process is using the store; try again.",
    )
)
STORE_FULL = register(
    Code(name="STORE_FULL", http=507, retryable=True, hint="Free some space on the disk, then try again.")
)
STORE_READ_ONLY = register(
    Code(
        name="STORE_READ_ONLY",
        http=500,
        hint="Make the store's folder writable, or set `data_dir` to a writable folder.",
    )
)
STORE_UNREADABLE = register(
    Code(
        name="STORE_UNREADABLE",
        http=500,
        hint="Check the path and its permissions; `holdfast settings show` prints `data_dir`.",
    )
)
STORE_CORRUPT = register(
    Code(
        name="STORE_CORRUPT",
        http=500,
        hint="Keep the file, run `holdfast store check`, and restore a backup.",
    )
)
STORE_TOO_NEW = register(
    Code(name="STORE_TOO_NEW", http=500, hint="Update Holdfast; the data was written by a newer version.")
)
STORE_FOREIGN = register(
    Code(name="STORE_FOREIGN", http=500, hint="Name a Holdfast store, or a path that does not exist yet.")
)
STORE_FAILED = register(
    Code(
        name="STORE_FAILED",
        http=500,
        hint="The disk failed; see the system log, then restart Holdfast.",
    )
)
FILE_EXISTS = register(
    Code(name="FILE_EXISTS", http=409, hint="Name a file that does not exist; files are not overwritten.")
)
EVENT_TOO_NEW = register(
    Code(name="EVENT_TOO_NEW", http=500, hint="Update Holdfast; the data was written by a newer version.")
)

# Context tokens
BAD_TOKEN = register(
    Code(
        name="BAD_TOKEN",
        http=401,
        rpc=-32000,
        hint="Send the context token that the host signed for this request; details.reason has the cause.",
    )
)
TOKEN_REPLAYED = register(
    Code(
        name="TOKEN_REPLAYED",
        http=409,
        rpc=-32000,
        hint="Sign a new token for every request; a token is valid for one change.",
    )
)
BAD_KEY = register(
    Code(
        name="BAD_KEY",
        http=500,
        hint="Correct the key file. If you delete it, Holdfast creates a new key and existing tokens become invalid.",
    )
)

# Workspaces
BAD_FOLDER = register(
    Code(
        name="BAD_FOLDER",
        http=400,
        rpc=-32602,
        hint="Name an existing folder by its absolute path; Holdfast's own folders are not allowed.",
    )
)
UNKNOWN_WORKSPACE = register(
    Code(
        name="UNKNOWN_WORKSPACE",
        http=404,
        rpc=-32602,
        hint="`holdfast workspaces list` shows all workspaces.",
    )
)
WORKSPACE_EXISTS = register(
    Code(
        name="WORKSPACE_EXISTS",
        http=409,
        rpc=-32602,
        hint="Use the registered workspace, or remove it first.",
    )
)
BAD_WORKSPACE_FILE = register(
    Code(
        name="BAD_WORKSPACE_FILE",
        http=500,
        hint="Correct the named key; docs/workspaces.md lists the keys.",
    )
)

# Starting servers
NO_SANDBOX = register(
    Code(
        name="NO_SANDBOX",
        http=503,
        hint="Run `holdfast doctor` to see what is missing. Servers that must be confined do not start without a sandbox.",
    )
)
SPAWN_FAILED = register(
    Code(name="SPAWN_FAILED", http=502, hint="Check the server's command, its folder and their permissions.")
)

# Connections to servers
SCOPE_CLOSED = register(
    Code(
        name="SCOPE_CLOSED",
        http=409,
        hint="The session is closed; open another one.",
    )
)
TOO_MANY_LINKS = register(
    Code(
        name="TOO_MANY_LINKS",
        http=503,
        retryable=True,
        hint="Close sessions that you no longer need, or raise links.most.",
    )
)
NOT_SHAREABLE = register(
    Code(name="NOT_SHAREABLE", http=500, hint="Only servers that declare dev.holdfast/session can be shared.")
)
UNKNOWN_TOOL = register(
    Code(
        name="UNKNOWN_TOOL",
        http=404,
        rpc=-32602,
        hint="List the tools and use a name from the list.",
    )
)
STATE_LOST = register(
    Code(name="STATE_LOST", http=409, hint="The server was restarted and has lost its state.")
)
NOT_GRANTED = register(
    Code(
        name="NOT_GRANTED",
        http=403,
        rpc=-32601,
        hint='The host can allow it in the server\'s entry: "asks".',
    )
)
UNKNOWN_SERVER = register(
    Code(
        name="UNKNOWN_SERVER",
        http=404,
        rpc=-32602,
        hint="`holdfast servers list` shows all servers.",
    )
)
NOT_REACHABLE = register(
    Code(
        name="NOT_REACHABLE",
        http=403,
        hint="The host's settings can allow a private address: servers.reachable.",
    )
)
LOGIN_NEEDED = register(
    Code(name="LOGIN_NEEDED", http=401, hint="Run `holdfast servers login NAME`, then try again.")
)

# MCP servers over HTTP
HEADER_MISMATCH = register(
    Code(
        name="HEADER_MISMATCH",
        http=400,
        rpc=-32020,
        hint="Send each MCP header once, with the same values as in the body.",
    )
)
MISSING_CAPABILITY = register(
    Code(
        name="MISSING_CAPABILITY",
        http=400,
        rpc=-32021,
        hint="Use a client that declares the capability that the tool needs.",
    )
)
HOST_NOT_ALLOWED = register(
    Code(
        name="HOST_NOT_ALLOWED",
        http=403,
        rpc=-32600,
        hint="Use a host name that the server allows; --allow-host and --allow-origin add one.",
    )
)
BAD_HTTP = register(
    Code(
        name="BAD_HTTP",
        http=400,
        rpc=-32600,
        hint="POST one JSON-RPC message as application/json, and accept application/json and text/event-stream.",
    )
)
UNKNOWN_MCP_SESSION = register(
    Code(
        name="UNKNOWN_MCP_SESSION",
        http=404,
        rpc=-32600,
        hint="The session has ended; send initialize again and use the new Mcp-Session-Id.",
    )
)
TOO_MANY_SESSIONS = register(
    Code(
        name="TOO_MANY_SESSIONS",
        http=503,
        rpc=-32004,
        retryable=True,
        hint="End sessions that are no longer needed (DELETE), or raise the server's limit.",
    )
)

# Tools
BAD_TOOL = register(
    Code(name="BAD_TOOL", http=500, hint="Correct the tool's definition; the server does not start before.")
)
BAD_PLUGIN = register(
    Code(
        name="BAD_PLUGIN",
        http=500,
        hint="Install or correct the plugin, or remove it from the command.",
    )
)
DENIED = register(
    Code(name="DENIED", http=403, hint="This session is not allowed to do that; the message has the reason.")
)
EVAL_DISABLED = register(
    Code(name="EVAL_DISABLED", http=403, hint="The user can start the server with --allow-eval.")
)
EVAL_BLOCKED = register(
    Code(name="EVAL_BLOCKED", http=403, hint="Avoid the named keyword, or use another tool.")
)
NOT_RUNNING = register(Code(name="NOT_RUNNING", http=409, hint="Start one first, or name a running one."))
MISSING_WORKSPACE = register(
    Code(
        name="MISSING_WORKSPACE",
        http=400,
        rpc=-32602,
        hint="Pass `workspace`: a slug, a name, or an absolute path in a workspace.",
    )
)
WORKSPACE_DENIED = register(
    Code(
        name="WORKSPACE_DENIED",
        http=403,
        hint="A sandboxed session can use only its own workspace; leave `workspace` out.",
    )
)
NOT_PERMITTED = register(
    Code(name="NOT_PERMITTED", http=403, hint="Try again and allow the call, or change the session's mode.")
)

# File tools
BAD_PATH = register(
    Code(
        name="BAD_PATH",
        http=400,
        rpc=-32602,
        hint="Give a path inside the session's folders, as `list` shows it.",
    )
)
OUTSIDE_ROOTS = register(
    Code(
        name="OUTSIDE_ROOTS",
        http=403,
        hint="Use the session's folders, or open a session with that folder among its directories.",
    )
)
NO_FILE = register(Code(name="NO_FILE", http=404, hint="Use `list` or `find` to see the existing files."))
NOT_A_FILE = register(
    Code(name="NOT_A_FILE", http=409, hint="Name a file to read or change it, or a folder to list it.")
)
NOT_TEXT = register(Code(name="NOT_TEXT", http=415, hint="These tools read and write UTF-8 text only."))
FILE_TOO_LARGE = register(Code(name="FILE_TOO_LARGE", http=413, hint="Use smaller files."))
NO_MATCH = register(
    Code(
        name="NO_MATCH",
        http=409,
        hint="Read the file again, and give the exact text including whitespace.",
    )
)
SEVERAL_MATCHES = register(
    Code(name="SEVERAL_MATCHES", http=409, hint="Give more of the surrounding text, or set `all` to true.")
)
FILE_CHANGED = register(
    Code(
        name="FILE_CHANGED",
        http=409,
        retryable=True,
        hint="The file was changed in the meantime; read it again and repeat the change.",
    )
)
FILE_ERROR = register(
    Code(name="FILE_ERROR", http=500, hint="The operating system refused it; the message has the reason.")
)
EDITOR_REFUSED = register(
    Code(
        name="EDITOR_REFUSED",
        http=502,
        hint="The editor reads and writes this session's files; the message has its reason.",
    )
)
