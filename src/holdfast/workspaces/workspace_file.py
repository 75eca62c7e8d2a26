"""Reads and writes the TOML file of a workspace."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TypeVar, cast

from holdfast.model import codes
from holdfast.model.allowlist import ALLOW_ALL, ALLOW_NONE, Allowlist
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import NO_RESTRICTION, Mode, PermissionRestriction, parse_mode
from holdfast.model.quota import Quota
from holdfast.model.reserved_variables import reserved_variable_reason
from holdfast.model.tool_pattern import ToolPattern, parse_tool_patterns
from holdfast.model.trust import Trust, parse_trust
from holdfast.model.workspace import Workspace

T = TypeVar("T")

QUOTA_KEYS = tuple(field.name for field in fields(Quota))
PERMISSION_KEYS = tuple(field.name for field in fields(PermissionRestriction))
KEYS = (
    *("name", "path", "trust", "servers", "tools", "model"),
    *(f"permission.{name}" for name in PERMISSION_KEYS),
    *(f"sandbox.{name}" for name in QUOTA_KEYS),
    "env.<server>.<VARIABLE>",
)
MAX_NAME_LENGTH = 200

_MINIMUMS = {"memory_bytes": 1024**2, "processes": 1, "file_bytes": 0, "descriptors": 16}
_MAX_NUMBER = 2**53
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_MUST_ESCAPE = re.compile(r'["\\\x00-\x1f\x7f]')
_TABLE = re.compile(r"^[ \t]*+\[", re.MULTILINE)
_PATH_KEY = re.compile(r"""^[ \t]*+["']?path["']?[ \t]*+=[ \t]*+""", re.MULTILINE)
_PATH_VALUE = re.compile(r"""(?:"([^"\\\n]*+)"|'([^'\n]*+)')[ \t\r]*+(?:#.*+)?$""", re.MULTILINE)


def parse_workspace(slug: str, text: str) -> Workspace:
    """Parse the text of a workspace's file. The error lists every mistake, one per line."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise HoldfastError(
            codes.BAD_WORKSPACE_FILE, f"not valid TOML: {error}. Correct that line."
        ) from None
    reader = _TableReader(table)
    workspace = _build_workspace(slug, reader)
    problems = [*reader.problems, *_describe_unknown_keys(table)]
    if problems:
        raise HoldfastError(codes.BAD_WORKSPACE_FILE, "\n".join(problems))
    return workspace


def format_workspace(workspace: Workspace) -> str:
    """Format a workspace as a text that `parse_workspace` can read."""
    return "".join(f"{line}\n" for line in _format_lines(workspace))


def guess_path(text: str) -> str:
    """Find the workspace's folder in an invalid file. Empty if it is uncertain.

    If the text is not valid TOML, exactly one line before its first table must set the path.
    """
    import tomllib

    try:
        path = tomllib.loads(text).get("path")
    except (tomllib.TOMLDecodeError, RecursionError):
        head = _TABLE.split(text, maxsplit=1)[0]
        keys = [*_PATH_KEY.finditer(head)]
        value = _PATH_VALUE.match(head, keys[0].end()) if len(keys) == 1 else None
        path = (value[1] or value[2]) if value else None
    try:
        return _parse_path(path)
    except ValueError:
        return ""


def check_name(raw: object) -> str:
    """Return a workspace's name without spaces around it. Raises ValueError if the name is invalid or looks like a path."""
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError("must be a non-empty string")
    name = raw.strip()
    if len(name) > MAX_NAME_LENGTH or not name.isprintable() or "/" in name or "\\" in name:
        raise ValueError(f"must be at most {MAX_NAME_LENGTH} printable characters, without / and \\")
    return name


def _build_workspace(slug: str, reader: "_TableReader") -> Workspace:
    sandbox = _TableReader(reader.get("sandbox", _parse_table, {}), "sandbox.", reader.problems)
    defaults = asdict(Quota())
    quota = {name: sandbox.get(name, _number_parser(_MINIMUMS[name]), defaults[name]) for name in QUOTA_KEYS}
    return Workspace(
        slug=slug,
        name=reader.get("name", check_name, slug),
        path=reader.require("path", _parse_path, ""),
        trust=reader.get("trust", _parse_trust, Trust.SANDBOXED),
        servers=reader.get("servers", _parse_allowlist, ALLOW_ALL),
        tools=reader.get("tools", _parse_allowlist, ALLOW_ALL),
        permission=_read_permission(reader),
        quota=Quota(**quota),
        env=_read_env(_TableReader(reader.get("env", _parse_table, {}), "env.", reader.problems)),
        model=reader.get("model", _parse_text, "") or None,
    )


def _read_permission(reader: "_TableReader") -> PermissionRestriction:
    permission = _TableReader(reader.get("permission", _parse_table, {}), "permission.", reader.problems)
    nothing: tuple[ToolPattern, ...] = ()
    return PermissionRestriction(
        deny=permission.get("deny", parse_tool_patterns, nothing),
        ask=permission.get("ask", parse_tool_patterns, nothing),
        max_mode=permission.get("max_mode", parse_mode, Mode.AUTO),
    )


def _read_env(servers: "_TableReader") -> dict[str, dict[str, str]]:
    env: dict[str, dict[str, str]] = {}
    for server in servers.table:
        variables = _TableReader(servers.get(server, _parse_table, {}), f"env.{server}.", servers.problems)
        env[server] = {name: variables.get(name, _variable_parser(name), "") for name in variables.table}
    return env


@dataclass(slots=True)
class _TableReader:
    """Reads the values of a TOML table, and collects every mistake in `problems`."""

    table: Mapping[str, object]
    prefix: str = ""
    problems: list[str] = field(default_factory=list[str])

    def get(self, name: str, parse: Callable[[object], T], default: T) -> T:
        if name not in self.table:
            return default
        try:
            return parse(self.table[name])
        except (ValueError, HoldfastError) as error:
            self.problems.append(f"{self.prefix}{name}: {str(error).rstrip('.')}.")
            return default

    def require(self, name: str, parse: Callable[[object], T], default: T) -> T:
        if name not in self.table:
            self.problems.append(f"{self.prefix}{name} is missing.")
        return self.get(name, parse, default)


def _describe_unknown_keys(table: Mapping[str, object]) -> Iterator[str]:
    from difflib import get_close_matches

    top_level = sorted({key.partition(".")[0] for key in KEYS})
    keys = [(name, "", top_level) for name in table]
    for section, known in (("permission", PERMISSION_KEYS), ("sandbox", QUOTA_KEYS)):
        inner = table.get(section)
        if isinstance(inner, dict):
            keys += [(name, f"{section}.", list(known)) for name in cast("dict[str, object]", inner)]
    for name, prefix, known_keys in keys:
        if prefix + name == "permission.allow":
            yield (
                "permission.allow is not possible in a workspace: a workspace can only restrict. Allow tools in the settings"
                " file; `holdfast settings path` prints its path."
            )
        elif name not in known_keys:
            suggestion = get_close_matches(name, known_keys, n=1)
            fix = (
                f"Did you mean {suggestion[0]!r}?" if suggestion else f"Known keys: {', '.join(known_keys)}."
            )
            yield f"unknown key {prefix + name!r}. {fix}"


def _parse_table(raw: object) -> Mapping[str, object]:
    if not isinstance(raw, dict):
        raise ValueError("must be a table")
    return cast("dict[str, object]", raw)


def _parse_text(raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError("must be a non-empty string")
    return raw.strip()


def _parse_path(raw: object) -> str:
    if not isinstance(raw, str) or "\0" in raw or not Path(raw).is_absolute() or ".." in Path(raw).parts:
        raise ValueError("must be the absolute path of a folder, without '..'")
    return raw


def _parse_trust(raw: object) -> Trust:
    if not isinstance(raw, str):
        raise ValueError("must be 'direct' or 'sandboxed'")
    return parse_trust(raw)


def _parse_allowlist(raw: object) -> Allowlist:
    if raw == "all":
        return ALLOW_ALL
    if raw == "none":
        return ALLOW_NONE
    names = cast("list[object]", raw) if isinstance(raw, list) else [None]
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError('must be "all", "none" or a list of names')
    return Allowlist(frozenset(str(name) for name in names))


def _number_parser(minimum: int) -> Callable[[object], int]:
    def parse(raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int) or not minimum <= raw <= _MAX_NUMBER:
            raise ValueError(f"must be a whole number from {minimum} to {_MAX_NUMBER}")
        return raw

    return parse


def _variable_parser(name: str) -> Callable[[object], str]:
    def parse(raw: object) -> str:
        if not _VARIABLE.fullmatch(name):
            raise ValueError("is not a valid variable name")
        if why := reserved_variable_reason(name):
            raise ValueError(f"may not be set here: {why}")
        if not isinstance(raw, str) or "\0" in raw:
            raise ValueError("must be a string without a NUL character")
        return raw

    return parse


def _format_lines(workspace: Workspace) -> Iterator[str]:
    yield "# A Holdfast workspace. All keys are documented in docs/workspaces.md"
    yield f"name = {_quote(workspace.name)}"
    yield f"path = {_quote(workspace.path)}"
    yield f"trust = {_quote(workspace.trust.value)}"
    yield f"servers = {_format_allowlist(workspace.servers)}"
    yield f"tools = {_format_allowlist(workspace.tools)}"
    if workspace.model is not None:
        yield f"model = {_quote(workspace.model)}"
    if workspace.permission != NO_RESTRICTION:
        yield "\n[permission]"
        yield f"deny = {_format_patterns(workspace.permission.deny)}"
        yield f"ask = {_format_patterns(workspace.permission.ask)}"
        yield f"max_mode = {_quote(workspace.permission.max_mode)}"
    if workspace.quota != Quota():
        yield "\n[sandbox]"
        yield from (f"{name} = {value}" for name, value in asdict(workspace.quota).items())
    for server, variables in workspace.env.items():
        yield f"\n[env.{_quote(server)}]"
        yield from (f"{_quote(name)} = {_quote(value)}" for name, value in variables.items())


def _format_allowlist(allowlist: Allowlist) -> str:
    if allowlist.names is None:
        return '"all"'
    return f"[{', '.join(map(_quote, sorted(allowlist.names)))}]" if allowlist.names else '"none"'


def _format_patterns(patterns: tuple[ToolPattern, ...]) -> str:
    return f"[{', '.join(_quote(str(pattern)) for pattern in patterns)}]"


def _quote(text: str) -> str:
    return '"%s"' % _MUST_ESCAPE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
