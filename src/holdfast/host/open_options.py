"""The options of opening a session: as applications give them, and as the host uses them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias, TypedDict, cast

import msgspec

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.permission import Mode, ToolPattern, lowest_mode, parse_tool_patterns, require_mode
from holdfast.model.trust import Trust, parse_trust
from holdfast.resolve.select import Restriction

ServerConfigs: TypeAlias = Mapping[str, Mapping[str, object]]
"""Servers by name, each as in a `.mcp.json` file: `{"counter": {"command": "python", "args": ["counter.py"]}}`."""


class SessionOptions(TypedDict, total=False):
    """The options of `host.session` and `host.run`. None of them is required."""

    cwd: str | Path
    """The session's folder. By default, the current folder."""
    workspace: str
    """The slug, the name or the path of a workspace. By default, the one that the folder belongs to, if any."""
    trust: Trust | Literal["direct", "sandboxed"] | None
    """The highest trust that the session may have. The settings, the workspace or another workspace nearby may lower it."""
    servers: ServerConfigs
    """Servers of the application, for this session only. They are trusted like the host's own."""
    only_these: bool
    """Whether the session gets no other servers than `servers`: neither configured nor built-in ones."""
    tools: Sequence[str] | None
    """Patterns of the tools to offer, as in permission rules: `["counter.add", "files.*"]`. By default, all tools."""
    user_id: str | None
    """The user that the session belongs to. Servers are told; sessions of other users are kept apart."""
    title: str
    """By default, the beginning of the first prompt."""
    tags: Sequence[str]
    """Words to find the session by."""
    permission: Mode | Literal["auto", "ask", "read-only"]
    """What the session does with calls that may change something. `auto`, the default, makes them."""
    keep: bool
    """Whether the session and its events are stored. By default they are. The audit records every call in either case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """The options of opening a session. `cwd` must be the absolute path of an existing folder."""

    cwd: str | Path = ""
    roots: tuple[str, ...] = ()
    workspace: str = ""
    trust: Trust | None = None
    """The highest trust the session may have. The settings, the workspace or the parent may lower it."""
    servers: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)
    """Servers of the application that opens the session, by name."""
    client_servers: tuple[Json, ...] = field(default=(), repr=False)
    """Servers that a client brings, such as an editor; each has a `name`."""
    only_these: bool = False
    """Whether the session gets no other servers than `servers` and `client_servers`."""
    tools: tuple[tuple[ToolPattern, ...], ...] = ()
    """Groups of patterns: only tools that match a pattern of every group are offered."""
    user_id: str | None = None
    parent: SessionContext | None = None
    """The session whose agent starts this one; its user and its workspace are used."""
    title: str = ""
    tags: tuple[str, ...] = ()
    keep: bool = True
    """Whether a new session and its events are stored."""
    opened_by: str = "python"
    """`acp`, `chat`, `cli` or `python`; `holdfast sessions` shows it as the source."""
    mode: Mode | None = Mode.AUTO
    """What the session does with calls that may change something. The settings and the workspace may lower it.

    None: the mode that the stored session had; `ask` for a new one.
    """
    restriction: Restriction | None = None
    """Set by a caller that runs a defined agent: the servers and tools that the definition allows. It only narrows."""
    only_server: str | None = None
    """The only server to use; the others are ignored."""
    door: Door | None = field(default=None, compare=False)
    """A door that is attached before the servers start, so that they learn what it supports."""


def parse_options(given: SessionOptions) -> OpenOptions:
    """Check the options of an application, and complete them with the defaults."""
    known = SessionOptions.__annotations__
    if unknown := [name for name in given if name not in known]:
        raise TypeError(
            f"There is no option {unknown[0]!r} of a session. The options are: {', '.join(known)}."
        )
    trust, tools = given.get("trust"), given.get("tools")
    return OpenOptions(
        cwd=Path(given.get("cwd", "")).absolute(),
        workspace=given.get("workspace", ""),
        trust=None if trust is None else parse_trust(trust),
        servers=parse_servers(given.get("servers", {})),
        only_these=given.get("only_these", False),
        tools=() if tools is None else (_parse_patterns(tools),),
        user_id=given.get("user_id"),
        title=given.get("title", ""),
        tags=_parse_texts("tags", given.get("tags", ())),
        keep=given.get("keep", True),
        mode=require_mode(given.get("permission", Mode.AUTO)),
    )


def inherit_options(
    given: SessionOptions, parent: SessionContext, outer: OpenOptions, mode: Mode
) -> OpenOptions:
    """The options of a session that is opened inside of another, the parent, which was opened with the options `outer`.

    What is not given is as in the parent. Its trust, its tools and its mode can only be narrowed; its user and its
    workspace cannot be changed.
    """
    options = parse_options(given)
    if options.user_id not in (None, parent.user_id):
        raise _cannot_change("user_id", parent)
    if options.workspace not in ("", parent.workspace_id):
        raise _cannot_change("workspace", parent)
    return replace(
        outer,
        cwd=options.cwd if "cwd" in given else parent.cwd,
        roots=() if "cwd" in given else parent.roots[1:],
        workspace="",
        trust=options.trust,
        servers=options.servers if "servers" in given else outer.servers,
        only_these=options.only_these if "only_these" in given else outer.only_these,
        tools=(*outer.tools, *options.tools),
        user_id=None,
        parent=parent,
        title=options.title,
        tags=options.tags,
        keep=options.keep if "keep" in given else outer.keep,
        opened_by="python",
        mode=lowest_mode(mode, options.mode or mode),
        door=None,
    )


def parse_servers(servers: ServerConfigs) -> dict[str, Json]:
    """A copy of an application's servers, as plain JSON. Paths in it become texts."""
    try:
        return msgspec.json.decode(msgspec.json.encode(servers, enc_hook=_to_json), type=dict[str, Any])
    except (TypeError, ValueError) as error:
        raise HoldfastError(
            codes.BAD_ARGUMENT, f'`servers` must be like {{"name": {{"command": "…"}}}}: {error}.'
        ) from None


def _to_json(value: Any) -> Any:
    match value:
        case PurePath():
            return str(value)
        case Mapping():
            return {**cast("Mapping[str, object]", value)}
        case _:
            raise TypeError(f"a value of the type {type(value).__name__} is not possible")


def _parse_patterns(tools: Sequence[str]) -> tuple[ToolPattern, ...]:
    try:
        return parse_tool_patterns([*_parse_texts("tools", tools)])
    except ValueError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"`tools` {error}.") from None


def _parse_texts(name: str, texts: Iterable[str]) -> tuple[str, ...]:
    if isinstance(texts, str):  # it would be taken for a list of its letters
        raise HoldfastError(codes.BAD_ARGUMENT, f"`{name}` must be a list of texts, not one text.")
    return tuple(texts)


def _cannot_change(name: str, parent: SessionContext) -> HoldfastError:
    return HoldfastError(
        codes.BAD_ARGUMENT,
        f"`{name}` is that of the session {parent.session_id}, in which this run is started, and cannot be changed.",
        hint=f"Leave out `{name}`, or open the session outside of the other one.",
    )
