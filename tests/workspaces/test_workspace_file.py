import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import codes
from holdfast.model.allowlist import ALLOW_ALL, ALLOW_NONE, Allowlist
from holdfast.model.errors import HoldfastError
from holdfast.model.permission import Mode, PermissionRestriction
from holdfast.model.quota import Quota
from holdfast.model.reserved_variables import reserved_variable_reason
from holdfast.model.tool_pattern import parse_tool_pattern
from holdfast.model.trust import Trust
from holdfast.model.workspace import Workspace
from holdfast.workspaces.workspace_file import KEYS, format_workspace, guess_path, parse_workspace

DOCS = Path(__file__).parent.parent.parent / "docs" / "workspaces.md"
ROW = re.compile(r"^\| `(?P<key>[^`]+)` \| .+ \| .+ \|$", re.MULTILINE)
EVERY_KEY = """
name = "My Project"
path = "/home/ann/project"
trust = "trusted"
servers = ["files", "git"]
tools = "none"
model = "anthropic:claude"

[permission]
deny = ["git.push", '"my.server".*']
ask = ["git"]
max_mode = "ask"

[sandbox]
memory_bytes = 536870912
processes = 64
file_bytes = 0
descriptors = 256

[env.git]
GIT_AUTHOR_NAME = "Ann"

[env."file server"]
LEVEL = "2"
"""

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
names = st.text(
    st.characters(exclude_characters="/\\", exclude_categories=["C", "Z"]), min_size=1, max_size=30
)
choices = st.just(ALLOW_ALL) | st.frozensets(text.filter(str.strip), max_size=4).map(Allowlist)
variables = st.from_regex(r"[A-Z_][A-Z0-9_]{0,10}", fullmatch=True).filter(
    lambda name: not reserved_variable_reason(name)
)
patterns = st.lists(
    st.sampled_from(["git", "*.delete*", '"my.server".a.b', "file server.x"]).map(parse_tool_pattern),
    max_size=2,
).map(tuple)
values = text.map(lambda value: value.replace("\0", ""))
workspaces = st.builds(
    Workspace,
    slug=st.just("my-project"),
    name=names,
    path=text.filter(lambda name: "\0" not in name).map(lambda name: f"/{name.replace('..', '')}"),
    trust=st.sampled_from(Trust),
    servers=choices,
    tools=choices,
    permission=st.builds(PermissionRestriction, deny=patterns, ask=patterns, max_mode=st.sampled_from(Mode)),
    quota=st.builds(
        Quota,
        memory_bytes=st.integers(2**20, 2**53),
        processes=st.integers(1, 2**53),
        file_bytes=st.integers(0, 2**53),
        descriptors=st.integers(16, 2**53),
    ),
    env=st.dictionaries(text, st.dictionaries(variables, values, max_size=3), max_size=3),
    model=st.none() | names,
)


def test_every_key_is_parsed() -> None:
    assert parse_workspace("my-project", EVERY_KEY) == Workspace(
        slug="my-project",
        name="My Project",
        path="/home/ann/project",
        trust=Trust.DIRECT,
        servers=Allowlist(frozenset({"files", "git"})),
        tools=ALLOW_NONE,
        permission=PermissionRestriction(
            deny=(parse_tool_pattern("git.push"), parse_tool_pattern('"my.server"')),
            ask=(parse_tool_pattern("git.*"),),
            max_mode=Mode.ASK,
        ),
        quota=Quota(memory_bytes=536870912, processes=64, file_bytes=0, descriptors=256),
        env={"git": {"GIT_AUTHOR_NAME": "Ann"}, "file server": {"LEVEL": "2"}},
        model="anthropic:claude",
    )


def test_only_the_path_is_required_and_the_default_is_sandboxed() -> None:
    assert parse_workspace("blog", "path = '/home/ann/blog'") == Workspace(
        slug="blog", name="blog", path="/home/ann/blog"
    )
    assert parse_workspace("blog", "path = '/home/ann/blog'").trust is Trust.SANDBOXED


@pytest.mark.slow
@settings(deadline=None)
@given(workspaces)
def test_format_and_parse_round_trip(workspace: Workspace) -> None:
    assert parse_workspace(workspace.slug, format_workspace(workspace)) == workspace


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("trust = 'root'", "trust: 'root' is not a trust level. Use one of: direct, sandboxed"),
        ("trust = ''", "trust: '' is not a trust level"),
        ("trust = 1", "trust: must be 'direct' or 'sandboxed'."),
        ("trsut = 'direct'", "unknown key 'trsut'. Did you mean 'trust'?"),
        (
            "xyz = 1",
            "unknown key 'xyz'. Known keys: env, model, name, path, permission, sandbox, servers, tools, trust.",
        ),
        ("servers = 'some'", 'servers: must be "all", "none" or a list of names.'),
        ("tools = [1]", 'tools: must be "all", "none" or a list of names.'),
        ("tools = ['']", 'tools: must be "all", "none" or a list of names.'),
        ("name = ''", "name: must be a non-empty string."),
        ("name = 'a/b'", "name: must be at most 200 printable characters, without / and \\."),
        ("model = 7", "model: must be a non-empty string."),
        ("sandbox = 1", "sandbox: must be a table."),
        ("sandbox.processes = 0", "sandbox.processes: must be a whole number from 1 to 9007199254740992."),
        ("sandbox.processes = true", "sandbox.processes: must be a whole number from 1 to 9007199254740992."),
        (
            "sandbox.descriptors = 2.5",
            "sandbox.descriptors: must be a whole number from 16 to 9007199254740992.",
        ),
        ("sandbox.memory = 1", "unknown key 'sandbox.memory'. Did you mean 'memory_bytes'?"),
        ("permission = 1", "permission: must be a table."),
        (
            "permission.deny = ['git.']",
            'permission.deny: must be a list of patterns such as "git.push" or "files.*" (the tool in',
        ),
        ("permission.ask = 'git'", "permission.ask: must be a list of patterns"),
        ("permission.max_mode = 'all'", "permission.max_mode: must be one of read-only, ask, auto."),
        ("permission.dney = []", "unknown key 'permission.dney'. Did you mean 'deny'?"),
        ("env = []", "env: must be a table."),
        ("env.git = 'x'", "env.git: must be a table."),
        ("env.git.LEVEL = 2", "env.git.LEVEL: must be a string without a NUL character."),
        ("env.git.'A=B' = '2'", "env.git.A=B: is not a valid variable name."),
    ],
)
def test_error_names_the_key_and_the_expected_value(line: str, problem: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        parse_workspace("blog", f"path = '/blog'\n{line}\n")

    assert caught.value.code == codes.BAD_WORKSPACE_FILE
    assert str(caught.value).startswith(problem)


@pytest.mark.promise("SES-04")
def test_workspace_cannot_allow_tools() -> None:
    with pytest.raises(HoldfastError) as caught:
        parse_workspace("blog", "path = '/blog'\n[permission]\nallow = ['git.push']")

    assert str(caught.value) == (
        "permission.allow is not possible in a workspace: a workspace can only restrict. Allow tools in the settings"
        " file; `holdfast settings path` prints its path."
    )


@pytest.mark.parametrize("path", ["7", "''", "'blog'", "'~/blog'", "'/home/../etc'", '"/a\\u0000b"'])
def test_path_must_be_absolute_without_dot_dot(path: str) -> None:
    with pytest.raises(
        HoldfastError, match=r"^path: must be the absolute path of a folder, without '\.\.'\.$"
    ):
        parse_workspace("blog", f"path = {path}")


def test_error_lists_all_mistakes_and_a_missing_path() -> None:
    with pytest.raises(HoldfastError) as caught:
        parse_workspace("blog", "trust = 'x'\ntools = 3\nnonsense = 1")

    assert [line.split()[0] for line in str(caught.value).splitlines()] == [
        "path",
        "trust:",
        "tools:",
        "unknown",
    ]


@pytest.mark.promise("RES-13")
@pytest.mark.parametrize(
    ("variable", "why"),
    [
        ("HOLDFAST_TRUST_LEVEL", "only the host may set it"),
        ("holdfast_session_id", "only the host may set it"),
        ("HOLDFAST_DATA_DIR", "only the host may set it"),
        ("LD_PRELOAD", "it makes the dynamic loader put other code into the program"),
        ("DYLD_INSERT_LIBRARIES", "it makes the dynamic loader put other code into the program"),
        ("NODE_OPTIONS", "it makes Node.js load other code"),
        ("PYTHONSTARTUP", "it makes Python load other code"),
        ("PYTHONPATH", "it makes Python load other code"),
        ("PATH", "it decides which programs are found"),
        ("Path", "it decides which programs are found"),
    ],
)
def test_context_and_loader_variables_cannot_be_overridden(variable: str, why: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        parse_workspace("blog", f"path = '/blog'\n[env.git]\n{variable} = 'x'")

    assert str(caught.value) == f"env.git.{variable}: may not be set here: {why}."


@pytest.mark.promise("RES-13")
def test_harmless_variables_can_be_overridden() -> None:
    document = "path = '/blog'\n[env.git]\nGITHUB_TOKEN = 'x'\nNODE_ENV = 'test'"

    assert parse_workspace("blog", document).env == {"git": {"GITHUB_TOKEN": "x", "NODE_ENV": "test"}}


def test_repr_does_not_show_values_of_variables() -> None:
    assert "hunter2" not in repr(parse_workspace("blog", "path = '/blog'\n[env.git]\nPASSWORD = 'hunter2'"))


@pytest.mark.parametrize("document", ["[", "path = ", "path = '/a'\npath = '/b'", "x = " + "[" * 5000])
def test_invalid_toml_is_an_error(document: str) -> None:
    with pytest.raises(HoldfastError, match=r"^not valid TOML"):
        parse_workspace("blog", document)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ("path = '/a'\n[", "/a"),
        ('name = 1\n  path="/a b"  # it', "/a b"),
        ("\"path\" = '/a'\r\n[[\r\n", "/a"),
        ("path = '/\\u0061'\nx = 1", "/\\u0061"),
        ('path = "/\\u0061"\nx = 1', "/a"),
        ("[", ""),
        ("# path = '/a'", ""),
        ("path = '~/a'\nx = 1", ""),
        ("path = '/a' b\n", ""),
        ("path = '/a'\npath = '/b'", ""),
        ("[x]\npath = '/a'\n[", ""),
    ],
)
def test_guess_path_finds_the_path_in_an_invalid_document_if_it_is_certain(document: str, path: str) -> None:
    assert guess_path(document) == path


def test_every_key_is_documented() -> None:
    the_file = DOCS.read_text(encoding="utf-8").partition("## Addresses")[0]
    documented = {row["key"] for row in ROW.finditer(the_file)}

    assert documented == set(KEYS)


def test_example_in_the_docs_is_valid() -> None:
    example, *_ = re.findall(
        r"^```toml\n(.+?)^```", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )

    used = {key.partition(".")[0] for key in KEYS}
    assert tomllib.loads(example).keys() == used
    assert parse_workspace("blog", example).name == "Blog"
