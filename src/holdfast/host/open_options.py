"""The options of opening a session: as applications give them, and as the host uses them."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Literal, TypeAlias, TypedDict, cast

from holdfast.agent.agent import Agent
from holdfast.agent.model.model_agent import ModelAgent
from holdfast.connect.relay import Relay
from holdfast.host.callback_door import Ask, CallbackDoor, Elicit, Sample
from holdfast.host.server_config import NO_APP_SERVERS, AppServers, ServerConfigs, parse_servers
from holdfast.model import codes
from holdfast.model.agent_definition import AgentDefinition
from holdfast.model.context import SessionContext
from holdfast.model.door import Door
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json
from holdfast.model.parse_text import bad_type, parse_text, parse_texts, parse_user_id
from holdfast.model.permission import Mode, lowest_mode, require_mode
from holdfast.model.tool_pattern import ToolPattern, parse_tool_patterns
from holdfast.model.trust import Trust, parse_trust
from holdfast.resolve.select import Restriction
from holdfast.session.callbacks import check_callback
from holdfast.session.session import Session
from holdfast.store.types import StoredEvent

_MAX_MODEL = 200


OnEvent: TypeAlias = Callable[[StoredEvent], Awaitable[object] | object]


class SessionOptions(TypedDict, total=False):
    """The options of `host.session`, `host.run` and, except for `title`, `tags` and `keep`, of `host.reopen`. All are optional.

    None stands for the default, except for `only_these` and `keep`, which must be True or False.
    """

    cwd: str | Path | None
    """The session's folder. By default, the current folder."""
    workspace: str | None
    """The slug, the name or the path of a workspace. By default, the one that the folder belongs to, if any."""
    trust: Trust | Literal["direct", "sandboxed"] | None
    """The highest trust that the session may have. The settings, the workspace or an overlapping workspace may lower it."""
    servers: ServerConfigs | None
    """Servers of the application, for this session only. They are trusted like the servers that were passed to `Host`."""
    only_these: bool
    """Whether the session gets only `servers`: not the configured ones, the built-in ones, or those that were passed to `Host`."""
    tools: Sequence[str] | None
    """Patterns of the tools to offer, as in permission rules: `["counter.add", "files.*"]`. By default, all tools,
    except those of the built-in servers for agents (`shell`, `plan`, `agents`, `team`, `stage`): name them to get them."""
    user_id: str | None
    """The user that the session belongs to. Servers learn it, and other users cannot open the session."""
    title: str | None
    """By default, the beginning of the first prompt; commands other than `/call` do not count."""
    tags: Sequence[str] | None
    """Words to find the session by."""
    permission: Mode | Literal["auto", "ask", "read-only"] | None
    """What the session does with calls that may change something. `auto`, the default, makes them. Rules come first."""
    keep: bool
    """Whether the session and its events are stored. By default they are. The audit records every call in either case."""
    model: str | None
    """The model that answers prompts, such as `anthropic:claude-sonnet-5`. By default, that of the workspace or the settings."""
    agent: Agent | None
    """Answers the prompts instead of a model."""
    ask: Ask | None
    """A function that decides whether a call may run. With it, the default of `permission` is `ask`."""
    elicit: Elicit | None
    """A function that answers questions of servers."""
    sample: Sample | None
    """A function that answers the sampling requests of servers with a model."""
    on_event: OnEvent | None
    """A function that gets every event of the session, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """The options of opening a session. `cwd` must be the absolute path of an existing folder.

    A stored session is resumed in its own folder if `cwd` is left out.
    """

    cwd: str | Path = ""
    roots: tuple[str, ...] = ()
    """Further folders that the session may use."""
    workspace: str = ""
    trust: Trust | None = None
    """The highest trust the session may have. The settings, its workspace, an overlapping workspace or the parent may lower it."""
    servers: AppServers | ServerConfigs = NO_APP_SERVERS
    """Servers of the application that opens the session: `{"name": {…}}`."""
    client_servers: tuple[Json, ...] = field(default=(), repr=False)
    """Servers that a client supplies, such as those of an editor; each has a `name`."""
    only_these: bool = False
    """Whether the session gets only `servers` and `client_servers`."""
    tools: tuple[tuple[ToolPattern, ...], ...] = ()
    """Groups of patterns: only tools that match a pattern of every group are offered."""
    user_id: str | None = None
    quota_owner: str = ""
    """Who pays for the session, in every quota of what sessions share: at the gateway, the client's credential. Empty: the session itself.

    A session with a parent has the parent's owner.
    """
    parent: Session | None = field(default=None, compare=False, repr=False)
    """The session in which the new session is started. The new session has the parent's user and workspace, and never more rights."""
    title: str = ""
    tags: tuple[str, ...] = ()
    keep: bool = True
    """Whether a new session and its events are stored."""
    keep_logs: bool = True
    """Whether the standard error of its servers is written to log files."""
    opened_by: str = "python"
    """`acp`, `chat`, `cli`, `gateway` or `python`; `holdfast sessions` shows it as the source."""
    mode: Mode | None = Mode.AUTO
    """What the session does with calls that may change something. The settings, the workspace, the agent's definition and the parent may lower it.

    None: `ask` for a new session. A stored session keeps its mode, unless this one is lower.
    """
    restrictions: tuple[Restriction, ...] = ()
    """The servers and tools that the definition of an agent, a workspace or a client's token allows. They can only restrict."""
    model: str = ""
    """The model that answers prompts; by default, that of the stored session, of the workspace or of the settings."""
    agent: Agent | None = field(default=None, compare=False, repr=False)
    """Answers the prompts instead of a model."""
    builtins: frozenset[str] | None = None
    """The built-in servers to use. None: those that every session gets, and `extra_builtins`."""
    agent_name: str = ""
    """The name of the agent's definition."""
    definition: AgentDefinition | None = None
    """The definition with that name. `Opener` sets it."""
    limiting_definitions: tuple[AgentDefinition, ...] = ()
    """All definitions whose limits apply: the agent's own, those of the parent session, and those that a resumed session had."""
    extra_builtins: frozenset[str] = frozenset()
    """The built-in servers to offer in addition to those that every session gets."""
    only_server: str | None = None
    """The only server to use; the others are ignored."""
    door: Door | None = field(default=None, compare=False)
    """A door that is attached before the servers start, so that they learn what it supports."""
    relay: Relay | None = field(default=None, compare=False)
    """The MCP client that uses the session's servers through a gateway: their messages go to it."""
    on_event: OnEvent | None = field(default=None, compare=False)
    """A function that gets every event, until the session is closed."""

    def __post_init__(self) -> None:
        """Check what applications write as text or as a dictionary. A misspelled mode or trust is an error, never another value."""
        if not isinstance(self.servers, AppServers):
            object.__setattr__(self, "servers", parse_servers(self.servers))
        if self.mode is not None and not isinstance(cast("object", self.mode), Mode):
            object.__setattr__(self, "mode", require_mode(self.mode))
        if self.on_event is not None:
            check_callback("on_event", self.on_event)
        if self.trust is not None and not isinstance(cast("object", self.trust), Trust):
            object.__setattr__(self, "trust", parse_trust(parse_text("trust", self.trust)))

    @property
    def app_servers(self) -> AppServers:
        """The servers of the application, checked."""
        return cast("AppServers", self.servers)


def parse_options(given: SessionOptions) -> OpenOptions:
    """Check the options of an application, and complete them with the defaults."""
    known = SessionOptions.__annotations__
    if unknown := [name for name in given if name not in known]:
        raise unknown_option("A session", unknown[0], known)
    given = _without_none(given)
    trust, tools, user_id = given.get("trust"), given.get("tools"), given.get("user_id")
    ask, on_event = given.get("ask"), given.get("on_event")
    door = CallbackDoor(ask=ask, elicit_with=given.get("elicit"), sample_with=given.get("sample"))
    patterns = () if tools is None else (_parse_patterns(tools),)
    keep = _parse_flag("keep", given.get("keep", True))
    return OpenOptions(
        cwd=_parse_folder(given.get("cwd", "")),
        workspace=parse_text("workspace", given.get("workspace", "")),
        trust=None if trust is None else parse_trust(parse_text("trust", trust)),
        servers=parse_servers(cast("ServerConfigs", given.get("servers", {}))),
        only_these=_parse_flag("only_these", given.get("only_these", False)),
        tools=patterns,
        extra_builtins=frozenset(
            name for group in patterns for pattern in group for name in _plain_server(pattern)
        ),
        user_id=parse_user_id(user_id),
        title=parse_text("title", given.get("title", "")),
        tags=parse_texts("tags", given.get("tags", ())),
        keep=keep,
        keep_logs=keep,
        model=parse_text("model", given.get("model", ""), limit=_MAX_MODEL),
        agent=parse_agent(given.get("agent")),
        mode=require_mode(given.get("permission", Mode.AUTO if ask is None else Mode.ASK)),
        door=door if door.has_functions else None,
        on_event=on_event,
    )


def _without_none(given: SessionOptions) -> SessionOptions:
    """The options without those that are None, except for the flags, for which None is an error."""
    kept = {
        name: value for name, value in given.items() if value is not None or name in ("keep", "only_these")
    }
    return cast("SessionOptions", kept)


def unknown_option(what: str, name: str, known: Iterable[str]) -> TypeError:
    """The error for an option with a wrong name. It suggests the most similar name, or lists all names."""
    names = [*known]
    close = get_close_matches(name[:80], names, n=1)
    suggestion = f"Did you mean {close[0]!r}?" if close else f"The options are: {', '.join(names)}."
    return TypeError(f"{what} has no option {name!r}. {suggestion}")


def parse_reopen_options(given: SessionOptions) -> OpenOptions:
    """The options of reopening a stored session. What is not given is as it was stored."""
    given = _without_none(given)
    for name in ("title", "tags", "keep"):
        if name in given:
            raise HoldfastError(
                codes.BAD_ARGUMENT,
                f"`{name}` is that of the stored session, and cannot be changed when it is reopened.",
                hint=f"Leave out `{name}`.",
            )
    options = parse_options(given)
    return replace(
        options,
        cwd=options.cwd if "cwd" in given else "",
        mode=options.mode if "permission" in given or options.mode is Mode.ASK else None,
    )


def inherit_options(given: SessionOptions, parent: Session, outer: OpenOptions) -> OpenOptions:
    """The options of a session that is opened inside another session, its parent.

    `outer` are the options that the parent was opened with. Options that are not given are those of the parent, except for
    the title, the tags and the functions `ask`, `elicit`, `sample` and `on_event`. The trust, the tools, the mode and
    `only_these` can only restrict; the user and the workspace cannot be changed.
    """
    given = _without_none(given)
    options, context, mode = parse_options(given), parent.context, parent.permission.mode
    if options.user_id not in (None, context.user_id):
        raise _cannot_change("user_id", context)
    if options.workspace not in ("", context.workspace_id):
        raise _cannot_change("workspace", context)
    return replace(
        outer,
        cwd=options.cwd if "cwd" in given else context.cwd,
        roots=() if "cwd" in given else context.roots[1:],  # the first root is `cwd`
        workspace="",
        trust=options.trust,
        servers=options.servers if "servers" in given else outer.servers,
        only_these=options.only_these or outer.only_these,
        tools=(*outer.tools, *options.tools),
        extra_builtins=outer.extra_builtins,
        agent_name="",
        definition=None,
        user_id=None,
        parent=parent,
        title=options.title,
        tags=options.tags,
        keep=options.keep if "keep" in given else outer.keep,
        keep_logs=options.keep if "keep" in given else outer.keep_logs,
        model=options.model or _model_of(parent) or outer.model,
        agent=options.agent or outer.agent,
        opened_by="python",
        mode=lowest_mode(mode, options.mode or mode),
        door=options.door,
        on_event=options.on_event,
        relay=None,
    )


def _model_of(session: Session) -> str:
    """The model of an open session, which its user may have changed."""
    return session.agent.chosen_model if isinstance(session.agent, ModelAgent) else ""


def with_stored_folders(options: OpenOptions, stored: SessionContext) -> OpenOptions:
    """The options of resuming a stored session: without `cwd`, its folders are used."""
    if options.cwd:
        return options
    other_roots = stored.roots[1:]  # the first root is `cwd`
    return replace(options, cwd=stored.cwd, roots=options.roots or other_roots)


def narrow_options(options: OpenOptions, definition: AgentDefinition, *, is_own: bool = True) -> OpenOptions:
    """The options, restricted to what the agent's definition allows.

    `is_own`: whether this agent answers the session's prompts. If so, the definition also chooses the model, unless the user did.
    """
    restriction = Restriction(
        imposed_by=f"the agent {definition.name!r}", servers=definition.servers, patterns=definition.tools
    )
    definition_model = definition.model if is_own else ""
    # The user's choice comes before the definition's model. In a session inside another one, `options.model` is inherited.
    first, second = (
        (options.model, definition_model) if options.parent is None else (definition_model, options.model)
    )
    return replace(
        options,
        definition=definition if is_own else options.definition,
        limiting_definitions=(*options.limiting_definitions, definition),
        restrictions=(*options.restrictions, restriction),
        mode=None if options.mode is None else lowest_mode(options.mode, definition.mode),
        model=first or second,
    )


def _plain_server(pattern: ToolPattern) -> tuple[str, ...]:
    """The server that the pattern names without a `*`. Only such a pattern requests a built-in server."""
    return pattern.server if len(pattern.server) == 1 else ()


def _parse_patterns(tools: Sequence[str]) -> tuple[ToolPattern, ...]:
    try:
        return parse_tool_patterns([*parse_texts("tools", tools)])
    except ValueError as error:
        raise HoldfastError(codes.BAD_ARGUMENT, f"`tools` {error}.") from None


def _parse_flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise bad_type(name, "True or False", value)
    return value


def _parse_folder(value: object) -> Path:
    if not isinstance(value, str | PurePath):
        raise bad_type("cwd", "a path", value)
    return Path(value).absolute()


def parse_agent(value: object) -> Agent | None:
    """The agent that answers prompts. Raise if it is something else."""
    if isinstance(value, type):
        reason = f"`agent` must be a holdfast.Agent, not a class. Give it an object: {value.__name__}(…)."
        raise HoldfastError(codes.BAD_ARGUMENT, reason)
    if value is not None and not callable(getattr(value, "run_turn", None)):
        raise bad_type("agent", "a holdfast.Agent", value)
    return cast("Agent | None", value)


def _cannot_change(name: str, parent: SessionContext) -> HoldfastError:
    return HoldfastError(
        codes.BAD_ARGUMENT,
        f"`{name}` is that of the session {parent.session_id}, in which this run is started, and cannot be changed.",
        hint=f"Leave out `{name}`, or start the run outside that session.",
    )
