"""Attack 47: a server has a name that looks like a built-in server's, or like another server's."""

from pathlib import Path

import pytest

from holdfast.model.resolution import Resolution, Stage
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.model.trust import Trust
from holdfast.resolve import admit as admit_module
from holdfast.resolve import validate as validate_module
from holdfast.resolve.admit import admit
from holdfast.resolve.screen_tools import ApprovedTools, screen_tools
from holdfast.resolve.server_names import why_bad_name
from holdfast.wire.mcp.tools import Tool
from tests.connect.conftest import HostFactory, counter_entry, make_host

__all__ = ["make_host"]

LOOK_ALIKES = [
    "FILES",
    "files ",
    " files",
    "\ufb01les",  # the ligature fi
    "f\u0456les",  # a Cyrillic i
    "fi\u217ces",  # a Roman numeral
    "fiIes",  # a capital i
    "f1les",
    "fil\u00e9s",
    "\uff46\uff49\uff4c\uff45\uff53",  # full width
    "\U0001d41f\U0001d422\U0001d425\U0001d41e\U0001d42c",  # bold mathematical letters
    "files\u3164",  # a filler without a shape
    "fi\u200bles",
    "files\ufe0e",
    "files.read",
    "files__read",
]


@pytest.mark.anyio
@pytest.mark.promise("RES-16")
async def test_look_alikes_of_built_in_servers_are_refused(make_host: HostFactory, tmp_path: Path):
    async with (
        make_host(dict.fromkeys(LOOK_ALIKES, counter_entry())) as host,
        host.session(cwd=tmp_path) as session,
    ):
        refused = {refusal.server: refusal.stage for refusal in session.refusals}

    assert (session.available, refused) == (("files",), dict.fromkeys(LOOK_ALIKES, Stage.VALIDATE))


@pytest.mark.promise("RES-16")
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("GitHub", "github"),
        ("github", "g\u0456thub"),
        ("github", "glthub"),
        ("git-hub", "git\u2010hub"),
        ("a1", "al"),
    ],
)
def test_look_alike_of_a_server_of_another_file_is_refused(name: str, other: str):
    servers = (_server(name, Source.USER), _server(other, Source.CLIENT))

    admitted = admit(Resolution(servers=servers), Trust.DIRECT)

    assert ([server.name for server in admitted.servers], [one.reason for one in admitted.refusals]) == (
        [name],
        [f"Its name looks like {name!r}, a server in user. Rename one of them."],
    )


def test_names_in_one_file_may_look_alike_but_not_be_the_same_but_for_case():
    names = ["test1", "testl", "Test1", "файлы", "My Server", "my-server", "my_server"]
    servers = tuple(_server(name, Source.USER) for name in names)

    admitted = admit(Resolution(servers=servers), Trust.DIRECT)

    assert [refusal.server for refusal in admitted.refusals] == ["Test1"]


@pytest.mark.parametrize(
    "name", ["My Server", "файлы", "文件", "Ünïcödé", "a.b", "@scope/server", "🔧 tools"]
)
def test_names_in_use_elsewhere_are_allowed(name: str):
    assert why_bad_name(name) is None


@pytest.mark.promise("RES-16")
def test_tool_named_like_another_but_for_case_is_not_offered():
    screened = screen_tools([Tool(name="read_file"), Tool(name="Read_File")], ApprovedTools())

    assert [tool.name for tool in screened.offered] == ["read_file"]


@pytest.mark.promise("RES-16")
@pytest.mark.parametrize(
    "name", ["re\u0430d", "\uff52ead", "rea\u217e", "read ", "re\u200bad", "read\ufe0e", "réad"]
)
def test_tool_whose_name_looks_like_another_in_other_letters_is_not_offered(name: str):
    screened = screen_tools([Tool(name="read"), Tool(name=name)], ApprovedTools())

    assert [tool.name for tool in screened.offered] == ["read"]


@pytest.mark.anyio
async def test_control_if_names_are_compared_as_written_the_look_alike_is_accepted(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for module in (validate_module, admit_module):
        monkeypatch.setattr(module, "skeleton", str)
    async with (
        make_host({"f\u0456les": counter_entry()}) as host,
        host.session(cwd=tmp_path) as session,
    ):
        assert "f\u0456les" in session.available


def _server(name: str, source: Source) -> ServerSpec:
    return ServerSpec(name=name, source=source, origin=str(source), transport=Stdio(command="x"))
