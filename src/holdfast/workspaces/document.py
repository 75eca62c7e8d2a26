"""One workspace as a TOML document."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TypeVar, cast

from holdfast.model import codes
from holdfast.model.choice import ALL, NONE, Choice
from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Quota
from holdfast.model.trust import Trust, parse_trust
from holdfast.model.variables import why_reserved
from holdfast.model.workspace import Workspace

T = TypeVar("T")

QUOTA = tuple(field.name for field in fields(Quota))
KEYS = (
    *("name", "path", "trust", "servers", "tools", "model"),
    *(f"sandbox.{name}" for name in QUOTA),
    "env.<server>.<VARIABLE>",
)
NAME_LENGTH = 200

_LEAST = {"memory_bytes": 1024**2, "processes": 1, "file_bytes": 0, "descriptors": 16}
_MOST = 2**53
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_SPECIAL = re.compile(r'["\\\x00-\x1f\x7f]')
_PATH = re.compile(r"""^\s*path\s*=\s*(?:"([^"\\\n]*)"|'([^'\n]*)')""", re.MULTILINE)


def read(slug: str, text: str) -> Workspace:
    """The workspace that a document describes; an error that names every mistake in it, one a line."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise HoldfastError(
            codes.BAD_WORKSPACE_FILE, f"not valid TOML: {error}. Correct that line."
        ) from None
    reader = _Reader(table)
    workspace = _workspace(slug, reader)
    problems = [*reader.problems, *_unknown(table)]
    if problems:
        raise HoldfastError(codes.BAD_WORKSPACE_FILE, "\n".join(problems))
    return workspace


def write(workspace: Workspace) -> str:
    """The document of a workspace: `read` gives the same workspace back."""
    return "".join(f"{line}\n" for line in _lines(workspace))


def path_in(text: str) -> str:
    """The path that even a broken document names, as far as can be told; empty when it cannot."""
    found = _PATH.search(text)
    return (found[1] or found[2] or "") if found else ""


def checked_name(raw: object) -> str:
    """A name that people can read and addresses can tell from a path."""
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError("must be text")
    name = raw.strip()
    if len(name) > NAME_LENGTH or not name.isprintable() or "/" in name or "\\" in name:
        raise ValueError(f"must be at most {NAME_LENGTH} printable characters, with neither / nor \\")
    return name


def _workspace(slug: str, reader: "_Reader") -> Workspace:
    sandbox = _Reader(reader.get("sandbox", _table, {}), "sandbox.", reader.problems)
    default = asdict(Quota())
    quota = {name: sandbox.get(name, _number(_LEAST[name]), default[name]) for name in QUOTA}
    return Workspace(
        slug=slug,
        name=reader.get("name", checked_name, slug),
        path=reader.need("path", _path, ""),
        trust=reader.get("trust", _trust, Trust.SANDBOXED),
        servers=reader.get("servers", _choice, ALL),
        tools=reader.get("tools", _choice, ALL),
        quota=Quota(**quota),
        env=_env(_Reader(reader.get("env", _table, {}), "env.", reader.problems)),
        model=reader.get("model", _text, "") or None,
    )


def _env(servers: "_Reader") -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for server in servers.table:
        variables = _Reader(servers.get(server, _table, {}), f"env.{server}.", servers.problems)
        found[server] = {name: variables.get(name, _value_of(name), "") for name in variables.table}
    return found


@dataclass(slots=True)
class _Reader:
    """Gives the values of a table, and gathers all that is wrong with them."""

    table: Mapping[str, object]
    prefix: str = ""
    problems: list[str] = field(default_factory=list[str])

    def get(self, name: str, read: Callable[[object], T], default: T) -> T:
        """The value of a name; where it is missing or wrong, the default."""
        if name not in self.table:
            return default
        try:
            return read(self.table[name])
        except (ValueError, HoldfastError) as error:
            self.problems.append(f"{self.prefix}{name}: {str(error).rstrip('.')}.")
            return default

    def need(self, name: str, read: Callable[[object], T], default: T) -> T:
        """The value of a name that must be there."""
        if name not in self.table:
            self.problems.append(f"{self.prefix}{name} is missing.")
        return self.get(name, read, default)


def _unknown(table: Mapping[str, object]) -> Iterator[str]:
    from difflib import get_close_matches

    known = sorted({key.partition(".")[0] for key in KEYS})
    inner = table.get("sandbox")
    keys = [(name, "", known) for name in table]
    if isinstance(inner, dict):
        keys += [(name, "sandbox.", list(QUOTA)) for name in cast("dict[str, object]", inner)]
    for name, prefix, there_are in keys:
        if name not in there_are:
            near = get_close_matches(name, there_are, n=1)
            fix = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(there_are)}."
            yield f"unknown key {prefix + name!r}. {fix}"


def _table(raw: object) -> Mapping[str, object]:
    if not isinstance(raw, dict):
        raise ValueError("must be a table")
    return cast("dict[str, object]", raw)


def _text(raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError("must be text")
    return raw.strip()


def _path(raw: object) -> str:
    if not isinstance(raw, str) or "\0" in raw or not Path(raw).is_absolute() or ".." in Path(raw).parts:
        raise ValueError("must be the absolute path of a folder, without '..'")
    return raw


def _trust(raw: object) -> Trust:
    if not isinstance(raw, str):
        raise ValueError("must be 'direct' or 'sandboxed'")
    return parse_trust(raw)


def _choice(raw: object) -> Choice:
    if raw == "all":
        return ALL
    if raw == "none":
        return NONE
    names = cast("list[object]", raw) if isinstance(raw, list) else [None]
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError('must be "all", "none" or a list of names')
    return Choice(frozenset(str(name) for name in names))


def _number(least: int) -> Callable[[object], int]:
    def read(raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int) or not least <= raw <= _MOST:
            raise ValueError(f"must be a whole number from {least} up")
        return raw

    return read


def _value_of(name: str) -> Callable[[object], str]:
    def read(raw: object) -> str:
        if not _VARIABLE.fullmatch(name):
            raise ValueError("is no name of a variable")
        if why := why_reserved(name):
            raise ValueError(f"may not be set here: {why}")
        if not isinstance(raw, str) or "\0" in raw:
            raise ValueError("must be text, without a NUL character")
        return raw

    return read


def _lines(workspace: Workspace) -> Iterator[str]:
    yield "# A workspace of Holdfast. Its documentation lists the keys: docs/workspaces.md"
    yield f"name = {_quoted(workspace.name)}"
    yield f"path = {_quoted(workspace.path)}"
    yield f"trust = {_quoted(workspace.trust.value)}"
    yield f"servers = {_chosen(workspace.servers)}"
    yield f"tools = {_chosen(workspace.tools)}"
    if workspace.model is not None:
        yield f"model = {_quoted(workspace.model)}"
    if workspace.quota != Quota():
        yield "\n[sandbox]"
        yield from (f"{name} = {value}" for name, value in asdict(workspace.quota).items())
    for server, variables in workspace.env.items():
        yield f"\n[env.{_quoted(server)}]"
        yield from (f"{_quoted(name)} = {_quoted(value)}" for name, value in variables.items())


def _chosen(choice: Choice) -> str:
    if choice.names is None:
        return '"all"'
    return f"[{', '.join(map(_quoted, sorted(choice.names)))}]" if choice.names else '"none"'


def _quoted(text: str) -> str:
    return '"%s"' % _SPECIAL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
