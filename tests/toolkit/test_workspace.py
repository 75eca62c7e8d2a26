"""Which workspace a tool works in, and that nothing else decides it."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust
from holdfast.toolkit.workspace import resolve_workspace
from holdfast.workspaces import Registry
from tests.toolkit.clients import WAYS, Client, Era, client
from tests.toolkit.contexts import META_KEY, context_env, context_meta

NOTES = "tests.toolkit.notes_server"


def session(workspace: str, trust: Trust = Trust.DIRECT) -> SessionContext:
    return SessionContext(
        session_id=SessionId("sess_aaaaaaaaaaaaaaaa"), workspace_id=workspace, trust_level=trust
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with two workspaces, `blog` and `shop`."""
    root = tmp_path_factory.mktemp("workspaces").resolve()
    registry = Registry(root / "data" / "workspaces")
    for name in ("Blog", "Shop"):
        (root / name / "drafts").mkdir(parents=True)
        registry.add(root / name, name)
    return root / "data"


@pytest.fixture(scope="module")
def registry(data: Path) -> Registry:
    return Registry(data / "workspaces")


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def stranger(data: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client that nobody vouches for, and that announces nothing when it first speaks."""
    environ = {"HOLDFAST_DATA_DIR": str(data), "WORKSPACE": "shop", "HOLDFAST_WORKSPACE": "shop"}
    with client(request.param, NOTES, environ=environ) as connected:
        yield connected


@pytest.mark.promise("WSP-04")
def test_the_workspace_is_optional_in_the_schema_and_concrete_in_the_handler(stranger: Client, data: Path):
    schema = stranger.tools()["where"]["inputSchema"]

    assert (schema["properties"]["workspace"]["type"], "required" in schema) == ("string", False)
    assert _place(stranger.call("where", {"workspace": "blog"})) == ("blog", str(data.parent / "Blog"))


@pytest.mark.promise("WSP-02", "WSP-06")
@pytest.mark.parametrize("address", ["blog", "Blog", " blog ", "{root}/Blog", "{root}/Blog/drafts"])
def test_a_workspace_goes_by_its_slug_its_name_and_any_absolute_path_in_it(
    stranger: Client, data: Path, address: str
):
    assert stranger.call("where", {"workspace": address.format(root=data.parent)})["slug"] == "blog"


@pytest.mark.promise("WSP-01", "WSP-02")
def test_without_an_argument_the_announced_workspace_counts(stranger: Client):
    meta = {META_KEY: {"workspace_id": " blog "}}

    assert stranger.call("where", {}, meta)["slug"] == "blog"
    assert stranger.call("where", {"workspace": "  "}, meta)["slug"] == "blog"


@pytest.mark.promise("CTX-12", "WSP-01")
def test_a_path_announced_by_an_alias_means_its_registered_workspace(stranger: Client, data: Path):
    meta = {"orbit": {"workspace": str(data.parent / "Shop" / "drafts")}}

    assert stranger.call("where", {}, meta)["slug"] == "shop"


@pytest.mark.promise("WSP-02")
def test_without_any_a_clear_error_names_the_accepted_forms(stranger: Client):
    failed = stranger.call("where")

    assert (failed["code"], failed["error"]) == (
        "MISSING_WORKSPACE",
        (
            "missing workspace: pass `workspace` (a workspace's slug, its name, or an absolute path in it),"
            " or call from a session that has one."
        ),
    )


@pytest.mark.promise("WSP-06")
@pytest.mark.parametrize(
    ("address", "code"),
    [("nowhere", "UNKNOWN_WORKSPACE"), ("/nowhere", "UNKNOWN_WORKSPACE"), ("../Blog", "BAD_WORKSPACE")],
)
def test_an_address_that_means_no_workspace_is_an_error(stranger: Client, address: str, code: str):
    assert stranger.call("where", {"workspace": address})["code"] == code


@pytest.mark.promise("WSP-02")
def test_the_folder_a_server_runs_in_says_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry
):
    monkeypatch.chdir(data.parent / "Blog")
    monkeypatch.setenv("PWD", str(Path.cwd()))

    with pytest.raises(HoldfastError) as missing:
        resolve_workspace("where", "", None, "", registry)

    assert missing.value.code is codes.MISSING_WORKSPACE


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.promise("WSP-02", "WSP-06")
def test_a_sandboxed_session_works_in_its_own_workspace_only(data: Path, era: Era):
    environ = {**context_env(session("blog", Trust.SANDBOXED)), "HOLDFAST_DATA_DIR": str(data)}
    with client(("stdio", era), NOTES, environ=environ) as mine:
        own = [
            mine.call("where", {"workspace": named})["slug"]
            for named in ("", "blog", "Blog", str(data.parent / "Blog" / "drafts"))
        ]
        others = [mine.call("where", {"workspace": named}) for named in ("shop", "/nowhere", "..", "nowhere")]
        announced = mine.call("where", {}, {META_KEY: {"workspace_id": "shop"}})

    assert own == ["blog"] * 4
    assert {failed["code"] for failed in others} == {"WORKSPACE_DENIED"}
    assert announced["slug"] == "blog"


@pytest.mark.promise("WSP-06")
def test_other_workspaces_and_unknown_ones_look_the_same_from_a_sandbox(registry: Registry):
    def message(named: str) -> str:
        with pytest.raises(HoldfastError) as denied:
            resolve_workspace("where", named, session("blog", Trust.SANDBOXED), "", registry)
        return denied.value.message.replace(named, "it")

    assert message("shop") == message("nowhere")


@pytest.mark.promise("WSP-06")
def test_a_sandboxed_session_without_a_workspace_has_none(registry: Registry):
    with pytest.raises(HoldfastError) as denied:
        resolve_workspace("where", "blog", session("", Trust.SANDBOXED), "", registry)

    assert denied.value.code is codes.WORKSPACE_DENIED


@pytest.mark.promise("WSP-06")
def test_a_git_worktree_means_the_workspace_of_its_repository(tmp_path: Path):
    root = tmp_path.resolve()
    entry = root / "repo" / ".git" / "worktrees" / "side"
    entry.mkdir(parents=True)
    (root / "side").mkdir()
    (root / "side" / ".git").write_text(f"gitdir: {entry}\n")
    (entry / "commondir").write_text("../..\n")
    (entry / "gitdir").write_text(f"{root / 'side' / '.git'}\n")
    registry = Registry(root / "data" / "workspaces")
    registry.add(root / "repo", "Repo")

    assert resolve_workspace("where", str(root / "side"), None, "", registry).slug == "repo"


@pytest.mark.promise("WSP-03")
def test_an_argument_that_differs_from_the_session_wins_and_is_logged(
    registry: Registry, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)

    found = resolve_workspace("where", "Shop", session("blog"), "", registry)

    assert found.slug == "shop"
    assert [_logged(record) for record in caplog.records] == [
        ("INFO", "workspace argument differs from the session's", "where", "shop", "blog")
    ]


@pytest.mark.promise("WSP-03")
@pytest.mark.parametrize("named", ["blog", "Blog", "{root}/Blog/drafts"])
def test_an_argument_that_means_the_same_is_not_logged(
    registry: Registry, data: Path, caplog: pytest.LogCaptureFixture, named: str
):
    caplog.set_level(logging.INFO)

    resolve_workspace("where", named.format(root=data.parent), session("blog"), "", registry)

    assert caplog.records == []


@pytest.mark.promise("WSP-04")
def test_a_workspace_that_the_host_vouches_for_needs_no_entry_here(tmp_path: Path):
    elsewhere = Registry(tmp_path / "none")

    found = resolve_workspace("where", "", session("blog", Trust.SANDBOXED), "", elsewhere)

    assert (found.slug, found.path) == ("blog", "")


@pytest.mark.promise("WSP-05")
def test_a_running_call_keeps_the_context_it_began_with(data: Path):
    environ = {"HOLDFAST_DATA_DIR": str(data)}
    hello = {META_KEY: {"workspace_id": "blog"}}
    with client(
        ("stdio", "handshake"), "tests.toolkit.snapshot_server", environ=environ, hello=hello
    ) as stranger:
        said = _around_a_new_handshake(stranger)

    assert said == {"running": ["blog", "blog"], "next": "shop"}


@pytest.mark.promise("WSP-05", "KIT-18")
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_requests_of_a_shared_server_keep_to_their_own_workspace(data: Path, era: Era):
    environ = {"HOLDFAST_SHARED": "1", "HOLDFAST_DATA_DIR": str(data)}
    with client(("stdio", era), NOTES, environ=environ) as shared:
        said = [
            shared.call("where", {}, context_meta(session(workspace)))["slug"]
            for workspace in ("blog", "shop") * 3
        ]

    assert said == ["blog", "shop"] * 3


def _around_a_new_handshake(stranger: Client) -> dict[str, Any]:
    """Begin a call, shake hands anew with another workspace, then let the call go on."""
    carrier: Any = stranger.carrier
    call: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 900,
        "method": "tools/call",
        "params": {"name": "hold", "arguments": {}},
    }
    carrier.tell(call)
    stranger.call("is_held")
    stranger.initialize({META_KEY: {"workspace_id": "shop"}})
    after = stranger.call("where")["slug"]
    *_, released = carrier.ask(
        {"jsonrpc": "2.0", "id": 901, "method": "tools/call", "params": {"name": "release", "arguments": {}}}
    )
    assert released["id"] == 901
    return {"running": stranger.call("seen")["items"], "next": after}


def _place(envelope: dict[str, Any]) -> tuple[str, str]:
    return envelope["slug"], envelope["path"]


def _logged(record: logging.LogRecord) -> tuple[object, ...]:
    said = vars(record)
    return (record.levelname, record.getMessage(), said["tool"], said["argument"], said["session_workspace"])
