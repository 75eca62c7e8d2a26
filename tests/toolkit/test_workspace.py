"""How the workspace of a call is found."""

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
from tests.toolkit.clients import TRANSPORTS_AND_ERAS, Client, Era, connect_client
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


@pytest.fixture(scope="module", params=TRANSPORTS_AND_ERAS, ids="-".join)
def anonymous(data: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    """An anonymous client that announces no workspace in its handshake."""
    environ = {"HOLDFAST_DATA_DIR": str(data), "WORKSPACE": "shop", "HOLDFAST_WORKSPACE": "shop"}
    with connect_client(request.param, NOTES, environ=environ) as connected:
        yield connected


@pytest.mark.promise("WSP-04")
def test_workspace_argument_is_optional_and_resolved_for_the_handler(anonymous: Client, data: Path):
    schema = anonymous.tools()["where"]["inputSchema"]

    assert (schema["properties"]["workspace"]["type"], "required" in schema) == ("string", False)
    assert _slug_and_path(anonymous.call("where", {"workspace": "blog"})) == (
        "blog",
        str(data.parent / "Blog"),
    )


@pytest.mark.promise("WSP-02", "WSP-06")
@pytest.mark.parametrize("address", ["blog", "Blog", " blog ", "{root}/Blog", "{root}/Blog/drafts"])
def test_workspace_is_found_by_slug_name_or_absolute_path(anonymous: Client, data: Path, address: str):
    assert anonymous.call("where", {"workspace": address.format(root=data.parent)})["slug"] == "blog"


@pytest.mark.promise("WSP-01", "WSP-02")
def test_announced_workspace_is_the_default(anonymous: Client):
    meta = {META_KEY: {"workspace_id": " blog "}}

    assert anonymous.call("where", {}, meta)["slug"] == "blog"
    assert anonymous.call("where", {"workspace": "  "}, meta)["slug"] == "blog"


@pytest.mark.promise("WSP-02", "WSP-03")
@pytest.mark.parametrize("announced", ["nowhere", "/nowhere", "../Blog"])
def test_workspace_argument_is_used_even_if_the_announced_workspace_is_unknown(
    anonymous: Client, announced: str
):
    meta = {META_KEY: {"workspace_id": announced}}

    assert anonymous.call("where", {"workspace": "shop"}, meta)["slug"] == "shop"
    assert anonymous.call("where", {}, meta)["code"] in ("UNKNOWN_WORKSPACE", "BAD_WORKSPACE")


@pytest.mark.promise("WSP-03")
def test_argument_that_differs_from_an_unknown_announced_workspace_is_logged(
    registry: Registry, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)

    found = resolve_workspace("where", "shop", None, "/nowhere", registry)

    assert found.slug == "shop"
    assert [_logged(record) for record in caplog.records] == [
        ("INFO", "workspace argument differs from the session's", "where", "shop", "/nowhere")
    ]


@pytest.mark.promise("CTX-12", "WSP-01")
def test_path_announced_by_an_alias_finds_its_workspace(anonymous: Client, data: Path):
    meta = {"orbit": {"workspace": str(data.parent / "Shop" / "drafts")}}

    assert anonymous.call("where", {}, meta)["slug"] == "shop"


@pytest.mark.promise("WSP-02")
def test_missing_workspace_error_names_the_accepted_forms(anonymous: Client):
    failed = anonymous.call("where")

    assert (failed["code"], failed["error"]) == (
        "MISSING_WORKSPACE",
        (
            "missing workspace: pass `workspace` (a workspace's slug, its name, or an absolute path in it),"
            " send it in `_meta` as the text `workspace` of 'dev.holdfast/session', or call from a session that has one."
        ),
    )
    assert failed["hint"].startswith("In Holdfast's commands, --workspace NAME or --cwd FOLDER opens")


@pytest.mark.parametrize(
    ("trust", "advice"),
    [
        (Trust.DIRECT, "pass `workspace` (a workspace's slug, its name, or an absolute path in it)"),
        (
            Trust.SANDBOXED,
            "this sandboxed session has none. In a direct session, pass `workspace` (a workspace's slug, its name, or an absolute path in it)",
        ),
    ],
)
def test_session_without_a_workspace_is_told_what_it_can_do(trust: Trust, advice: str, registry: Registry):
    with pytest.raises(HoldfastError) as missing:
        resolve_workspace("where", "", session("", trust), "", registry)

    assert missing.value.message == f"missing workspace: {advice}, or call from a session that has one."


@pytest.mark.promise("WSP-06")
@pytest.mark.parametrize(
    ("address", "code"),
    [("nowhere", "UNKNOWN_WORKSPACE"), ("/nowhere", "UNKNOWN_WORKSPACE"), ("../Blog", "BAD_WORKSPACE")],
)
def test_unknown_workspace_is_an_error(anonymous: Client, address: str, code: str):
    assert anonymous.call("where", {"workspace": address})["code"] == code


@pytest.mark.promise("WSP-02")
def test_current_folder_is_not_used_as_workspace(
    data: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry
):
    monkeypatch.chdir(data.parent / "Blog")
    monkeypatch.setenv("PWD", str(Path.cwd()))

    with pytest.raises(HoldfastError) as missing:
        resolve_workspace("where", "", None, "", registry)

    assert missing.value.code is codes.MISSING_WORKSPACE


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.promise("WSP-02", "WSP-06")
def test_sandboxed_session_can_use_only_its_own_workspace(data: Path, era: Era):
    environ = {**context_env(session("blog", Trust.SANDBOXED)), "HOLDFAST_DATA_DIR": str(data)}
    with connect_client(("stdio", era), NOTES, environ=environ) as mine:
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
def test_sandboxed_session_cannot_tell_other_workspaces_from_unknown_ones(registry: Registry):
    def message(address: str) -> str:
        with pytest.raises(HoldfastError) as denied:
            resolve_workspace("where", address, session("blog", Trust.SANDBOXED), "", registry)
        return denied.value.message.replace(address, "it")

    assert message("shop") == message("nowhere")


@pytest.mark.promise("WSP-06")
def test_sandboxed_session_without_a_workspace_can_use_none(registry: Registry):
    with pytest.raises(HoldfastError) as denied:
        resolve_workspace("where", "blog", session("", Trust.SANDBOXED), "", registry)

    assert denied.value.code is codes.WORKSPACE_DENIED


@pytest.mark.promise("WSP-06")
def test_git_worktree_belongs_to_the_workspace_of_its_repository(tmp_path: Path):
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
def test_workspace_argument_overrides_the_sessions_and_is_logged(
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
def test_workspace_argument_equal_to_the_sessions_is_not_logged(
    registry: Registry, data: Path, caplog: pytest.LogCaptureFixture, named: str
):
    caplog.set_level(logging.INFO)

    resolve_workspace("where", named.format(root=data.parent), session("blog"), "", registry)

    assert caplog.records == []


@pytest.mark.promise("WSP-04")
def test_sessions_workspace_need_not_be_registered_on_this_machine(tmp_path: Path):
    elsewhere = Registry(tmp_path / "none")

    found = resolve_workspace("where", "", session("blog", Trust.SANDBOXED), "", elsewhere)

    assert found.slug == "blog"
    with pytest.raises(HoldfastError, match="cannot see the folder of the workspace 'blog'"):
        _ = found.path


@pytest.mark.promise("WSP-04")
def test_a_server_without_the_registry_gets_the_workspaces_folder_from_its_environment(tmp_path: Path):
    environ = {
        **context_env(session("blog", Trust.SANDBOXED)),
        "HOLDFAST_WORKSPACE_PATH": "/srv/blog",
        "HOLDFAST_DATA_DIR": str(tmp_path / "none"),
    }
    with connect_client(("stdio", "modern"), NOTES, environ=environ) as confined:
        found = confined.call("where")

    assert _slug_and_path(found) == ("blog", "/srv/blog")


@pytest.mark.promise("WSP-05")
def test_running_call_keeps_its_context_after_a_new_handshake(data: Path):
    environ = {"HOLDFAST_DATA_DIR": str(data)}
    initialize_meta = {META_KEY: {"workspace_id": "blog"}}
    with connect_client(
        ("stdio", "handshake"),
        "tests.toolkit.snapshot_server",
        environ=environ,
        initialize_meta=initialize_meta,
    ) as anonymous:
        slugs = _around_a_new_handshake(anonymous)

    assert slugs == {"running": ["blog", "blog"], "next": "shop"}


@pytest.mark.promise("WSP-05", "KIT-18")
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_requests_of_a_shared_server_use_their_own_workspace(data: Path, era: Era):
    environ = {"HOLDFAST_SHARED": "1", "HOLDFAST_DATA_DIR": str(data)}
    with connect_client(("stdio", era), NOTES, environ=environ) as shared:
        slugs = [
            shared.call("where", {}, context_meta(session(workspace)))["slug"]
            for workspace in ("blog", "shop") * 3
        ]

    assert slugs == ["blog", "shop"] * 3


def _around_a_new_handshake(anonymous: Client) -> dict[str, Any]:
    """Start a call, do another handshake with another workspace, then let the call continue."""
    transport: Any = anonymous.transport
    call: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 900,
        "method": "tools/call",
        "params": {"name": "hold", "arguments": {}},
    }
    transport.notify(call)
    anonymous.call("is_held")
    anonymous.initialize({META_KEY: {"workspace_id": "shop"}})
    after = anonymous.call("where")["slug"]
    *_, released = transport.request(
        {"jsonrpc": "2.0", "id": 901, "method": "tools/call", "params": {"name": "release", "arguments": {}}}
    )
    assert released["id"] == 901
    return {"running": anonymous.call("seen")["items"], "next": after}


def _slug_and_path(envelope: dict[str, Any]) -> tuple[str, str]:
    return envelope["slug"], envelope["path"]


def _logged(record: logging.LogRecord) -> tuple[object, ...]:
    fields = vars(record)
    return (
        record.levelname,
        record.getMessage(),
        fields["tool"],
        fields["argument"],
        fields["session_workspace"],
    )
