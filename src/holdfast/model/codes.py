"""The registry of error codes. Every error has a code with a stable name."""

import re
from dataclasses import dataclass, replace

_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Code:
    """A kind of error: a name for programs, a hint for users, an HTTP status and a JSON-RPC error code."""

    name: str
    hint: str
    http_status: int
    rpc_code: int = -32603
    retryable: bool = False

    def __eq__(self, other: object) -> bool:
        """Whether the other is this code or its name: `error.code == "BAD_ARGUMENT"`."""
        if isinstance(other, Code):
            return self.name == other.name
        return isinstance(other, str) and other == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

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


def named(name: str) -> Code:
    """The code with this name. For a name that is not registered, such as one of a tool's own: a code like TOOL_FAILED."""
    return find(name) or replace(TOOL_FAILED, name=name)


def registered() -> tuple[Code, ...]:
    """Every registered code, sorted by name."""
    return tuple(_registry[name] for name in sorted(_registry))


def _add(name: str, http_status: int, hint: str, *, rpc_code: int = -32603, retryable: bool = False) -> Code:
    return register(
        Code(name=name, hint=hint, http_status=http_status, rpc_code=rpc_code, retryable=retryable)
    )


# JSON-RPC
PARSE_ERROR = _add("PARSE_ERROR", 400, "Send one JSON object per line, in UTF-8.", rpc_code=-32700)
INVALID_REQUEST = _add(
    "INVALID_REQUEST", 400, "Send a JSON-RPC 2.0 message: no batch, no bare value.", rpc_code=-32600
)
METHOD_NOT_FOUND = _add(
    "METHOD_NOT_FOUND", 404, "Check the method's name, and what the other side supports.", rpc_code=-32601
)
BAD_ARGUMENT = _add(
    "BAD_ARGUMENT", 400, "Correct the arguments that the message names, and call again.", rpc_code=-32602
)
INTERNAL_ERROR = _add(
    "INTERNAL_ERROR",
    500,
    "This is a bug; the server's log has the details: `holdfast servers logs`, `/logs` in a chat, or the log of the application that has the toolbox. There is no server log of a session that an application opened with `keep=False`.",
)
CANCELLED = _add("CANCELLED", 499, "The caller cancelled the request.", rpc_code=-32800)
TIMEOUT = _add(
    "TIMEOUT",
    504,
    "It took too long: request less, or raise the time limit, if the message names one.",
    rpc_code=-32001,
    retryable=True,
)
BUSY = _add(
    "BUSY",
    429,
    "Too many requests are in flight; wait until some have finished.",
    rpc_code=-32004,
    retryable=True,
)
TOO_LARGE = _add(
    "TOO_LARGE", 413, "Send less at once, or raise the limits under [wire] in the settings.", rpc_code=-32600
)
CONNECTION_CLOSED = _add(
    "CONNECTION_CLOSED",
    502,
    "If the message names a cause, correct it. Then call again.",
    rpc_code=-32005,
    retryable=True,
)
PEER_ERROR = _add("PEER_ERROR", 502, "The message has the reason, as the other side sent it.")
BAD_ANSWER = _add(
    "BAD_ANSWER",
    502,
    "The other side sent an invalid answer. If it is a program, report this to its author.",
)
UNSUPPORTED_VERSION = _add(
    "UNSUPPORTED_VERSION",
    400,
    "There is no protocol version that both sides know; update the older one.",
    rpc_code=-32022,
)

# Settings, ids and context
BAD_SETTINGS = _add(
    "BAD_SETTINGS",
    500,
    "Correct the setting that the message names; `holdfast settings path` prints the path of the settings file.",
)
BAD_INSTALLATION = _add("BAD_INSTALLATION", 500, "Install Holdfast again, with all its dependencies.")
BAD_TRUST = _add("BAD_TRUST", 400, 'Trust is "direct" or "sandboxed".', rpc_code=-32602)
BAD_ID = _add("BAD_ID", 400, "Use an id exactly as Holdfast printed it.", rpc_code=-32602)
BAD_WORKSPACE = _add(
    "BAD_WORKSPACE",
    400,
    "Give a slug (lower-case letters, digits, hyphens), a workspace's name, or an absolute path.",
    rpc_code=-32602,
)
NO_CONTEXT = _add("NO_CONTEXT", 403, "Call from inside a session.")

# The store
UNKNOWN_SESSION = _add(
    "UNKNOWN_SESSION", 404, "`holdfast sessions list --all` shows all sessions.", rpc_code=-32002
)
SESSION_EXISTS = _add(
    "SESSION_EXISTS", 409, "Use a new session id; an id can be used only once.", rpc_code=-32602
)
SESSION_HELD = _add(
    "SESSION_HELD",
    409,
    "Close the session where it is open. A process that has ended releases its sessions.",
    rpc_code=-32003,
    retryable=True,
)
KEY_REUSED = _add(
    "KEY_REUSED",
    409,
    "Give each event its own event key; reuse a key only to retry the same event.",
    rpc_code=-32602,
)
UNSTORABLE = _add("UNSTORABLE", 400, "Send valid Unicode and plain JSON.", rpc_code=-32602)
STREAM_BROKEN = _add(
    "STREAM_BROKEN",
    500,
    "Resolve the first error, call `reset` of the appender, and append the failed events again with the same event keys.",
)
BAD_CURSOR = _add(
    "BAD_CURSOR",
    400,
    "Use the cursor of the previous page with the same query, or start again without a cursor.",
    rpc_code=-32602,
)
STORE_CLOSED = _add(
    "STORE_CLOSED", 503, "The store was closed, usually because the host is shutting down; open it again."
)
STORE_BUSY = _add("STORE_BUSY", 503, "Another process is using the store; try again.", retryable=True)
SESSION_FULL = _add(
    "SESSION_FULL",
    507,
    "Open a new session, or raise the setting `sessions.max_megabytes` and open this session again.",
)
STORE_FULL = _add("STORE_FULL", 507, "Free some space on the disk, then try again.", retryable=True)
RESULT_NOT_STORED = _add(
    "RESULT_NOT_STORED",
    507,
    "The call was made. Check what it has done before you repeat it, and free some space on the disk.",
)
STORE_READ_ONLY = _add(
    "STORE_READ_ONLY", 500, "Make the store's folder writable, or set `data_dir` to a writable folder."
)
STORE_UNREADABLE = _add(
    "STORE_UNREADABLE", 500, "Check the path and its permissions; `holdfast settings show` prints `data_dir`."
)
STORE_CORRUPT = _add("STORE_CORRUPT", 500, "Keep the file, run `holdfast store check`, and restore a backup.")
STORE_TOO_NEW = _add("STORE_TOO_NEW", 500, "Update Holdfast; the data was written by a newer version.")
STORE_FOREIGN = _add(
    "STORE_FOREIGN", 500, "Give the path of a Holdfast store, or a path that does not exist yet."
)
STORE_FAILED = _add("STORE_FAILED", 500, "The disk failed; see the system log, then restart Holdfast.")
FILE_EXISTS = _add(
    "FILE_EXISTS", 409, "Give the path of a file that does not exist yet; files are not overwritten."
)

# Context tokens
BAD_TOKEN = _add(
    "BAD_TOKEN",
    401,
    "Send the context token that the host signed for this request; details.reason has the cause.",
    rpc_code=-32000,
)
TOKEN_REPLAYED = _add(
    "TOKEN_REPLAYED",
    409,
    "Sign a new token for every request; a token can be used for only one request that changes something.",
    rpc_code=-32000,
)
BAD_KEY = _add(
    "BAD_KEY",
    500,
    "Correct the file with the signing key or key set. If you delete a signing key, Holdfast creates a new one and existing tokens become invalid.",
)

# Workspaces
BAD_FOLDER = _add(
    "BAD_FOLDER",
    400,
    "Give the absolute path of an existing folder; Holdfast's own folders are not allowed.",
    rpc_code=-32602,
)
UNKNOWN_WORKSPACE = _add(
    "UNKNOWN_WORKSPACE", 404, "`holdfast workspaces list` shows all workspaces.", rpc_code=-32602
)
WORKSPACE_EXISTS = _add(
    "WORKSPACE_EXISTS", 409, "Use the registered workspace, or remove it first.", rpc_code=-32602
)
BAD_WORKSPACE_FILE = _add(
    "BAD_WORKSPACE_FILE", 500, "Do what the message says; docs/workspaces.md lists the keys."
)

# Models
NO_MODEL = _add("NO_MODEL", 400, "Choose a model with `holdfast model`.")
MODEL_UNAVAILABLE = _add("MODEL_UNAVAILABLE", 502, "Do what the message says, or choose another model.")
MODEL_LIMIT = _add(
    "MODEL_LIMIT", 429, "Continue in another turn, or raise the limit, if the message names a setting."
)
BUDGET_EXHAUSTED = _add(
    "BUDGET_EXHAUSTED", 429, "Finish with the results so far, or start again with a larger budget."
)

# Starting servers
NO_SANDBOX = _add(
    "NO_SANDBOX",
    503,
    "Run `holdfast doctor` to see what is missing. Servers that must be confined do not start without a sandbox.",
)
SPAWN_FAILED = _add("SPAWN_FAILED", 502, "Check the server's command, its folder and their permissions.")

# Connections to servers
SCOPE_CLOSED = _add("SCOPE_CLOSED", 409, "The session is closed; open another one.")
TOO_MANY_LINKS = _add(
    "TOO_MANY_LINKS",
    503,
    "Close sessions that you no longer need, or raise the setting `links.max_open`.",
    retryable=True,
)
NOT_SHAREABLE = _add(
    "NOT_SHAREABLE", 500, "Only servers that declare the capability dev.holdfast/session can be shared."
)
UNKNOWN_TOOL = _add("UNKNOWN_TOOL", 404, "List the tools and use a name from the list.", rpc_code=-32602)
HOST_NOT_OPEN = _add("HOST_NOT_OPEN", 503, "Use the host inside `async with Host(…) as host:`.")
SERVER_REFUSED = _add(
    "SERVER_REFUSED",
    503,
    "Do what the message says, then open a new session.",
)
RESTART_DELAYED = _add(
    "RESTART_DELAYED",
    503,
    "The server keeps failing. Correct the cause that the message names, or wait as long as it says and call again.",
    rpc_code=-32005,
    retryable=True,
)
STATE_LOST = _add(
    "STATE_LOST",
    409,
    "This is no error: the result of the first call after a restart begins with it. The server has lost its state; repeat the calls that built it.",
)
NOT_GRANTED = _add(
    "NOT_GRANTED",
    403,
    'The message says what is not allowed. To let a server send requests (roots, sampling, elicitation), list them under "asks" in its entry.',
    rpc_code=-32601,
)
NO_ANSWER = _add("NO_ANSWER", 403, "Attach a terminal or an editor that may answer, and try again.")
UNSUPPORTED_BY_CLIENT = _add(
    "UNSUPPORTED_BY_CLIENT",
    501,
    "Open the session in a client that supports this; the terminal and some editors do not.",
    rpc_code=-32601,
)
UNKNOWN_SERVER = _add("UNKNOWN_SERVER", 404, "`holdfast servers list` shows all servers.", rpc_code=-32602)
NOT_REACHABLE = _add(
    "NOT_REACHABLE",
    403,
    'To allow a private address, add its host to the settings, under [servers]: reachable = ["HOST"]. `holdfast settings path` prints the file.',
)
LOGIN_NEEDED = _add("LOGIN_NEEDED", 401, "Run `holdfast servers login NAME`, then try again.")

# MCP clients at the gateway
UNAUTHENTICATED = _add(
    "UNAUTHENTICATED",
    401,
    "Send the header `Authorization: Bearer TOKEN`, with a token from `holdfast tokens create` or from the configured issuer.",
    rpc_code=-32000,
)
UNKNOWN_TOKEN = _add("UNKNOWN_TOKEN", 404, "`holdfast tokens list --all` shows all tokens.", rpc_code=-32602)
RATE_LIMITED = _add(
    "RATE_LIMITED",
    429,
    "Send fewer requests, or raise the limits under [gateway] in the settings.",
    rpc_code=-32004,
    retryable=True,
)

SHUTTING_DOWN = _add(
    "SHUTTING_DOWN", 503, "Try again after the gateway has been restarted.", rpc_code=-32004, retryable=True
)

# MCP servers over HTTP
HEADER_MISMATCH = _add(
    "HEADER_MISMATCH", 400, "Send each MCP header once, with the same value as in the body.", rpc_code=-32020
)
MISSING_CAPABILITY = _add(
    "MISSING_CAPABILITY",
    400,
    "Use a client that has the capability that the message names. People answer questions in a terminal or an editor, not with piped input or `holdfast call`; in Python, pass `host.session(elicit=…)`. Terminals and editors have no sampling: use an MCP client of `holdfast up`, `host.session(sample=…)` in Python, or `box.client(sample=…)` in a test.",
    rpc_code=-32021,
)
HOST_NOT_ALLOWED = _add(
    "HOST_NOT_ALLOWED",
    403,
    "Use a host name that the server allows; --allow-host and --allow-origin add one.",
    rpc_code=-32600,
)
BAD_HTTP = _add(
    "BAD_HTTP",
    400,
    "POST one JSON-RPC message as application/json, and accept application/json and text/event-stream.",
    rpc_code=-32600,
)
UNKNOWN_MCP_SESSION = _add(
    "UNKNOWN_MCP_SESSION",
    404,
    "The session has ended; send initialize again and use the new Mcp-Session-Id.",
    rpc_code=-32600,
)
TOO_MANY_SESSIONS = _add(
    "TOO_MANY_SESSIONS",
    503,
    "End sessions that are no longer needed (DELETE), or raise the server's limit.",
    rpc_code=-32004,
    retryable=True,
)

# Agents that work together
UNKNOWN_AGENT = _add(
    "UNKNOWN_AGENT", 404, "`holdfast agents list` shows the agents that can be used, and why others cannot."
)
BAD_MESSAGE = _add(
    "BAD_MESSAGE", 400, "Shorten the text, or remove the control character, and send it again."
)
TOO_MANY_CHILDREN = _add(
    "TOO_MANY_CHILDREN",
    429,
    "Wait until another agent has finished, or continue without starting one.",
    retryable=True,
)

# Tools
BAD_TOOL = _add("BAD_TOOL", 500, "Correct this in the code of the server.")
BAD_PLUGIN = _add("BAD_PLUGIN", 500, "Install or correct the plugin, or remove it from the command.")
TOOL_FAILED = _add(
    "TOOL_FAILED", 422, "The message has the reason; change the arguments, or do something else."
)
DENIED = _add("DENIED", 403, "This session is not allowed to do that; the message has the reason.")
DECLINED = _add(
    "DECLINED", 403, "The user did not answer or said no; do not ask the same again without a new reason."
)
CALL_NOT_WAITING = _add(
    "CALL_NOT_WAITING",
    409,
    "The call waited too long, was answered already, or the server was restarted; call again without requestState.",
    rpc_code=-32602,
)
UNKNOWN_RESOURCE = _add(
    "UNKNOWN_RESOURCE",
    404,
    "List the resources and resource templates, and use one of them.",
    rpc_code=-32002,
)
UNKNOWN_PROMPT = _add(
    "UNKNOWN_PROMPT", 404, "List the prompts and use a name from the list.", rpc_code=-32602
)
EVAL_DISABLED = _add("EVAL_DISABLED", 403, "The user can start the server with --allow-eval.")
EVAL_BLOCKED = _add("EVAL_BLOCKED", 403, "Avoid the keyword that the message names, or use another tool.")
NOT_RUNNING = _add(
    "NOT_RUNNING",
    409,
    "Start a browser, an app or a shell with this server's tools first, or give the id of a running one.",
)
MISSING_WORKSPACE = _add(
    "MISSING_WORKSPACE",
    400,
    "Pass `workspace`: a slug, a name, or an absolute path in a workspace. Or open the session in a workspace.",
    rpc_code=-32602,
)
WORKSPACE_DENIED = _add(
    "WORKSPACE_DENIED", 403, "A sandboxed session can use only its own workspace; leave `workspace` out."
)
NOT_APPROVED = _add("NOT_APPROVED", 403, "Review the server with `holdfast servers approve`.")
NOT_PERMITTED = _add("NOT_PERMITTED", 403, "Try again and allow the call, or change the session's mode.")

# File tools
BAD_PATH = _add(
    "BAD_PATH", 400, "Give a path inside the session's folders, as `list` shows it.", rpc_code=-32602
)
OUTSIDE_ROOTS = _add(
    "OUTSIDE_ROOTS",
    403,
    "Use the session's folders, or open a session that may use that folder.",
)
NO_FILE = _add("NO_FILE", 404, "Use `list` or `find` to see the existing files.")
NOT_A_FILE = _add(
    "NOT_A_FILE", 409, "Give the path of a file to read or change it, or of a folder to list it."
)
NOT_TEXT = _add("NOT_TEXT", 415, "These tools read and write UTF-8 text only.")
FILE_TOO_LARGE = _add("FILE_TOO_LARGE", 413, "Use smaller files.")
NO_MATCH = _add("NO_MATCH", 409, "Read the file again, and give the exact text including whitespace.")
SEVERAL_MATCHES = _add("SEVERAL_MATCHES", 409, "Give more of the surrounding text, or set `all` to true.")
FILE_CHANGED = _add(
    "FILE_CHANGED",
    409,
    "The file has changed since it was read; read it again and repeat the change.",
    retryable=True,
)
FILE_ERROR = _add(
    "FILE_ERROR", 500, "The operating system refused the operation; the message has the reason."
)
EDITOR_REFUSED = _add(
    "EDITOR_REFUSED",
    502,
    "This session's files are read and written by the editor, which refused; the message has the reason.",
)
