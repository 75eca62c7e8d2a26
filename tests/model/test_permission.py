"""Modes, and the patterns that name tools in permission rules."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.permission import Mode, lowest_mode, parse_mode
from holdfast.model.tool_pattern import (
    MAX_PATTERNS,
    ToolPattern,
    name_in_patterns,
    parse_tool_pattern,
    parse_tool_patterns,
)

pytestmark = pytest.mark.promise("SES-04")

plain_servers = st.text("abAB_-é *", min_size=1, max_size=6).filter(str.strip).map(str.strip)
quoted_servers = st.text("ab.*[!,", min_size=1, max_size=6).map(lambda name: f'"{name}"')
plain_tools = st.text("ab*_/-", min_size=1, max_size=6)
any_tools = st.text("ab.*_/-", min_size=1, max_size=6)
patterns = st.one_of(
    st.tuples(plain_servers, plain_tools).map(".".join),
    st.tuples(quoted_servers, any_tools).map(".".join),
    any_tools.map("*.{}".format),
    plain_servers.filter(lambda name: not name_in_patterns(name)),
    quoted_servers,
)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("git.push", ["git.push"], ["git.pushy", "Git.push", "git.Push", "git2.push"]),
        ("git.*", ["git.push", "git.a.b"], ["gitlab.push"]),
        ("git", ["git.push", "git.a.b"], ["gitlab.push"]),
        ("*", ["git.push", "files.read"], []),
        ("*.delete*", ["git.delete", "git.delete_all", "x.delete/1"], ["git.undelete", "delete.git"]),
        ("*.issue.delete", ["jira.issue.delete"], ["jira.issue-delete"]),
        ("git*.p*h", ["git.push", "gitlab.ph"], ["git.pus", "hub.push"]),
        ("a*a.x", ["aa.x", "aba.x"], ["a.x"]),
        ("*.*aba*ba", ["s.ababa"], ["s.aba"]),
    ],
)
def test_pattern_matches_by_server_and_tool(pattern: str, matching: list[str], others: list[str]) -> None:
    parsed = parse_tool_pattern(pattern)

    found = [name for name in matching + others if parsed.matches(*name.split(".", maxsplit=1))]

    assert found == matching


def test_quoted_server_is_taken_literally() -> None:
    names = [("my.server", "read"), ("my", "server.read"), ("my*server", "read"), ("mySERVERserver", "read")]

    found = {
        text: [name for name in names if parse_tool_pattern(text).matches(*name)]
        for text in ('"my.server".read', '"my".server.read', '"my*server"', "my*server.*")
    }

    assert found == {
        '"my.server".read': [names[0]],
        '"my".server.read': [names[1]],
        '"my*server"': [names[2]],
        "my*server.*": [names[0], names[2], names[3]],
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' has no server; write * for every server"),
        (".push", "'.push' has no server; write * for every server"),
        ("git.", "the tool in 'git.' must consist of letters, digits and _ . / - characters, and * for any"),
        ("git.pu?h", "the tool in 'git.pu?h' must consist of letters, digits and _ . / - characters"),
        ("git. push", "the tool in 'git. push' must consist of"),
        ("files[12].read", "'files[12].read' has an unusual character; if it belongs to the server's name, "),
        ("!git.push", "'!git.push' has an unusual character"),
        ('"git.push', "'\"git.push' has an unusual character"),
        ("my.server.x", "it is not clear which dot of 'my.server.x' ends the server's name; write the name"),
        ("my*.server.x", "it is not clear which dot of 'my*.server.x' ends the server's name; write *"),
        ("files__read", "'files__read' is a name as models see it; write 'files.read' or, for all tools of"),
        ("mcp__git__*", "'mcp__git__*' is a name as models see it; write 'git.*' or"),
        ("git\u200b.push", "'git\\u200b.push' has an invisible character"),
        ("x" * 301, f"'{'x' * 80}'… has more than 300 characters"),
    ],
)
def test_error_says_what_is_wrong_with_a_pattern(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        parse_tool_pattern(text)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("git.push", 'must be a list of patterns such as "git.push" or "files.*"'),
        ([1], 'must be a list of patterns such as "git.push" or "files.*"'),
        (
            ["git", "a.b.c"],
            'must be a list of patterns such as "git.push" or "files.*" (it is not clear which',
        ),
        (["git"] * (MAX_PATTERNS + 1), "must be a list of at most 1000 patterns"),
    ],
)
def test_error_says_what_is_wrong_with_a_list(raw: object, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        parse_tool_patterns(raw)


@settings(deadline=None)
@given(patterns)
def test_a_pattern_as_text_is_the_same_pattern(text: str) -> None:
    pattern = parse_tool_pattern(text)

    assert parse_tool_pattern(str(pattern)) == pattern


@settings(deadline=None)
@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=8))
def test_matching_agrees_with_a_regular_expression(text: str, name: str) -> None:
    pattern = ToolPattern(server=("s",), tool=tuple(text.split("*")))

    assert pattern.matches("s", name) == bool(re.fullmatch(text.replace("*", ".*"), name))


def test_matching_takes_linear_time() -> None:
    stars = parse_tool_pattern("*." + "a*" * 140 + "b*a")
    long_text = parse_tool_pattern("*.*" + "a" * 99 + "b*")
    hostile = "a" * 1_000_000

    started = time.process_time()
    assert not stars.matches(hostile, hostile)
    assert not long_text.matches(hostile, hostile)
    assert time.process_time() - started < 1


def test_matching_with_backtracking_does_not_take_linear_time() -> None:
    def seconds(length: int) -> float:
        started = time.process_time()
        assert not re.fullmatch("a.*a.*a.*a.*a.*b.*a", "a" * length)
        return time.process_time() - started

    assert seconds(80) > 8 * seconds(20)


def test_modes_are_ordered() -> None:
    assert lowest_mode(Mode.AUTO, Mode.ASK) is Mode.ASK
    assert lowest_mode(Mode.ASK, Mode.READ_ONLY, Mode.AUTO) is Mode.READ_ONLY
    assert lowest_mode(Mode.AUTO) is Mode.AUTO


@pytest.mark.parametrize("raw", ["root", "AUTO", "", 1, None, ["ask"]])
def test_an_unknown_mode_is_an_error(raw: object) -> None:
    with pytest.raises(ValueError, match=r"^must be one of read-only, ask, auto$"):
        parse_mode(raw)
