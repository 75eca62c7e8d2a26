"""Decides whether a tool may be called: by rules, by remembered answers, and by the session's mode."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec
from msgspec import UnsetType

from holdfast.connect.catalog import CatalogTool
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import (
    NO_RESTRICTION,
    Access,
    DoorKind,
    Mode,
    PermissionRestriction,
    lowest_mode,
)
from holdfast.model.server import TRUSTED_SOURCES, ServerSpec, Source
from holdfast.model.tool_pattern import ToolPattern
from holdfast.settings import PermissionSettings

ToolKey = tuple[str, str]
"""The names of a server and of its tool."""
SETTINGS = "the settings"
_DOOR_NAMES = {
    DoorKind.ACP: "an editor",
    DoorKind.CHAT: "a chat",
    DoorKind.CLI: "a command",
    DoorKind.GATEWAY: "an MCP client",
    DoorKind.PYTHON: "an application",
}
_NOTHING_REMEMBERED: frozenset[ToolKey] = frozenset()
# A project's server runs only if a person approved it. A client chooses the names of the servers that it supplies, and the
# user does not approve them: a rule for the user's own `github` must not allow the tools of a client's server of the same name.
_SOURCES_FOR_ALLOW_RULES = frozenset({Source.BUILTIN, *TRUSTED_SOURCES, Source.PROJECT})


class Step(StrEnum):
    """What decided about a call."""

    DENY = "deny rule"
    ASK = "ask rule"
    REMEMBERED = "remembered answer"
    ALLOW = "allow rule"
    MODE = "mode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A pattern of tools, and where the rule comes from, as messages name it: `the workspace 'blog'`."""

    pattern: ToolPattern
    imposed_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    """Whether a tool may be called, what decided it, and the reason to show."""

    access: Access
    step: Step
    reason: str
    rule: Rule | None = None
    """None if no rule decided."""
    by: str = ""
    """What decided, if no rule did: `mode ask`."""

    @property
    def summary(self) -> str:
        """The decision and what made it: `must ask: ask rule 'mail.*' of the settings`."""
        if self.rule is None:
            return f"{self.access}: {self.by}"
        return f"{self.access}: {self.step} '{self.rule.pattern}' of {self.rule.imposed_by}"

    @property
    def can_remember(self) -> bool:
        """Whether the user may answer *always*. An `ask` rule requires an answer for every call."""
        return self.access is Access.MUST_ASK and self.step is Step.MODE


def _no_limits() -> Mapping[DoorKind, Mode]:
    return dict.fromkeys(DoorKind, Mode.AUTO)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRules:
    """The rules of a session, and the highest mode that each kind of door can choose."""

    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()
    door_modes: Mapping[DoorKind, Mode] = field(default_factory=_no_limits, hash=False)
    max_mode: Mode = Mode.AUTO
    """The lowest mode limit of all restrictions. It applies to every call."""
    max_mode_imposed_by: str = ""
    max_mode_field: str = "permission.max_mode"
    """The field that sets `max_mode`, as messages name it."""

    def restrict(
        self, restriction: PermissionRestriction, imposed_by: str, mode_field: str = "permission.max_mode"
    ) -> "PermissionRules":
        """These rules with the restriction added. The result never allows more than these rules."""
        if restriction == NO_RESTRICTION:
            return self
        lowers = lowest_mode(self.max_mode, restriction.max_mode) is not self.max_mode
        return replace(
            self,
            # Without duplicates: the rules of a session inside another one may contain this restriction already.
            deny=tuple(dict.fromkeys((*self.deny, *_make_rules(restriction.deny, imposed_by)))),
            ask=tuple(dict.fromkeys((*self.ask, *_make_rules(restriction.ask, imposed_by)))),
            max_mode=restriction.max_mode if lowers else self.max_mode,
            max_mode_imposed_by=imposed_by if lowers else self.max_mode_imposed_by,
            max_mode_field=mode_field if lowers else self.max_mode_field,
        )

    def max_mode_of(self, door: DoorKind) -> Mode:
        """The highest mode that this door may choose."""
        return lowest_mode(self.max_mode, self.door_modes.get(door, Mode.READ_ONLY))


NO_RULES = PermissionRules()


def rules_from_settings(settings: PermissionSettings) -> PermissionRules:
    """The rules that the settings make for every session."""
    caps = settings.max_mode
    return PermissionRules(
        deny=_make_rules(settings.deny, SETTINGS),
        ask=_make_rules(settings.ask, SETTINGS),
        allow=_make_rules(settings.allow, SETTINGS),
        door_modes={
            DoorKind.ACP: caps.acp,
            DoorKind.CHAT: caps.chat,
            DoorKind.CLI: caps.cli,
            DoorKind.GATEWAY: caps.gateway,
            DoorKind.PYTHON: caps.python,
        },
    )


def decide(
    tool: CatalogTool,
    mode: Mode,
    rules: PermissionRules = NO_RULES,
    remembered: AbstractSet[ToolKey] = _NOTHING_REMEMBERED,
    key: ToolKey | None = None,
) -> AccessDecision:
    """Decide about a call: by `deny` rules, `ask` rules, remembered answers (*always allow*), `allow` rules, then the mode.

    What the mode `read-only` refuses stays refused, even if an `ask` rule or a remembered answer applies; only an `allow` rule
    permits it. `key` is the key of remembered answers about this call; by default, the tool's key.
    """
    if denied := _find_rule(rules.deny, tool):
        return AccessDecision(
            access=Access.REFUSED,
            step=Step.DENY,
            reason=f"{tool.name} is denied by the rule '{denied.pattern}' of {denied.imposed_by}. Remove the rule to allow it.",
            rule=denied,
        )
    otherwise = _decide_by_allow_rule(tool, rules) or _decide_by_mode(tool, mode, rules)
    if otherwise.access is Access.REFUSED:
        return otherwise
    if asked := _find_rule(rules.ask, tool):
        return AccessDecision(
            access=Access.MUST_ASK,
            step=Step.ASK,
            reason=f"The rule '{asked.pattern}' of {asked.imposed_by} requires permission for every call.",
            rule=asked,
        )
    if (key or tool_key(tool)) in remembered:
        return _REMEMBERED
    return otherwise


def tool_key(tool: CatalogTool) -> ToolKey:
    """The key under which an answer about a tool is remembered."""
    return tool.server.name, tool.definition.name


def allow_rules_apply_to(server: ServerSpec) -> bool:
    """Whether `allow` rules apply to the tools of this server. They do not if a client supplied it."""
    return server.source in _SOURCES_FOR_ALLOW_RULES


def is_read_only(tool: CatalogTool) -> bool:
    """Whether the tool's hints say that it only reads, and do not also say that it is destructive."""
    annotations = tool.definition.annotations
    if isinstance(annotations, UnsetType):
        return False
    try:
        hints = msgspec.json.decode(annotations, type=_Annotations)
    except msgspec.ValidationError:
        return False
    return hints.read_only_hint and not hints.destructive_hint


def check_mode(mode: Mode, door: DoorKind, rules: PermissionRules, when: str = "here") -> None:
    """Raise NOT_PERMITTED if the door may not choose this mode. In `when`, `{}` stands for the door."""
    limit = rules.max_mode_of(door)
    if lowest_mode(mode, limit) is mode:
        return
    if limit is rules.max_mode:
        who, what = rules.max_mode_imposed_by, rules.max_mode_field
    else:
        who, what = SETTINGS, f"permission.max_mode.{door}"
    raise HoldfastError(
        codes.NOT_PERMITTED,
        f"The mode {mode} is not allowed {when.format(_DOOR_NAMES[door])}: {what} of {who} allows at most {limit}.",
        hint=f"Use the mode {limit}, or change {what}.",
    )


def limit_mode(mode: Mode, door: DoorKind, rules: PermissionRules) -> Mode:
    """The mode, but at most the highest one that the door may choose."""
    return lowest_mode(mode, rules.max_mode_of(door))


def _make_rules(patterns: tuple[ToolPattern, ...], imposed_by: str) -> tuple[Rule, ...]:
    return tuple(Rule(pattern=pattern, imposed_by=imposed_by) for pattern in patterns)


def _find_rule(rules: tuple[Rule, ...], tool: CatalogTool) -> Rule | None:
    server, name = tool_key(tool)
    for rule in rules:
        if rule.pattern.matches(server, name):
            return rule
    return None


def _decide_by_allow_rule(tool: CatalogTool, rules: PermissionRules) -> AccessDecision | None:
    rule = _find_rule(rules.allow, tool)
    if rule is None or not allow_rules_apply_to(tool.server):
        return None
    reason = f"The rule '{rule.pattern}' of {rule.imposed_by} allows it."
    return AccessDecision(access=Access.ALLOWED, step=Step.ALLOW, reason=reason, rule=rule)


def _decide_by_mode(tool: CatalogTool, mode: Mode, rules: PermissionRules) -> AccessDecision:
    limited = lowest_mode(mode, rules.max_mode)
    if limited is Mode.AUTO:
        return _AUTO
    if is_read_only(tool):
        return _READ_ONLY_TOOL
    if limited is rules.max_mode:
        why, fix = (
            f"{rules.max_mode_imposed_by} limits the mode to {limited}",
            "Change that limit to allow it.",
        )
    else:
        why, fix = (
            f"this session's mode is {limited}",
            f"Change the mode to {Mode.ASK} or {Mode.AUTO} to allow it.",
        )
    reason, by = f"{tool.name} may change something, and {why}.", f"mode {limited}"
    if (rule := _find_rule(rules.allow, tool)) is not None:
        reason += f" The rule '{rule.pattern}' of {rule.imposed_by} does not apply, because a client supplied the server."
        by += f"; allow rule '{rule.pattern}' does not apply to a client's server"
    if limited is Mode.ASK:
        return AccessDecision(access=Access.MUST_ASK, step=Step.MODE, reason=reason, by=by)
    return AccessDecision(access=Access.REFUSED, step=Step.MODE, reason=f"{reason} {fix}", by=by)


class _Annotations(msgspec.Struct, rename="camel"):
    read_only_hint: bool = False
    destructive_hint: bool = False


_AUTO = AccessDecision(access=Access.ALLOWED, step=Step.MODE, reason="The mode is auto.", by="mode auto")
_READ_ONLY_TOOL = AccessDecision(
    access=Access.ALLOWED, step=Step.MODE, reason="It only reads.", by="it only reads"
)
_REMEMBERED = AccessDecision(
    access=Access.ALLOWED,
    step=Step.REMEMBERED,
    reason="The user always allows it in this session.",
    by="remembered answer",
)
