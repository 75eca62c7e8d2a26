"""The one registry of codes: every failure a person or a program can meet, by a stable name."""

import re
from dataclasses import dataclass

_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A kind of failure: its name for programs, its hint for people, its number for each protocol."""

    name: str
    hint: str
    http: int
    rpc: int = -32603
    retryable: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"A code's name is UPPER_SNAKE_CASE, not {self.name!r}.")


_registry: dict[str, Code] = {}


def register(code: Code) -> Code:
    """Add a code to the registry; a name is taken once and keeps its meaning."""
    if code.name in _registry:
        raise ValueError(f"The code {code.name} is registered already.")
    _registry[code.name] = code
    return code


def find(name: str) -> Code | None:
    """The registered code of this name, if there is one."""
    return _registry.get(name)


def registered() -> tuple[Code, ...]:
    """Every registered code, sorted by name."""
    return tuple(_registry[name] for name in sorted(_registry))


# What any JSON-RPC peer can meet.
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
        hint="This is a bug; the log of the process has the details.",
    )
)
CANCELLED = register(Code(name="CANCELLED", http=499, rpc=-32800, hint="The caller took the request back."))
TIMEOUT = register(
    Code(
        name="TIMEOUT",
        http=504,
        rpc=-32001,
        retryable=True,
        hint="The other side did not answer in time; raise the deadline or ask for less.",
    )
)
BUSY = register(
    Code(
        name="BUSY",
        http=429,
        rpc=-32004,
        retryable=True,
        hint="Too many requests are in flight; wait for some to finish.",
    )
)
TOO_LARGE = register(
    Code(name="TOO_LARGE", http=413, rpc=-32600, hint="Send less at once, or raise the limits under [wire].")
)
CONNECTION_CLOSED = register(
    Code(
        name="CONNECTION_CLOSED",
        http=502,
        rpc=-32005,
        retryable=True,
        hint="The other side is gone; connect again.",
    )
)
PEER_ERROR = register(Code(name="PEER_ERROR", http=502, hint="The other side refused; its message says why."))
BAD_ANSWER = register(
    Code(name="BAD_ANSWER", http=502, hint="The other side broke the protocol; report it to its author.")
)
UNSUPPORTED_VERSION = register(
    Code(
        name="UNSUPPORTED_VERSION",
        http=400,
        rpc=-32022,
        hint="The two sides share no protocol version; update the older one.",
    )
)

# What the model's own words can get wrong.
BAD_SETTINGS = register(
    Code(
        name="BAD_SETTINGS",
        http=500,
        hint="Correct what is named; `holdfast settings path` prints which file is read.",
    )
)
BAD_TRUST = register(Code(name="BAD_TRUST", http=400, rpc=-32602, hint='Trust is "direct" or "sandboxed".'))
BAD_ID = register(Code(name="BAD_ID", http=400, rpc=-32602, hint="Use an id as Holdfast printed it."))
BAD_WORKSPACE = register(
    Code(
        name="BAD_WORKSPACE",
        http=400,
        rpc=-32602,
        hint="Name a workspace by its slug (lower-case letters, digits, hyphens), its name, or an absolute path.",
    )
)
NO_CONTEXT = register(
    Code(name="NO_CONTEXT", http=403, hint="Call from inside a session; nothing is done without one.")
)

# What memory can meet.
UNKNOWN_SESSION = register(
    Code(
        name="UNKNOWN_SESSION",
        http=404,
        rpc=-32002,
        hint="`holdfast sessions list` shows the sessions there are.",
    )
)
SESSION_EXISTS = register(
    Code(name="SESSION_EXISTS", http=409, rpc=-32602, hint="Mint a new session id; an id is used once.")
)
SESSION_HELD = register(
    Code(
        name="SESSION_HELD",
        http=409,
        rpc=-32003,
        retryable=True,
        hint="Close the session where it is open; a process that is gone lets go of it by itself.",
    )
)
KEY_REUSED = register(
    Code(
        name="KEY_REUSED", http=409, rpc=-32602, hint="Give each event its own key; only a retry repeats one."
    )
)
UNSTORABLE = register(
    Code(name="UNSTORABLE", http=400, rpc=-32602, hint="Send valid Unicode and plain JSON.")
)
STREAM_BROKEN = register(
    Code(
        name="STREAM_BROKEN",
        http=500,
        hint="Cure the first failure, then open the stream again and retry with the same keys.",
    )
)
BAD_CURSOR = register(
    Code(
        name="BAD_CURSOR",
        http=400,
        rpc=-32602,
        hint="Use a cursor as it was given, with the same query; or start over without one.",
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
        hint="Another process holds the store for long; try again.",
    )
)
STORE_FULL = register(
    Code(name="STORE_FULL", http=507, retryable=True, hint="Free some space on the disk, then try again.")
)
STORE_READ_ONLY = register(
    Code(
        name="STORE_READ_ONLY",
        http=500,
        hint="Make the store's folder writable, or set `data_dir` to one that is.",
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
        hint="Keep the file, look with `holdfast store check`, and restore a backup.",
    )
)
STORE_TOO_NEW = register(
    Code(name="STORE_TOO_NEW", http=500, hint="Update Holdfast; the newer version reads it.")
)
STORE_FOREIGN = register(
    Code(
        name="STORE_FOREIGN", http=500, hint="Name a file of Holdfast's own, or a path where none exists yet."
    )
)
STORE_FAILED = register(
    Code(
        name="STORE_FAILED",
        http=500,
        hint="The disk failed; see the system's log, then start Holdfast again.",
    )
)
FILE_EXISTS = register(
    Code(name="FILE_EXISTS", http=409, hint="Name a file that does not exist; nothing is overwritten.")
)
EVENT_TOO_NEW = register(
    Code(name="EVENT_TOO_NEW", http=500, hint="Update Holdfast; the newer version reads it.")
)

# What a signed context can meet.
BAD_TOKEN = register(
    Code(
        name="BAD_TOKEN",
        http=401,
        rpc=-32000,
        hint="Send the context token that the host signed for this very request; details.reason tells what is wrong.",
    )
)
TOKEN_REPLAYED = register(
    Code(
        name="TOKEN_REPLAYED",
        http=409,
        rpc=-32000,
        hint="Sign every request anew; a token is good for one change.",
    )
)
BAD_KEY = register(
    Code(
        name="BAD_KEY",
        http=500,
        hint="Correct what is named; without its key file Holdfast makes a new key, and tokens signed before fail.",
    )
)

# What the registry of workspaces can meet.
BAD_FOLDER = register(
    Code(
        name="BAD_FOLDER",
        http=400,
        rpc=-32602,
        hint="Name a folder that exists, by its absolute path, and not one that holds Holdfast's own data.",
    )
)
UNKNOWN_WORKSPACE = register(
    Code(
        name="UNKNOWN_WORKSPACE",
        http=404,
        rpc=-32602,
        hint="`holdfast workspaces list` shows the workspaces there are.",
    )
)
WORKSPACE_EXISTS = register(
    Code(
        name="WORKSPACE_EXISTS",
        http=409,
        rpc=-32602,
        hint="Use the workspace that is registered, or remove it first.",
    )
)
BAD_WORKSPACE_FILE = register(
    Code(
        name="BAD_WORKSPACE_FILE",
        http=500,
        hint="Correct what is named; docs/workspaces.md lists the keys.",
    )
)

# What starting a server can meet.
NO_SANDBOX = register(
    Code(
        name="NO_SANDBOX",
        http=503,
        hint="`holdfast doctor` says what is missing; nothing meant to be confined runs without its walls.",
    )
)
SPAWN_FAILED = register(
    Code(name="SPAWN_FAILED", http=502, hint="Check the server's command, its folder and their permissions.")
)

# What a link can meet.
SCOPE_CLOSED = register(
    Code(
        name="SCOPE_CLOSED",
        http=409,
        hint="Call tools while the session is open; open another for what comes later.",
    )
)
TOO_MANY_LINKS = register(
    Code(
        name="TOO_MANY_LINKS",
        http=503,
        retryable=True,
        hint="Close sessions that are done, or raise links.most.",
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
        hint="List the tools and use a name as it is printed there.",
    )
)
STATE_LOST = register(
    Code(name="STATE_LOST", http=409, hint="The server was started anew; what it knew before is gone.")
)
NOT_GRANTED = register(
    Code(
        name="NOT_GRANTED",
        http=403,
        rpc=-32601,
        hint='The host\'s config can open it to this server: "asks".',
    )
)
UNKNOWN_SERVER = register(
    Code(
        name="UNKNOWN_SERVER",
        http=404,
        rpc=-32602,
        hint="`holdfast servers list` shows the servers there are.",
    )
)
NOT_REACHABLE = register(
    Code(
        name="NOT_REACHABLE",
        http=403,
        hint="The host's settings can allow an inside address: servers.reachable.",
    )
)
LOGIN_NEEDED = register(
    Code(name="LOGIN_NEEDED", http=401, hint="Run `holdfast servers login NAME`, then try again.")
)

# What an MCP server over HTTP can meet.
HEADER_MISMATCH = register(
    Code(
        name="HEADER_MISMATCH",
        http=400,
        rpc=-32020,
        hint="Send the MCP headers that the body calls for, each once and with the body's own values.",
    )
)
MISSING_CAPABILITY = register(
    Code(
        name="MISSING_CAPABILITY",
        http=400,
        rpc=-32021,
        hint="Call from a client that has, and declares, the capability that the tool needs.",
    )
)
NOT_FOR_STRANGERS = register(
    Code(
        name="NOT_FOR_STRANGERS",
        http=403,
        rpc=-32600,
        hint="Use an address the server knows as its own; --allow-host and --allow-origin add one.",
    )
)
BAD_HTTP = register(
    Code(
        name="BAD_HTTP",
        http=400,
        rpc=-32600,
        hint="POST one JSON-RPC message as application/json, and accept JSON or an event stream in return.",
    )
)
UNKNOWN_MCP_SESSION = register(
    Code(
        name="UNKNOWN_MCP_SESSION",
        http=404,
        rpc=-32600,
        hint="The session has ended; send initialize again and use the Mcp-Session-Id it brings.",
    )
)
TOO_MANY_SESSIONS = register(
    Code(
        name="TOO_MANY_SESSIONS",
        http=503,
        rpc=-32004,
        retryable=True,
        hint="End sessions that are done (DELETE), or raise the server's limit.",
    )
)

# What a tool can meet.
BAD_TOOL = register(
    Code(name="BAD_TOOL", http=500, hint="Correct the tool's definition; the server does not start without.")
)
BAD_PLUGIN = register(
    Code(
        name="BAD_PLUGIN",
        http=500,
        hint="Install or correct the plugin, or do not name it; nothing is half-loaded.",
    )
)
DENIED = register(
    Code(name="DENIED", http=403, hint="This session may not do that; the message says what it takes.")
)
EVAL_DISABLED = register(
    Code(name="EVAL_DISABLED", http=403, hint="A person can start the server with --allow-eval.")
)
EVAL_BLOCKED = register(
    Code(name="EVAL_BLOCKED", http=403, hint="Do it without the named keyword, or with a tool made for it.")
)
NOT_RUNNING = register(
    Code(name="NOT_RUNNING", http=409, hint="Start one first, or name one of those that run.")
)
MISSING_WORKSPACE = register(
    Code(
        name="MISSING_WORKSPACE",
        http=400,
        rpc=-32602,
        hint="Pass `workspace`: a workspace's slug, its name, or an absolute path in it.",
    )
)
WORKSPACE_DENIED = register(
    Code(
        name="WORKSPACE_DENIED",
        http=403,
        hint="A sandboxed session works in its own workspace; leave `workspace` out.",
    )
)
NOT_PERMITTED = register(
    Code(name="NOT_PERMITTED", http=403, hint="Ask again and allow it, or change the session's mode.")
)

# What the file tools can meet.
BAD_PATH = register(
    Code(
        name="BAD_PATH",
        http=400,
        rpc=-32602,
        hint="Give a path below the session's folders, as `list` shows it.",
    )
)
OUTSIDE_ROOTS = register(
    Code(
        name="OUTSIDE_ROOTS",
        http=403,
        hint="Stay in the session's folders, or open a session that has the other one among its directories.",
    )
)
NO_FILE = register(Code(name="NO_FILE", http=404, hint="Look at what is there with `list` or `find`."))
NOT_A_FILE = register(
    Code(name="NOT_A_FILE", http=409, hint="Name a file to read or change, and a folder to list.")
)
NOT_TEXT = register(Code(name="NOT_TEXT", http=415, hint="These tools read and write text in UTF-8 only."))
FILE_TOO_LARGE = register(
    Code(
        name="FILE_TOO_LARGE", http=413, hint="Work on smaller files; `find` can look into parts of a folder."
    )
)
NO_MATCH = register(
    Code(
        name="NO_MATCH",
        http=409,
        hint="Read the file again, and give its text to the letter, blanks included.",
    )
)
SEVERAL_MATCHES = register(
    Code(name="SEVERAL_MATCHES", http=409, hint="Give more of the text around it, or set `all` to true.")
)
FILE_CHANGED = register(
    Code(
        name="FILE_CHANGED",
        http=409,
        retryable=True,
        hint="Somebody else is writing there; read the file again and repeat the change.",
    )
)
FILE_TROUBLE = register(
    Code(name="FILE_TROUBLE", http=500, hint="The message says what the system refused; correct that first.")
)
EDITOR_REFUSED = register(
    Code(
        name="EDITOR_REFUSED",
        http=502,
        hint="The editor reads and writes this session's files; see what it says about it.",
    )
)
