"""The decision about a call: the order of rules, remembered answers and mode, and who can only tighten it."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from holdfast import settings
from holdfast.connect.catalog import CatalogTool
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import Access, DoorKind, Mode, PermissionRestriction, lowest_mode
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.tool_pattern import ToolPattern, parse_tool_pattern
from holdfast.session.permission_rules import (
    NO_RULES,
    AccessDecision,
    PermissionRules,
    Rule,
    Step,
    ToolKey,
    check_mode,
    decide,
    limit_mode,
    rules_from_settings,
    tool_key,
)
from holdfast.settings import MaxModeSettings, PermissionSettings
from holdfast.wire.mcp.tools import Tool
from holdfast.workspaces.workspace_file import parse_workspace

pytestmark = pytest.mark.promise("SES-04")

DOCS = (Path(__file__).parent.parent.parent / "docs" / "permissions.md").read_text(encoding="utf-8")
READ_ONLY_HINT = Raw(b'{"readOnlyHint": true}')
LEAST_FIRST = (Access.REFUSED, Access.MUST_ASK, Access.ALLOWED)


def make_tool(
    server: str, name: str, *, read_only: bool = False, source: Source = Source.USER
) -> CatalogTool:
    return CatalogTool(
        server=ServerSpec(name=server, transport=Stdio(command="x"), source=source),
        definition=Tool(name=name, annotations=READ_ONLY_HINT if read_only else UNSET),
        name=f"{server}.{name}",
        model_name=f"{server}__{name}",
    )


def make_patterns(text: str) -> tuple[ToolPattern, ...]:
    return tuple(parse_tool_pattern(part) for part in text.split(",") if part)


def make_rules(deny: str = "", ask: str = "", allow: str = "", **max_modes: Mode) -> PermissionRules:
    return rules_from_settings(
        PermissionSettings(
            deny=make_patterns(deny),
            ask=make_patterns(ask),
            allow=make_patterns(allow),
            max_mode=MaxModeSettings(**max_modes),
        )
    )


PUSH, READ = make_tool("git", "push"), make_tool("git", "log", read_only=True)
ALWAYS = frozenset({tool_key(PUSH), tool_key(READ)})
NEVER: frozenset[ToolKey] = frozenset()


@pytest.mark.parametrize(
    ("tool", "rules", "remembered", "expected"),
    [
        # Each row: in the modes read-only, ask and auto.
        (PUSH, make_rules(), NEVER, "refused by mode, must ask by mode, allowed by mode"),
        (READ, make_rules(), NEVER, "allowed by mode, allowed by mode, allowed by mode"),
        (PUSH, make_rules(allow="git.push"), NEVER, "allowed by allow rule" + 2 * ", allowed by allow rule"),
        (PUSH, make_rules(), ALWAYS, "refused by mode" + 2 * ", allowed by remembered answer"),
        (PUSH, make_rules(allow="git.push"), ALWAYS, "allowed by remembered answer" + 2 * ", allowed by remembered answer"),
        (PUSH, make_rules(ask="git"), NEVER, "refused by mode, must ask by ask rule, must ask by ask rule"),
        (PUSH, make_rules(ask="git"), ALWAYS, "refused by mode, must ask by ask rule, must ask by ask rule"),
        (PUSH, make_rules(ask="git", allow="git"), ALWAYS, "must ask by ask rule" + 2 * ", must ask by ask rule"),
        (READ, make_rules(ask="git"), ALWAYS, "must ask by ask rule" + 2 * ", must ask by ask rule"),
        (READ, make_rules(deny="git.log"), ALWAYS, "refused by deny rule" + 2 * ", refused by deny rule"),
        (
            PUSH,
            make_rules(deny="*.push", ask="git", allow="git"),
            ALWAYS,
            "refused by deny rule" + 2 * ", refused by deny rule",
        ),
        (
            PUSH,
            make_rules(deny="hg, *.pull", ask="hg.push", allow="git.pull"),
            NEVER,
            "refused by mode, must ask by mode, allowed by mode",
        ),
    ],
)  # fmt: skip
def test_the_first_step_that_applies_decides(
    tool: CatalogTool, rules: PermissionRules, remembered: frozenset[ToolKey], expected: str
) -> None:
    decisions = [decide(tool, mode, rules, remembered) for mode in (Mode.READ_ONLY, Mode.ASK, Mode.AUTO)]

    assert ", ".join(f"{decision.access} by {decision.step}" for decision in decisions) == expected


def test_a_decision_names_the_rule_who_made_it_and_what_to_do() -> None:
    rules = make_rules(deny="*.push").restrict(
        PermissionRestriction(ask=make_patterns("git.log"), max_mode=Mode.READ_ONLY), "the workspace 'blog'"
    )

    assert decide(PUSH, Mode.AUTO, rules) == AccessDecision(
        access=Access.REFUSED,
        step=Step.DENY,
        reason="git.push is denied by the rule '*.push' of the settings. Remove the rule to allow it.",
        rule=Rule(pattern=parse_tool_pattern("*.push"), imposed_by="the settings"),
    )
    assert decide(READ, Mode.AUTO, rules) == AccessDecision(
        access=Access.MUST_ASK,
        step=Step.ASK,
        reason="The rule 'git.log' of the workspace 'blog' requires permission for every call.",
        rule=Rule(pattern=parse_tool_pattern("git.log"), imposed_by="the workspace 'blog'"),
    )
    assert decide(make_tool("git", "commit"), Mode.AUTO, rules) == AccessDecision(
        access=Access.REFUSED,
        step=Step.MODE,
        reason="git.commit may change something, and the workspace 'blog' limits the mode to read-only. Change that"
        " limit to allow it.",
        by="mode read-only",
    )


def test_only_a_question_because_of_the_mode_can_be_answered_for_all_calls() -> None:
    by_mode, by_rule = decide(PUSH, Mode.ASK), decide(PUSH, Mode.ASK, make_rules(ask="git.push"))

    assert (by_mode.can_remember, by_rule.can_remember) == (True, False)


@pytest.mark.parametrize(
    ("tool", "mode", "summary"),
    [
        (PUSH, Mode.READ_ONLY, "refused: mode read-only"),
        (PUSH, Mode.ASK, "must ask: mode ask"),
        (PUSH, Mode.AUTO, "allowed: mode auto"),
        (READ, Mode.ASK, "allowed: it only reads"),
        (make_tool("mail", "send"), Mode.AUTO, "must ask: ask rule 'mail.*' of the workspace 'blog'"),
        (make_tool("git", "drop"), Mode.AUTO, "refused: deny rule '*.drop' of the settings"),
        (make_tool("git", "status"), Mode.ASK, "allowed: allow rule 'git.status' of the settings"),
        (make_tool("git", "fetch"), Mode.ASK, "allowed: remembered answer"),
    ],
)
def test_a_summary_says_in_a_few_words_what_decides(tool: CatalogTool, mode: Mode, summary: str) -> None:
    rules = make_rules(deny="*.drop", allow="git.status").restrict(
        PermissionRestriction(ask=make_patterns("mail")), "the workspace 'blog'"
    )

    assert decide(tool, mode, rules, {("git", "fetch")}).summary == summary


def test_an_allow_rule_does_not_apply_to_a_server_that_a_client_supplies() -> None:
    rules = make_rules(allow="git.push")

    decisions = {
        source: decide(make_tool("git", "push", source=source), Mode.ASK, rules) for source in Source
    }

    others = [source for source in Source if decisions[source].step is not Step.ALLOW]
    assert others == [Source.CLIENT]
    assert decisions[Source.CLIENT] == AccessDecision(
        access=Access.MUST_ASK,
        step=Step.MODE,
        reason="git.push may change something, and this session's mode is ask. The rule 'git.push' of the settings does"
        " not apply, because a client supplied the server.",
        by="mode ask; allow rule 'git.push' does not apply to a client's server",
    )


@pytest.mark.parametrize("rules", [make_rules(deny="git"), make_rules(ask="git")], ids=["deny", "ask"])
def test_rules_that_restrict_apply_to_a_server_that_a_client_supplies(rules: PermissionRules) -> None:
    theirs = make_tool("git", "push", source=Source.CLIENT)

    assert decide(theirs, Mode.AUTO, rules).step is decide(PUSH, Mode.AUTO, rules).step


def test_rules_go_by_the_names_of_server_and_tool_not_by_the_displayed_name() -> None:
    dotted = make_tool("git.push", "now")

    decision = decide(dotted, Mode.AUTO, make_rules(deny='git.push, "git".push.now'))

    assert decision.access is Access.ALLOWED


def test_a_door_can_choose_and_restore_modes_up_to_its_own_limit() -> None:
    rules = make_rules(acp=Mode.ASK, chat=Mode.READ_ONLY)
    doors = (DoorKind.ACP, DoorKind.CHAT, DoorKind.CLI)

    chosen = {door: [mode for mode in Mode if _may_choose(mode, door, rules)] for door in doors}
    restored = {door: limit_mode(Mode.AUTO, door, rules) for door in doors}

    assert chosen == {
        DoorKind.ACP: [Mode.ASK, Mode.READ_ONLY],
        DoorKind.CHAT: [Mode.READ_ONLY],
        DoorKind.CLI: [Mode.ASK, Mode.AUTO, Mode.READ_ONLY],
    }
    assert restored == {DoorKind.ACP: Mode.ASK, DoorKind.CHAT: Mode.READ_ONLY, DoorKind.CLI: Mode.AUTO}


@pytest.mark.parametrize(
    ("restriction", "imposed_by", "message"),
    [
        (
            PermissionRestriction(),
            ("the workspace 'blog'",),
            "The mode auto is not allowed here: permission.max_mode.acp of the settings allows at most ask.",
        ),
        (
            PermissionRestriction(max_mode=Mode.READ_ONLY),
            ("the workspace 'blog'",),
            "The mode auto is not allowed here: permission.max_mode of the workspace 'blog' allows at most read-only.",
        ),
        (
            PermissionRestriction(max_mode=Mode.READ_ONLY),
            ("the agent 'reviewer'", "mode"),
            "The mode auto is not allowed here: mode of the agent 'reviewer' allows at most read-only.",
        ),
    ],
)
def test_a_mode_above_the_limit_is_an_error_that_names_the_limit(
    restriction: PermissionRestriction, imposed_by: tuple[str, ...], message: str
) -> None:
    rules = make_rules(acp=Mode.ASK).restrict(restriction, *imposed_by)

    with pytest.raises(HoldfastError) as caught:
        check_mode(Mode.AUTO, DoorKind.ACP, rules)

    assert (caught.value.code, caught.value.message) == (codes.NOT_PERMITTED, message)


def test_every_door_has_a_limit_in_the_settings() -> None:
    rules = make_rules(**{kind.value: Mode.READ_ONLY for kind in DoorKind})

    assert {door: rules.max_mode_of(door) for door in DoorKind} == dict.fromkeys(DoorKind, Mode.READ_ONLY)
    assert make_rules() == NO_RULES


# Properties. The names are few, so that rules often match.

names = st.sampled_from(["a", "b", "ab", "a.b"])
tools = st.builds(make_tool, names, names, read_only=st.booleans())
tool_patterns = st.sampled_from(["a.a", "a.b", "b.*", "a*.b", "*.a*", "*b.*", "*.*"]).map(parse_tool_pattern)
pattern_lists = st.lists(tool_patterns, max_size=2).map(tuple)
modes = st.sampled_from(Mode)
restrictions = st.builds(PermissionRestriction, deny=pattern_lists, ask=pattern_lists, max_mode=modes)
permission_settings = st.builds(
    PermissionSettings,
    deny=pattern_lists,
    ask=pattern_lists,
    allow=pattern_lists,
    max_mode=st.builds(MaxModeSettings, acp=modes, chat=modes, cli=modes, python=modes),
)
rule_sets = st.tuples(permission_settings, restrictions).map(
    lambda both: rules_from_settings(both[0]).restrict(both[1], "the workspace 'w'")
)
remembered_answers = st.frozensets(st.tuples(names, names))


@hypothesis_settings(deadline=None)
@given(tools, modes, rule_sets, remembered_answers, restrictions)
def test_a_restriction_never_allows_more(
    tool: CatalogTool,
    mode: Mode,
    rules: PermissionRules,
    remembered: frozenset[ToolKey],
    restriction: PermissionRestriction,
) -> None:
    restricted = rules.restrict(restriction, "the agent 'reviewer'")

    without, with_it = (decide(tool, mode, each, remembered).access for each in (rules, restricted))
    assert LEAST_FIRST.index(with_it) <= LEAST_FIRST.index(without)
    for door in DoorKind:
        limits = (restricted.max_mode_of(door), rules.max_mode_of(door))
        assert lowest_mode(*limits) is limits[0]


@hypothesis_settings(deadline=None)
@given(tools, modes, rule_sets, remembered_answers, st.booleans())
def test_deny_always_wins(
    tool: CatalogTool, mode: Mode, rules: PermissionRules, remembered: frozenset[ToolKey], first: bool
) -> None:
    exact = Rule(pattern=ToolPattern((tool.server.name,), (tool.definition.name,)), imposed_by="the settings")
    deny = (exact, *rules.deny) if first else (*rules.deny, exact)
    denying = PermissionRules(deny=deny, ask=rules.ask, allow=rules.allow, max_mode=rules.max_mode)

    decision = decide(tool, mode, denying, remembered)

    assert (decision.access, decision.step) == (Access.REFUSED, Step.DENY)


@hypothesis_settings(deadline=None)
@given(tools, modes, rule_sets, remembered_answers)
def test_a_tool_with_an_ask_rule_never_runs_without_a_question(
    tool: CatalogTool, mode: Mode, rules: PermissionRules, remembered: frozenset[ToolKey]
) -> None:
    asking = rules.restrict(PermissionRestriction(ask=make_patterns("*")), "the client")

    assert decide(tool, mode, asking, remembered).access is not Access.ALLOWED


@hypothesis_settings(deadline=None)
@given(tools, modes, modes, rule_sets, remembered_answers)
def test_a_lower_mode_never_allows_more(
    tool: CatalogTool, mode: Mode, other: Mode, rules: PermissionRules, remembered: frozenset[ToolKey]
) -> None:
    lower, higher = (
        decide(tool, each, rules, remembered).access for each in (lowest_mode(mode, other), mode)
    )

    assert LEAST_FIRST.index(lower) <= LEAST_FIRST.index(higher)


@hypothesis_settings(deadline=None)
@given(tools, rule_sets, remembered_answers)
def test_mode_read_only_refuses_what_may_change_something_unless_a_rule_allows_it(
    tool: CatalogTool, rules: PermissionRules, remembered: frozenset[ToolKey]
) -> None:
    decision = decide(tool, Mode.READ_ONLY, rules, remembered)

    is_allowed = any(rule.pattern.matches(*tool_key(tool)) for rule in rules.allow)
    assert decision.access is Access.REFUSED or is_allowed or tool.definition.annotations is READ_ONLY_HINT


# The examples of docs/permissions.md


def test_the_table_in_the_docs_is_what_the_example_rules_decide(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(_toml_examples()[0], encoding="utf-8")
    rules = rules_from_settings(settings.load(file, {}).permission)
    rows = re.findall(
        r"^\| `([\w.]+)`(, which only reads)? \| (.+?) \| (.+?) \| (.+?) \|$", DOCS, re.MULTILINE
    )

    decided = [
        (name, only_reads, *(decide(make_tool(*name.split("."), read_only=bool(only_reads)), mode, rules).access
                             for mode in (Mode.READ_ONLY, Mode.ASK, Mode.AUTO)))
        for name, only_reads, *_ in rows
    ]  # fmt: skip

    assert len(rows) >= 6
    assert decided == [tuple(row) for row in rows]


def test_the_workspace_in_the_docs_restricts_the_example_rules() -> None:
    workspace = parse_workspace("blog", _toml_examples()[1])
    rules = rules_from_settings(PermissionSettings(allow=make_patterns("github.get_*")))

    restricted = rules.restrict(workspace.permission, f"the workspace {workspace.slug!r}")

    assert decide(make_tool("github", "get_issue"), Mode.AUTO, rules).access is Access.ALLOWED
    assert decide(make_tool("github", "get_issue"), Mode.AUTO, restricted).access is Access.REFUSED
    assert decide(make_tool("files", "write"), Mode.AUTO, restricted).access is Access.MUST_ASK


def test_the_examples_of_patterns_in_the_docs_are_valid() -> None:
    table = DOCS.partition("| pattern | tools |")[2].partition("\n\n")[0]
    examples = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)

    assert [str(parse_tool_pattern(example)) for example in examples if "." in example] == [
        example for example in examples if "." in example
    ]
    assert len(examples) >= 5


def _toml_examples() -> list[str]:
    examples = re.findall(r"^```toml\n(.+?)^```", DOCS, re.MULTILINE | re.DOTALL)
    assert all(tomllib.loads(example) for example in examples)
    return examples


def _may_choose(mode: Mode, door: DoorKind, rules: PermissionRules) -> bool:
    try:
        check_mode(mode, door, rules)
    except HoldfastError:
        return False
    return True
