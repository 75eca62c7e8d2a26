"""Mistakes in an application that uses the Python API: each is an error at once, which says what to write."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError, Host, OpenOptions, ServerConfigs
from holdfast import sync as sync_holdfast
from holdfast.adapters import client_session, langchain_tools, pydantic_ai_toolset
from holdfast.testing import host_of
from holdfast.toolkit import Toolbox
from tests.host.box_servers import make_box
from tests.host.test_app_servers import make_host

pytestmark = pytest.mark.anyio


BLOCKS: list[tuple[Callable[[Host], Any], str]] = [
    (lambda host: host.session(title="x"), "async with host.session(…) as session:"),
    (lambda host: host.run(), "async with host.run(…) as session:"),
    (lambda host: host_of(Toolbox("box")), "async with host_of(…) as host:"),
    (lambda host: Toolbox("box").client(), "async with box.client(…) as client:"),
]


@pytest.mark.parametrize(("make", "usage"), BLOCKS, ids=["session", "run", "host_of", "client"])
async def test_what_is_used_without_async_with_says_what_to_write(
    tmp_path: Path, make: Callable[[Host], Any], usage: str
):
    async with make_host(tmp_path, {}) as host:
        with pytest.raises(AttributeError) as used:
            make(host).call("server.tool")
        with pytest.raises(TypeError) as awaited:
            await make(host)
        with pytest.raises(TypeError) as entered, make(host):
            pass
        async with make(host) as opened:
            assert opened.call is not None

    errors = (used, awaited, entered)
    assert [str(error.value).partition(" Write: ")[2] for error in errors] == [usage] * 3


@pytest.mark.parametrize(("make", "usage"), BLOCKS, ids=["session", "run", "host_of", "client"])
async def test_a_block_that_is_entered_twice_says_what_to_write(
    tmp_path: Path, make: Callable[[Host], Any], usage: str
):
    async with make_host(tmp_path, {}) as host:
        block = make(host)
        async with block:
            pass
        with pytest.raises(TypeError) as raised:
            await block.__aenter__()

    assert str(raised.value) == f"This block can be entered once. Write again: {usage}"


async def test_a_host_that_is_used_in_the_wrong_block_says_what_to_write(tmp_path: Path):
    host: Any = make_host(tmp_path, {})
    with pytest.raises(TypeError, match=r"Write: async with Host\(…\) as host:.*holdfast\.sync"), host:
        pass
    with pytest.raises(TypeError, match=r"Write: async with Host\(…\) as host:"):
        await host
    sync_host: Any = sync_holdfast.Host(settings=host.settings)
    with pytest.raises(TypeError, match=r"Write: with Host\(…\) as host:"):
        await sync_host.__aenter__()


async def test_names_that_only_the_async_api_has_are_answered_with_what_to_write(tmp_path: Path):
    host: Any = sync_holdfast.Host(settings=make_host(tmp_path, {}).settings)
    kind: Any = sync_holdfast.Session
    session = kind.__new__(kind)
    said: dict[str, str] = {}
    for owner, name in (
        (host, "run"),
        (host, "call"),
        (host, "find_session"),
        (session, "subscribe"),
        (session, "call_tool"),
        (session, "events"),
    ):
        with pytest.raises(AttributeError) as raised:
            getattr(owner, name)
        said[name] = str(raised.value).partition(" Write: ")[2]

    assert said == {
        "run": "host.session(…), or async with holdfast.Host(…), which has it",
        "call": 'session.call("server.tool", {…}), where session is what host.session(…) returns',
        "find_session": "async with holdfast.Host(…), which has it",
        "subscribe": "async with holdfast.Host(…), which has it",
        "call_tool": 'session.call("server.tool", {…})',
        "events": "session = host.session(on_event=…)",
    }


async def test_what_is_no_folder_for_a_session_is_told_what_it_is(tmp_path: Path):
    (tmp_path / "file").touch()
    said: list[str] = []
    async with make_host(tmp_path, {}) as host:
        for cwd in (tmp_path / "file", tmp_path / "gone", "project", "", "/x/~/project"):
            with pytest.raises(HoldfastError) as raised:
                await host.open(OpenOptions(cwd=cwd))
            said.append(raised.value.message.replace(str(tmp_path), ""))

    assert said == [
        "'/file' is not a folder. Give the absolute path of a folder.",
        "'/gone' is not an existing folder. Give its absolute path.",
        "'project' is not an absolute path. Give the absolute path of a folder.",
        "A new session needs a folder. Give its absolute path as `cwd`.",
        "'/x/~/project' is not an existing folder. `~` is not replaced: give Path(…).expanduser().",
    ]


async def test_a_turn_without_a_result_says_how_to_get_one():
    async with host_of() as host, host.session() as session:
        whole, left = session.prompt("/tools"), session.prompt("/tools")
        async for _ in whole:
            pass
        async for _ in left:
            break
        with pytest.raises(HoldfastError, match=r"write: result = await session\.prompt"):
            _ = left.result

    assert whole.result.ok


async def test_a_stored_session_that_is_used_before_it_is_open_says_what_to_write(tmp_path: Path):
    async with make_host(tmp_path, {}) as host:
        async with host.session() as session:
            session_id = session.context.session_id
        reopening: Any = host.reopen(session_id)
        with pytest.raises(AttributeError, match=r"async with host\.reopen"):
            await reopening.call("server.tool")
        with pytest.raises(TypeError, match=r"async with host\.reopen"), reopening:
            pass
        async with asyncio.timeout(60), host.open(OpenOptions(cwd=tmp_path)) as opened:
            assert opened.call is not None

    assert opened.is_closing


async def test_every_method_of_a_closed_session_raises_the_same_error(tmp_path: Path):
    async with make_host(tmp_path, {"box": make_box}) as host:
        async with host.session() as session:
            pass
        uses: dict[str, Callable[[], Awaitable[object]]] = {
            "call": lambda: session.call("box.order"),
            "tools": session.tools,
            "prompt": lambda: session.prompt("hello"),
            "list_resources": lambda: session.list_resources("box"),
            "read_resource": lambda: session.read_resource("box", "a://b"),
            "list_prompts": lambda: session.list_prompts("box"),
            "get_prompt": lambda: session.get_prompt("box", "a"),
            "server_info": lambda: session.server_info("box"),
            "set_model": lambda: session.set_model("a:b"),
            "lower_trust": session.lower_trust,
        }
        said: dict[str, tuple[str, str]] = {}
        for name, use in uses.items():
            with pytest.raises(HoldfastError) as raised:
                await use()
            said[name] = (raised.value.code.name, raised.value.message)

    assert said == dict.fromkeys(uses, ("SCOPE_CLOSED", "The session was closed."))


def test_a_closed_session_of_the_sync_host_says_so_even_after_the_host(tmp_path: Path):
    environ = {"HOLDFAST_DATA_DIR": str(tmp_path / "data")}
    (tmp_path / "config.toml").touch()
    loaded = sync_holdfast.async_host.settings_module.load(tmp_path / "config.toml", environ)
    with sync_holdfast.Host(settings=loaded, servers={"box": make_box}) as host:
        session = host.session(only_these=True)
    for use in (session.tools, lambda: session.call("box.order"), lambda: session.prompt("hello")):
        with pytest.raises(HoldfastError, match="The session was closed"):
            use()


async def test_a_stored_session_is_reopened_in_its_folders_without_naming_them(tmp_path: Path):
    folder, more = tmp_path / "project", tmp_path / "more"
    folder.mkdir()
    more.mkdir()
    async with make_host(tmp_path, {}) as host:
        session = await host.open(OpenOptions(cwd=folder, roots=(str(more),), user_id="ann"))
        await session.close()
        session_id = session.context.session_id
        again = await host.reopen(session_id, OpenOptions(user_id="ann"))
        await again.close()
        async with host.session(cwd=folder, permission="read-only") as plain:
            pass
        plain_again = await host.reopen(plain.context.session_id)
        await plain_again.close()
        with pytest.raises(HoldfastError, match="There is no session"):
            await host.reopen(session_id)  # the session is ann's

    assert (again.context.cwd, again.context.roots) == (session.context.cwd, session.context.roots)
    assert plain_again.permission.mode.value == "read-only"


@pytest.mark.parametrize("needed_by", ["a call", "a list of the tools"])
async def test_a_lazy_server_that_hangs_does_not_delay_the_end_of_the_session(tmp_path: Path, needed_by: str):
    started = tmp_path / "started"
    os.mkfifo(started)
    servers: ServerConfigs = {
        "hangs": {"command": "sh", "args": ["-c", f"echo x > {started}; exec cat > /dev/null"], "lazy": True}
    }
    async with make_host(tmp_path, servers) as host:
        async with host.session() as session:
            use = session.call("hangs.tool") if needed_by == "a call" else session.tools()
            waiting = asyncio.create_task(use)
            await asyncio.to_thread(started.read_text)
            ended = asyncio.wait([waiting])
            assert not waiting.done()
        await ended

    assert str(waiting.exception()) == "The session was closed."


async def failing_lifespan(box: Toolbox) -> AsyncIterator[None]:
    raise KeyError("hunter2")
    yield


async def test_a_toolbox_that_cannot_be_started_names_the_server_and_the_exception(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    servers: ServerConfigs = {"made": make_broken, "living": Toolbox("box", lifespan=failing_lifespan)}
    async with make_host(tmp_path, servers) as host, host.session() as session:
        reasons = {refusal.server: refusal.reason for refusal in session.refusals}
        result = await session.call("made.tool")

    assert reasons == {
        "made": "Could not start 'made': The function make_broken, which makes its toolbox, raised ZeroDivisionError. "
        "The application's log has the traceback.",
        "living": "Could not start 'living': Its lifespan raised KeyError. The application's log has the traceback.",
    }
    assert (result.code, reasons["made"] in result.message) == ("SERVER_REFUSED", True)
    logged = {record.getMessage() for record in caplog.records if record.exc_info}
    assert logged == {"could not start made", "could not start living"}


def make_broken() -> Toolbox:
    raise ZeroDivisionError("hunter2")


def warnings_about_tools(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [text.removeprefix("no tool matches ") for text in texts if text.startswith("no tool matches ")]


async def test_patterns_that_match_no_tool_are_warned_about_once_the_tools_are_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    servers: ServerConfigs = {
        "shop": make_box,
        "lazy": {"toolbox": make_box, "lazy": True},
        "gone": {"command": str(tmp_path / "missing")},
        "few": {"toolbox": make_box, "tools": ["order", "picutre"]},
    }
    right = ["shop.order", "lazy.*", "gone.anything", "few.order"]
    wrong = ["shop.ordr", "shp.order", "shop.x*", "picture", "lazy.whoam"]
    async with make_host(tmp_path, servers) as host:
        async with host.session(tools=[*right, *wrong]) as session:
            at_first = warnings_about_tools(caplog)
            await session.tools()
            await session.tools()
        later = warnings_about_tools(caplog)[len(at_first) :]

    assert at_first == [
        "shop.ordr in `tools`. Did you mean 'shop.order'?",
        "shp.order in `tools`. Did you mean 'shop.order'?",
        "shop.x* in `tools`. The tools of 'shop' are: confirm, order, picture, whoami.",
        "picture.* in `tools`. Did you mean 'shop.picture'? A name without a server, such as 'name', is read as 'name.*'.",
        "few.picutre in `tools`. Did you mean 'few.picture'?",
    ]
    assert later == ["lazy.whoam in `tools`. Did you mean 'lazy.whoami'?"]


async def test_the_only_pattern_may_name_no_server(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async with make_host(tmp_path, {"shop": make_box}) as host, host.session(tools=["shpo.order"]):
        pass

    assert warnings_about_tools(caplog) == [
        "shpo.order in `tools`. The session has no such server. Did you mean 'shop'?"
    ]


async def test_adapters_warn_once_about_patterns_that_match_no_tool(caplog: pytest.LogCaptureFixture):
    async with host_of(make_box()) as host, host.session(tools=["shop.order"]) as session:
        toolset = pydantic_ai_toolset(session, tools=["shop.order", "shop.oder"])
        context: Any = None
        listed = [[*await toolset.get_tools(context)] for _ in range(2)]
        langchain = await langchain_tools(session, tools=["shop.whoami"])
        with pytest.raises(HoldfastError, match="no server 'shpo'"):
            client_session(session, "shpo")

    assert (listed, langchain) == ([["shop__order"]] * 2, [])
    assert warnings_about_tools(caplog) == [
        "shop.oder in `tools`. Did you mean 'shop.order'?",
        "shop.whoami in `tools`. The tools of 'shop' are: order.",
    ]


@pytest.mark.parametrize("keep", [True, False])
async def test_a_tool_that_crashes_says_where_the_log_is(caplog: pytest.LogCaptureFixture, *, keep: bool):
    box = Toolbox("shop")

    @box.tool()
    def crash() -> None:
        """Fail."""
        raise ZeroDivisionError("hunter2")

    async with host_of(box) as host, host.session(keep=keep) as session:
        result = await session.call("shop.crash")

    hint = result.data["hint"]
    assert (result.code, "hunter2" in result.text) == ("INTERNAL_ERROR", False)
    assert (
        "opened with `keep=False`" in hint,
        "the log of the application that has the toolbox" in hint,
    ) == (
        True,
        True,
    )
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["tool crashed: crash"]
