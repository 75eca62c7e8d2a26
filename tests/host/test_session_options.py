"""The options of `host.session` and `host.run`, each with real servers."""

import asyncio
import gc
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    HoldfastError,
    Host,
    Mode,
    ServerConfigs,
    Session,
    SessionOptions,
    Trust,
    events,
    settings,
)
from holdfast.audit.record import decode_record
from holdfast.connect.connection import Connection
from holdfast.connect.link import Link
from holdfast.host.data_folder import DATABASE_FILE
from holdfast.host.ephemeral_store import EphemeralStore
from holdfast.host.open_options import OpenOptions
from holdfast.model.server import Source
from holdfast.wire.peer import Peer
from tests.commands import run_holdfast
from tests.connect.conftest import open_for_block
from tests.connect.web import http_entry, sdk_server, serve
from tests.sandbox.conftest import bwrap

__all__ = ["bwrap"]
pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
LIGHT_SERVER = ROOT / "benchmarks" / "servers" / "light.py"
SECOND_PATH = "/usr/bin:/bin"


def entry(**more: Any) -> dict[str, object]:
    """The entry of the test server."""
    return {
        "command": sys.executable,
        "args": ["-m", "tests.host.options_server"],
        "env": {"PYTHONPATH": str(ROOT), **more.pop("env", {})},
        **more,
    }


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {
        **kept,
        "HOLDFAST_DATA_DIR": str(home / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(home / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(home / "host.json"),
    }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path.resolve() / "home"
    home.mkdir()
    (home / "config.toml").touch()
    return home


ODD_OPTIONS: list[dict[str, Any]] = [
    {"user_id": "a\ud800"},
    {"user_id": "a\0b"},
    {"user_id": "x" * 300_000},
    {"user_id": 5},
    {"title": "t\ud800"},
    {"title": b"t"},
    {"title": "x" * 10_000},
    {"tags": ["\ud800"]},
    {"tags": 5},
    {"tags": [5]},
    {"tools": 5},
    {"tools": [5]},
    {"workspace": "\ud800"},
    {"workspace": 5},
    {"trust": 5},
    {"permission": 5},
    {"keep": "no"},
    {"only_these": 1},
    {"cwd": 5},
    {"cwd": "/nowhere\0"},
    {"cwd": "/\ud800"},
    {"servers": 5},
    {"servers": {"\ud800": {"command": "true"}}},
    {"servers": {"own": {"command": "true", "args": "x"}}},
]


async def test_odd_value_of_an_option_is_an_error_of_holdfast(home: Path):
    opened: list[dict[str, Any]] = []
    async with Host(settings=settings.load(home / "config.toml", environment(home))) as host:
        for odd in ODD_OPTIONS:
            options: dict[str, Any] = {"cwd": home, "only_these": True, **odd}
            with pytest.raises(HoldfastError) as caught:
                async with host.session(**options):
                    opened.append(odd)
            assert caught.value.code.name in ("BAD_ARGUMENT", "UNSTORABLE"), odd

    assert opened == []


async def test_none_stands_for_the_default_of_every_option_but_the_flags(host: Host, folder: Path):
    flags = ("keep", "only_these")
    options: dict[str, Any] = {name: None for name in SessionOptions.__annotations__ if name not in flags}
    with_cwd: dict[str, Any] = {**options, "cwd": folder}
    async with host.session(**with_cwd) as session:
        outer = session.permission.mode
        async with host.run(isolate=True, **options) as inner:
            inherited = (inner.context.cwd, inner.permission.mode)
    async with host.reopen(session.context.session_id, **options) as again:
        reopened = again.context.cwd
    for flag in flags:
        with pytest.raises(HoldfastError, match=f"`{flag}` must be True or False"):
            await host.session(**{flag: None}).__aenter__()  # type: ignore[arg-type]

    assert (outer, inherited, reopened) == (Mode.AUTO, (str(folder), Mode.AUTO), str(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    return folder


@pytest.fixture
async def host(home: Path) -> AsyncIterator[Host]:
    """A host with a store on disk, and no config of this machine."""
    async with Host(settings=settings.load(home / "config.toml", environment(home))) as host:
        yield host


async def describe(session: Session, name: str = "own") -> dict[str, Any]:
    result = await session.call(f"{name}.describe")
    assert result.ok, result.text
    return result.data


async def offered(session: Session) -> set[str]:
    return {tool.name for tool in await session.tools()}


async def test_cwd_is_the_folder_of_the_session_and_of_its_servers(
    host: Host, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder.parent)
    async with host.session(cwd="project", servers={"own": entry(cwd=".")}, only_these=True) as session:
        assert (session.context.cwd, (await describe(session))["cwd"]) == (str(folder), str(folder))


@pytest.mark.parametrize("tool", ["files.list", "shell.run"])
async def test_session_with_only_its_own_servers_says_so_when_a_built_in_tool_is_called(
    host: Host, folder: Path, tool: str
):
    async with host.session(cwd=folder, servers={"own": entry()}, only_these=True) as session:
        result = await session.call(tool, {})

    name = tool.partition(".")[0]
    expected = f"This session has only the servers that it was given (`only_these`), so not the built-in server {name!r}."
    assert expected in result.message


async def test_workspace_can_be_named(host: Host, folder: Path, tmp_path: Path):
    host.registry.add(folder, "Shop", trust=Trust.DIRECT)
    async with host.session(cwd=tmp_path, workspace="shop", only_these=True) as session:
        assert (session.context.workspace_id, session.context.cwd) == ("shop", str(tmp_path.resolve()))

    with pytest.raises(HoldfastError, match="There is no workspace 'shopp'"):
        async with host.session(cwd=tmp_path, workspace="shopp"):
            pass


@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("trust", [Trust.SANDBOXED, "sandboxed"])
async def test_trust_confines_the_applications_servers(host: Host, folder: Path, trust: Any):
    for_direct, for_both = entry(), entry(trust_level="sandboxed", readable=[str(ROOT)])
    servers: ServerConfigs = {"direct": for_direct, "both": for_both}
    async with host.session(cwd=folder, trust=trust, servers=servers, only_these=True) as session:
        seen = await describe(session, "both")
        refusals = {refusal.server: refusal.reason for refusal in session.refusals}

    assert (session.context.trust_level, seen["trust_level"]) == (Trust.SANDBOXED, "sandboxed")
    assert {name: reason[:31] for name, reason in refusals.items()} == {
        "direct": "Only direct sessions may use it"
    }


@pytest.mark.promise("API-02")
async def test_servers_of_the_application_may_set_the_path_and_are_not_pinned(host: Host, folder: Path):
    server = entry(env={"PATH": SECOND_PATH})
    async with host.session(cwd=folder, servers={"own": server}) as session:
        seen, without_hints = await describe(session), session.offered_without_hints
    pins = await host.store.read(lambda tx: tx.approvals())

    assert (seen["path"], pins, without_hints) == (SECOND_PATH, (), {})


@pytest.mark.promise("RES-01")
async def test_source_of_an_applications_server_cannot_be_chosen(home: Path, folder: Path):
    loaded = settings.load(home / "config.toml", environment(home))
    with pytest.raises(HoldfastError, match="unknown key 'source'"):
        Host(settings=loaded, servers={"one": entry(source="builtin")})
    async with (
        Host(settings=loaded, servers={"one": entry()}) as host,
        host.session(cwd=folder, servers={"other": entry()}) as session,
    ):
        assert {session.server(name).source for name in ("one", "other")} == {Source.APP}


async def test_control_the_client_of_a_sandboxed_session_cannot_set_the_path(host: Host, folder: Path):
    server: Any = {"name": "own", **entry(), "env": [{"name": "PATH", "value": SECOND_PATH}]}
    options = OpenOptions(cwd=folder, trust=Trust.SANDBOXED, client_servers=(server,))
    async with open_for_block(host, options) as session:
        reasons = [refusal.reason[:8] for refusal in session.refusals if refusal.server == "own"]
        assert reasons == ["env: PAT"]


@pytest.mark.promise("API-02")
async def test_servers_of_the_application_may_be_on_loopback(host: Host, folder: Path):
    async with serve(sdk_server().streamable_http_app()) as url:
        async with host.session(cwd=folder, servers={"web": http_entry(url)}) as session:
            by_app = session.available
        client: Any = {"name": "web", **http_entry(url), "headers": []}
        options = OpenOptions(cwd=folder, trust=Trust.SANDBOXED, client_servers=(client,))
        async with open_for_block(host, options) as session:
            by_client = session.available

    assert ("web" in by_app, "web" in by_client) == (True, False)


async def test_servers_of_a_session_replace_those_of_the_host_with_the_same_name(home: Path, folder: Path):
    loaded = settings.load(home / "config.toml", environment(home))
    async with Host(settings=loaded, servers={"own": {"command": "/no/such/program"}}) as host:
        async with host.session(cwd=folder, servers={"own": entry()}) as session:
            assert (session.refusals, (await session.call("own.add")).ok) == ((), True)
        async with host.session(cwd=folder) as session:
            assert [refusal.server for refusal in session.refusals] == ["own"]


@pytest.mark.slow
@pytest.mark.promise("API-02")
async def test_only_these_offers_nothing_else(host: Host, home: Path, folder: Path):
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"mine": entry()}}))
    async with host.session(cwd=folder, servers={"own": entry()}) as session:
        everything = session.available
    async with host.session(cwd=folder, servers={"own": entry()}, only_these=True) as session:
        only_these, tools = session.available, await offered(session)
    async with host.session(cwd=folder, only_these=True) as session:
        nothing = session.available, await session.tools()

    assert set(everything) == {"mine", "own", "files"}
    assert (only_these, tools) == (("own",), {"own.describe", "own.add", "own.repeat"})
    assert nothing == ((), ())


@pytest.mark.promise("API-02")
async def test_name_of_a_built_in_server_stays_reserved(host: Host, folder: Path):
    async with host.session(cwd=folder, servers={"files": entry()}, only_these=True) as session:
        assert [refusal.reason for refusal in session.refusals] == [
            "A built-in server has this name. Choose another name."
        ]


@pytest.mark.slow
async def test_tools_are_offered_by_pattern_and_servers_without_one_are_not_started(host: Host, folder: Path):
    servers: ServerConfigs = {"own": entry(), "other": entry(), "broken": {"command": "/no/such/program"}}
    tools = ("own.add", "other.re*")
    async with host.session(cwd=folder, servers=servers, tools=tools) as session:
        found = await offered(session)
        refused = await session.call("own.repeat", {"text": "x"})
        refusals = {refusal.server: refusal.reason for refusal in session.refusals}

    assert (found, refused.code) == ({"own.add", "other.repeat"}, "UNKNOWN_TOOL")
    not_asked_for = "None of its tools is allowed by the application that opened the session."
    assert refusals == {"broken": not_asked_for, "files": not_asked_for}


@pytest.mark.slow
async def test_sessions_with_other_tools_share_a_server_of_lifetime_host(host: Host, folder: Path):
    servers: ServerConfigs = {"own": entry(lifetime="host")}
    totals: list[int] = []
    for tools in (["own.add"], ["own.*"]):
        async with host.session(cwd=folder, servers=servers, only_these=True, tools=tools) as session:
            totals.append((await session.call("own.add")).data["result"])

    assert totals == [1, 2]


async def test_user_id_is_told_to_servers_and_separates_sessions(host: Host, folder: Path):
    async with host.session(cwd=folder, servers={"own": entry()}, only_these=True, user_id="ann") as session:
        seen, session_id = await describe(session), session.context.session_id

    assert (seen["user_id"], (await host.find_session(session_id, "ann")).context.user_id) == ("ann", "ann")
    with pytest.raises(HoldfastError, match="There is no session"):
        await host.find_session(session_id, "bob")


@pytest.mark.slow
async def test_title_and_tags_are_stored_and_shown(host: Host, home: Path, folder: Path):
    tags = ["report", "nightly"]
    async with host.session(cwd=folder, only_these=True, title="Nightly report", tags=tags) as session:
        await session.prompt([{"type": "text", "text": "not the title"}])
        session_id = session.context.session_id
    run = asyncio.to_thread
    shown = await run(_output, home, "sessions", "show", session_id)
    as_json = json.loads(await run(_output, home, "sessions", "show", session_id, "--json"))
    listed = json.loads(await run(_output, home, "sessions", "list", "--json"))

    assert "Nightly report" in shown
    assert "nightly, report" in shown
    for found in (as_json, listed):
        assert (found["title"], found["tags"]) == ("Nightly report", ["nightly", "report"])


@pytest.mark.slow
@pytest.mark.promise("SES-04")
@pytest.mark.parametrize("mode", [Mode.READ_ONLY, "read-only"])
async def test_permission_is_the_mode(host: Host, folder: Path, mode: Any):
    servers: ServerConfigs = {"own": entry()}
    async with host.session(cwd=folder, servers=servers, only_these=True, permission=mode) as session:
        assert (await session.call("own.add")).code == "NOT_PERMITTED"
        assert (await session.call("own.describe")).ok
    async with host.session(cwd=folder, servers=servers, only_these=True) as session:
        assert (await session.call("own.add")).ok


MARKER = "a sentence that no other test contains"


async def use(host: Host, folder: Path, *, keep: bool) -> tuple[str, list[str]]:
    """A session in which a tool, a prompt and the title contain the marker. Returns its id, and the kinds of its events."""
    servers: ServerConfigs = {"own": entry()}
    async with host.session(cwd=folder, servers=servers, title=MARKER, tags=[MARKER], keep=keep) as session:
        kinds = asyncio.create_task(_kinds(session))
        assert (await session.call("own.repeat", {"text": MARKER})).data["result"] == MARKER
        await session.prompt([{"type": "text", "text": f"/call own.repeat {json.dumps({'text': MARKER})}"}])
    return session.context.session_id, await kinds


async def _kinds(session: Session) -> list[str]:
    return [events.event_kind(stored.event) async for stored in session.subscribe()]


@pytest.mark.promise("API-06", "AUD-01")
@pytest.mark.parametrize("keep", [False, True])
async def test_session_that_is_not_kept_leaves_only_its_audit_records(home: Path, folder: Path, keep: bool):
    async with Host(settings=settings.load(home / "config.toml", environment(home))) as host:
        session_id, kinds = await use(host, folder, keep=keep)
    with closing(sqlite3.connect(home / "data" / DATABASE_FILE)) as db:
        tables = ("sessions", "events", "messages", "leases", "approvals")
        rows = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
        audit = [decode_record(body) for (body,) in db.execute("SELECT body FROM audit ORDER BY seq")]
    files = [file for file in home.rglob("*") if file.is_file() and MARKER.encode() in file.read_bytes()]
    verified = await asyncio.to_thread(_output, home, "audit", "verify")

    # The session that is kept is the control: what is searched for can be found.
    assert {table for table, count in rows.items() if count} == (
        {"sessions", "events", "messages"} if keep else set()
    )
    assert bool(files) == keep
    assert [(record.session_id, record.tool, record.outcome) for record in audit] == [
        (session_id, "repeat", "completed")
    ] * 2
    assert "2 records" in verified
    assert [*(home / "data" / "empty").iterdir()] == []
    calls = ["tool_called", "tool_started", "tool_ended"]
    assert kinds == [
        *("session_opened", "servers_resolved", *calls),
        *("prompted", *calls, "replied", "turn_ended", "session_closed"),
    ]


@pytest.mark.slow
@pytest.mark.promise("API-06")
async def test_short_runs_leave_memory_and_descriptors_flat(host: Host, folder: Path):
    async def run_often(count: int) -> tuple[int, int, int]:
        for _ in range(count):
            async with host.run(cwd=folder, only_these=True, keep=False):
                pass
        gc.collect()
        objects = gc.get_objects()
        sessions = sum(isinstance(found, Session | EphemeralStore) for found in objects)
        descriptors = len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))
        return sessions, descriptors, len(objects)

    before = (await run_often(0))[0]  # another test of this process may have left sessions
    first = await run_often(100)
    last = await run_often(200)

    assert (first[0], last[:2]) == (before, first[:2])
    assert last[2] - first[2] < 200, "not one more object for each run"


@pytest.mark.slow
@pytest.mark.promise("API-06")
async def test_short_runs_of_a_server_leave_no_objects_no_descriptors_and_no_files(host: Host, folder: Path):
    servers: ServerConfigs = {"echo": {"command": sys.executable, "args": ["-I", "-S", str(LIGHT_SERVER)]}}

    async def run() -> None:
        async with host.session(cwd=folder, servers=servers, only_these=True, keep=False) as session:
            for _ in range(3):
                assert (await session.call("echo.echo", {"text": "hi"})).ok

    async def run_many(times: int) -> tuple[int, int, list[Path]]:
        for _ in range(times):
            await asyncio.gather(*(run() for _ in range(4)))
        gc.collect()
        live = sum(isinstance(found, Session | Link | Connection | Peer) for found in gc.get_objects())
        files = [file for file in host.settings.data_dir.rglob("*") if "sess_" in file.name]
        return live, len([*Path("/proc/self/fd").iterdir()]), files

    before, *_ = await run_many(0)
    first = await run_many(1)

    assert (await run_many(2), first[0], first[2]) == (first, before, [])


async def test_run_takes_the_same_options(host: Host, folder: Path):
    host.registry.add(folder, "Shop", trust=Trust.DIRECT)
    async with host.run(
        cwd=folder,
        workspace="shop",
        trust="direct",
        servers={"own": entry()},
        only_these=True,
        tools=["own.describe", "own.add"],
        user_id="ann",
        title="A run",
        tags=["nightly"],
        permission="read-only",
        keep=True,
    ) as session:
        seen, refused = await describe(session), await host.call("own.add")
        context, tools = session.context, await offered(session)
    stored = await host.find_session(context.session_id, "ann")

    assert (seen["user_id"], seen["trust_level"], refused.code) == ("ann", "direct", "NOT_PERMITTED")
    assert (context.workspace_id, context.cwd, tools) == ("shop", str(folder), {"own.describe", "own.add"})
    assert (stored.title, stored.tags) == ("A run", ("nightly",))


async def test_run_that_joins_another_takes_no_options(host: Host, folder: Path):
    async with host.run(cwd=folder, only_these=True) as outer:
        with pytest.raises(HoldfastError, match="`trust` would have no effect"):
            async with host.run(trust="sandboxed"):
                pass
        async with host.run() as inner:
            assert inner is outer


@pytest.mark.slow
async def test_isolated_run_is_like_the_session_around_it_and_gets_no_more_rights(host: Host, folder: Path):
    servers: ServerConfigs = {"own": entry()}
    async with host.session(
        cwd=folder,
        servers=servers,
        only_these=True,
        tools=["own.add", "own.describe"],
        user_id="ann",
        permission="read-only",
        keep=False,
    ) as outer:
        async with host.run(isolate=True, tools=["own.describe", "own.repeat"], permission="auto") as inner:
            seen, tools = await describe(inner), await offered(inner)
        async with host.run(isolate=True) as alike:
            refused, offers = await alike.call("own.add"), await offered(alike)
        with pytest.raises(HoldfastError, match="`user_id` is that of the session"):
            async with host.run(isolate=True, user_id="bob"):
                pass
        async with host.run(isolate=True, servers={"other": entry()}, keep=True) as kept:
            refusals = [refusal.server for refusal in kept.refusals]

    assert (seen["user_id"], seen["cwd"], tools) == ("ann", seen["cwd"], {"own.describe"})
    assert (refused.code, offers) == ("NOT_PERMITTED", {"own.add", "own.describe"})
    assert refusals == ["other"], "no pattern of the outer session matches its tools"
    assert inner.context.parent_session_id == outer.context.session_id
    stored = await host.find_session(kept.context.session_id, "ann")
    with pytest.raises(HoldfastError, match="There is no session"):
        await host.find_session(inner.context.session_id, "ann")
    assert stored.context.parent_session_id == outer.context.session_id


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "tools as one text": ({"tools": "own.add"}, "`tools` must be a list of strings"),
    "tags as one text": ({"tags": "nightly"}, "`tags` must be a list of strings"),
    "a bad pattern": ({"tools": [".add"]}, "`tools` must be a list of patterns"),
    "servers as a list": ({"servers": [{"name": "own"}]}, "`servers` must be like"),
    "servers with an object": (
        {"servers": {"own": {"command": object()}}},
        "a value of the type object is not supported",
    ),
    "an unknown mode": ({"permission": "maybe"}, "'maybe' is not a mode"),
    "an unknown trust": ({"trust": "blind"}, "'blind' is not a trust level"),
    "a folder that is not there": ({"cwd": "/no/such/folder"}, "is not an existing folder"),
    "too many tags": ({"tags": [str(number) for number in range(1000)]}, "tags"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_wrong_option_is_an_error_at_once(host: Host, folder: Path, wrong: str):
    given, message = WRONG[wrong]
    options: Any = {"cwd": folder, **given}
    with pytest.raises(HoldfastError, match=message):
        async with host.session(**options):
            pass


async def test_misspelled_option_is_an_error_at_once(host: Host):
    wrong: Any = {"titel": "x"}
    with pytest.raises(TypeError, match="A session has no option 'titel'"):
        async with host.session(**wrong):
            pass


async def test_server_entries_may_have_paths_and_are_copied(host: Host, folder: Path):
    args = ["-m", "tests.host.options_server"]
    servers = {"own": {"command": Path(sys.executable), "args": args, "env": {"PYTHONPATH": ROOT}}}
    async with host.session(cwd=folder, servers=servers, only_these=True) as session:
        args.clear()
        async with host.run(isolate=True) as later:
            assert (session.available, later.available) == (("own",), ("own",))


def _output(home: Path, *words: str) -> str:
    environ = environment(home) | {"HOLDFAST_CONFIG": str(home / "config.toml")}
    done = run_holdfast(*words, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout
