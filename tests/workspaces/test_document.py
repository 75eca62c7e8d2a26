import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import codes
from holdfast.model.choice import ALL, NONE, Choice
from holdfast.model.errors import HoldfastError
from holdfast.model.launch import Quota
from holdfast.model.trust import Trust
from holdfast.model.variables import why_reserved
from holdfast.model.workspace import Workspace
from holdfast.workspaces.document import KEYS, path_in, read, write

DOCS = Path(__file__).parent.parent.parent / "docs" / "workspaces.md"
ROW = re.compile(r"^\| `(?P<key>[^`]+)` \| .+ \| .+ \|$", re.MULTILINE)
WHOLE = """
name = "My Project"
path = "/home/ann/project"
trust = "trusted"
servers = ["files", "git"]
tools = "none"
model = "anthropic:claude"

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
choices = st.just(ALL) | st.frozensets(text.filter(str.strip), max_size=4).map(Choice)
variables = st.from_regex(r"[A-Z_][A-Z0-9_]{0,10}", fullmatch=True).filter(
    lambda name: not why_reserved(name)
)
values = text.map(lambda value: value.replace("\0", ""))
workspaces = st.builds(
    Workspace,
    slug=st.just("my-project"),
    name=names,
    path=text.filter(lambda name: "\0" not in name).map(lambda name: f"/{name.replace('..', '')}"),
    trust=st.sampled_from(Trust),
    servers=choices,
    tools=choices,
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


def test_every_key_is_read() -> None:
    assert read("my-project", WHOLE) == Workspace(
        slug="my-project",
        name="My Project",
        path="/home/ann/project",
        trust=Trust.DIRECT,
        servers=Choice(frozenset({"files", "git"})),
        tools=NONE,
        quota=Quota(memory_bytes=536870912, processes=64, file_bytes=0, descriptors=256),
        env={"git": {"GIT_AUTHOR_NAME": "Ann"}, "file server": {"LEVEL": "2"}},
        model="anthropic:claude",
    )


def test_only_the_path_is_needed_and_the_default_is_sandboxed() -> None:
    assert read("blog", "path = '/home/ann/blog'") == Workspace(
        slug="blog", name="blog", path="/home/ann/blog"
    )
    assert read("blog", "path = '/home/ann/blog'").trust is Trust.SANDBOXED


@settings(deadline=None)
@given(workspaces)
def test_what_is_written_is_read_again(workspace: Workspace) -> None:
    assert read(workspace.slug, write(workspace)) == workspace


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("trust = 'root'", "trust: 'root' is no trust level. Use one of: direct, trusted, full"),
        ("trust = ''", "trust: '' is no trust level"),
        ("trust = 1", "trust: must be 'direct' or 'sandboxed'."),
        ("trsut = 'direct'", "unknown key 'trsut'. Did you mean 'trust'?"),
        ("xyz = 1", "unknown key 'xyz'. There are: env, model, name, path, sandbox, servers, tools, trust."),
        ("servers = 'some'", 'servers: must be "all", "none" or a list of names.'),
        ("tools = [1]", 'tools: must be "all", "none" or a list of names.'),
        ("tools = ['']", 'tools: must be "all", "none" or a list of names.'),
        ("name = ''", "name: must be text."),
        ("name = 'a/b'", "name: must be at most 200 printable characters, with neither / nor \\."),
        ("model = 7", "model: must be text."),
        ("sandbox = 1", "sandbox: must be a table."),
        ("sandbox.processes = 0", "sandbox.processes: must be a whole number from 1 up."),
        ("sandbox.processes = true", "sandbox.processes: must be a whole number from 1 up."),
        ("sandbox.descriptors = 2.5", "sandbox.descriptors: must be a whole number from 16 up."),
        ("sandbox.memory = 1", "unknown key 'sandbox.memory'. Did you mean 'memory_bytes'?"),
        ("env = []", "env: must be a table."),
        ("env.git = 'x'", "env.git: must be a table."),
        ("env.git.LEVEL = 2", "env.git.LEVEL: must be text, without a NUL character."),
        ("env.git.'A=B' = '2'", "env.git.A=B: is no name of a variable."),
    ],
)
def test_a_mistake_is_told_with_its_key_and_what_must_be_there(line: str, problem: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        read("blog", f"path = '/blog'\n{line}\n")

    assert caught.value.code == codes.BAD_WORKSPACE_FILE
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("path", ["7", "''", "'blog'", "'~/blog'", "'/home/../etc'", '"/a\\u0000b"'])
def test_a_path_that_is_none_is_told(path: str) -> None:
    with pytest.raises(
        HoldfastError, match=r"^path: must be the absolute path of a folder, without '\.\.'\.$"
    ):
        read("blog", f"path = {path}")


def test_all_mistakes_are_told_at_once_and_a_missing_path_too() -> None:
    with pytest.raises(HoldfastError) as caught:
        read("blog", "trust = 'x'\ntools = 3\nnonsense = 1")

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
        ("HOLDFAST_TRUST_LEVEL", "only the host decides it"),
        ("holdfast_session_id", "only the host decides it"),
        ("HOLDFAST_DATA_DIR", "only the host decides it"),
        ("LD_PRELOAD", "it makes the system's loader put other code into the program"),
        ("DYLD_INSERT_LIBRARIES", "it makes the system's loader put other code into the program"),
        ("NODE_OPTIONS", "it makes Node.js, or what is built on it, load other code"),
        ("PYTHONSTARTUP", "it makes Python load other code"),
        ("PYTHONPATH", "it makes Python load other code"),
        ("PATH", "it decides which programs are found"),
        ("Path", "it decides which programs are found"),
    ],
)
def test_an_override_of_a_context_or_loader_variable_is_refused_by_name_with_the_reason(
    variable: str, why: str
) -> None:
    with pytest.raises(HoldfastError) as caught:
        read("blog", f"path = '/blog'\n[env.git]\n{variable} = 'x'")

    assert str(caught.value) == f"env.git.{variable}: may not be set here: {why}."


@pytest.mark.promise("RES-13")
def test_an_override_of_any_other_variable_is_taken() -> None:
    document = "path = '/blog'\n[env.git]\nGITHUB_TOKEN = 'x'\nNODE_ENV = 'test'"

    assert read("blog", document).env == {"git": {"GITHUB_TOKEN": "x", "NODE_ENV": "test"}}


def test_values_of_variables_do_not_show_in_a_printed_workspace() -> None:
    assert "hunter2" not in repr(read("blog", "path = '/blog'\n[env.git]\nPASSWORD = 'hunter2'"))


@pytest.mark.parametrize("document", ["[", "path = ", "path = '/a'\npath = '/b'", "x = " + "[" * 5000])
def test_what_is_no_toml_is_told(document: str) -> None:
    with pytest.raises(HoldfastError, match=r"^not valid TOML"):
        read("blog", document)


@pytest.mark.parametrize(
    ("document", "path"),
    [("path = '/a'\n[", "/a"), ('name = 1\n  path="/a b"  # it', "/a b"), ("[", ""), ("# path = '/a'", "")],
)
def test_a_broken_document_still_tells_its_folder_where_it_can(document: str, path: str) -> None:
    assert path_in(document) == path


def test_every_key_is_documented() -> None:
    documented = {row["key"] for row in ROW.finditer(DOCS.read_text(encoding="utf-8"))}

    assert documented == set(KEYS)


def test_the_example_in_the_documentation_is_right() -> None:
    (example,) = re.findall(
        r"^```toml\n(.+?)^```", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )

    used = {key.partition(".")[0] for key in KEYS}
    assert tomllib.loads(example).keys() == used
    assert read("blog", example).name == "Blog"
