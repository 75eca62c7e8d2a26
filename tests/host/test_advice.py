"""What messages advise an application that embeds Holdfast: each advice works in Python, not only at a terminal."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast import HoldfastError, Host, PermissionQuestion, ServerConfigs
from holdfast import sync as sync_holdfast
from holdfast.gateway import GatewayOptions, app
from holdfast.store.open_store import open_store
from holdfast.testing import FakeError, FakeServer, host_of
from holdfast.toolkit import Call, Toolbox
from holdfast.toolkit.http_server import bind, serve_app
from tests.gateway.conftest import RawClient

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def server_that_needs_a_login() -> AsyncIterator[str]:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


async def refusals_of(server: Any) -> str:
    async with host_of(s=server) as host, host.session(keep=False) as session:
        return " ".join(refusal.reason for refusal in session.refusals if refusal.server == "s")


async def test_a_server_of_the_application_that_needs_a_login_is_given_headers():
    async with server_that_needs_a_login() as url:
        said = await refusals_of({"url": url})

    assert "'s' requires a login. Give its entry the credentials" in said
    assert "holdfast servers login" not in said


async def test_a_command_that_sends_holdfasts_messages_back_is_no_mcp_server():
    said = await refusals_of({"command": "cat"})

    assert "it is not an MCP server" in said


async def test_a_shared_server_that_does_not_start_says_where_it_was_started():
    entry = {"command": sys.executable, "args": ["no_such_script.py"]}
    shared = await refusals_of({**entry, "lifetime": "host"})
    own = await refusals_of(entry)

    assert (
        f'It was started in {Path.home()}, because sessions share it: write absolute paths in its entry, or add "cwd" to it.'
        in shared
    )
    assert "It was started in" not in own


async def test_a_module_in_the_folder_of_the_author_is_found_with_a_cwd(tmp_path: Path):
    (tmp_path / "shop.py").write_text(
        "from holdfast.toolkit import Toolbox\nbox = Toolbox('shop')\nif __name__ == '__main__':\n    box.main()\n"
    )
    entry = {"command": sys.executable, "args": ["-m", "shop"]}

    said = await refusals_of(entry)

    assert "It was started in an empty folder." in said
    assert 'add "cwd" with that folder to its entry' in said
    assert await refusals_of({**entry, "cwd": str(tmp_path)}) == ""


async def test_a_call_that_needs_permission_names_the_options_of_a_session(tmp_path: Path):
    async with host_of(FakeServer({"write": "done"})) as host:
        async with host.session(cwd=tmp_path, permission="ask") as session:
            asked = await session.call("fake.write")
        async with host.session(cwd=tmp_path, permission="read-only") as session:
            refused = await session.call("fake.write")
        async with await host.reopen(session.context.session_id) as session:
            reopened = await session.call("fake.write")

    assert asked.message.endswith(
        "In Python, give the session `ask`, a function that answers: ask=lambda question: True. "
        'To make all calls without asking, give permission="auto".'
    )
    assert refused.message.endswith('In Python, the mode is the option `permission`: permission="auto".')
    assert 'permission="auto"' not in reopened.message, "a reopened session cannot get a higher mode"


async def test_a_gateway_in_an_application_names_what_the_application_can_give(tmp_path: Path):
    async with host_of(FakeServer({"write": "done"})) as host, aiohttp.ClientSession() as http:
        gateway = app(host, options=GatewayOptions(cwd=tmp_path))
        sock = bind("127.0.0.1", 0)
        async with serve_app(gateway, sock):
            client = RawClient(http, f"http://127.0.0.1:{sock.getsockname()[1]}/mcp")
            await client.initialize()
            async with client.post("tools/call", {"name": "write", "arguments": {}}) as response:
                said = await response.text()
            await gateway.close()

    assert "give `gateway.app` the parameter `authenticate`" in said
    assert "holdfast up" not in said


@pytest.mark.parametrize(
    ("tool", "advice"),
    [
        ("shell.run", 'host.session(tools=["shell.*", "files.*"])'),
        ("plan__update", 'host.session(tools=["plan.*", "files.*"])'),
        ("tasks.list", "It needs a workspace. To register the session's folder as one"),
        ("files.nope", "The tools of 'files' are"),
    ],
)
async def test_a_tool_of_a_built_in_server_that_was_not_requested_says_how_to_get_it(
    tmp_path: Path, tool: str, advice: str
):
    async with host_of() as host, host.session(cwd=tmp_path, keep=False) as session:
        result = await session.call(tool, {})

    assert (result.code, advice in result.message) == ("UNKNOWN_TOOL", True), result.message


async def test_a_missing_capability_names_the_function_to_give():
    box = Toolbox("box")

    @box.tool()
    async def ask(call: Call) -> str:  # pyright: ignore[reportUnusedFunction]
        """Ask the user."""
        return str(await call.ask("Really?", bool))

    async with host_of(box) as host, host.session(keep=False) as session:
        result = await session.call("box.ask")

    assert result.code == "MISSING_CAPABILITY"
    assert "`elicit` for elicitation, `sample` for sampling" in result.message


async def test_a_model_that_cannot_answer_names_the_option_of_the_session(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with host_of() as host:
        async with host.session(keep=False, model="anthropic:claude-sonnet-5") as session:
            result = await session.prompt("hello")
        with pytest.raises(HoldfastError, match="Write provider:model") as raised:
            async with host.session(keep=False, model="gpt"):
                pass

    assert result.code == "MODEL_UNAVAILABLE"
    assert "choose another model with `model=` in Python" in result.message
    assert "/model" not in result.message
    assert raised.value.code == "BAD_ARGUMENT"


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "lifetime": (
        lambda: Host(servers={"c": {"command": "x", "lifetime": "sesion"}}),
        "it must be 'run' or 'session' or 'host'",
    ),
    "era": (
        lambda: Host(servers={"c": {"command": "x", "era": "new"}}),
        "it must be 'handshake' or 'modern'",
    ),
    "type": (lambda: Host(servers={"c": {"url": "http://x", "type": "ws"}}), "'http'"),
    "tools": (
        lambda: Host(servers={"c": {"command": "x", "tools": "some"}}),
        "it must be 'all' or 'none' or a list",
    ),
    "transport": (lambda: Host(servers={"c": {"command": "x", "transport": "stdio"}}), "Leave it out"),
    "file": (
        lambda: Host(servers={"mcpServers": {"c": {"command": "x"}}}),
        "servers=config['mcpServers']",
    ),
    "trust": (
        lambda: Host(servers={"c": {"command": "x", "trust_level": "root"}}),
        "Use one of: direct, sandboxed.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_server_names_the_values_that_are_allowed(name: str):
    make, said = MISTAKES[name]
    with pytest.raises(HoldfastError) as raised:
        make()

    assert said in raised.value.message


async def test_an_option_with_a_wrong_name_gets_the_name_that_was_meant():
    wrong: Any = {"permision": "ask"}
    async with host_of() as host:
        with pytest.raises(TypeError, match="Did you mean 'permission'"):
            async with host.session(**wrong):
                pass
        with pytest.raises(TypeError, match="Did you mean 'permission'"):
            await host.reopen("sess_0123456789abcdef", **wrong)
    for make in (Host, sync_holdfast.Host):
        with pytest.raises(TypeError, match="Did you mean 'servers'"):
            make(server={})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("answer", [None, "yes", ZeroDivisionError()], ids=["None", "text", "error"])
async def test_a_function_that_answers_wrongly_is_named_and_not_asked_for_again(answer: object):
    def ask(question: PermissionQuestion) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with host_of(FakeServer({"write": "done"})) as host, host.session(ask=ask, keep=False) as session:
        result = await session.call("fake.write")

    assert (result.code, "`ask`" in result.message) == ("NOT_PERMITTED", True)
    assert "give the session `ask`" not in result.message


async def test_a_server_on_fastmcp_that_asks_names_what_to_write():
    # FastMCP reports this as the result of the tool.
    said = "elicitation via server-initiated requests is unavailable on 2026-07-28 connections."
    server = FakeServer({"ask": FakeError(said), "fail": FakeError("It is broken.")})
    async with host_of(server) as host, host.session(keep=False) as session:
        asked, failed = [(await session.call(f"fake.{name}")).text for name in ("ask", "fail")]

    assert 'write "era": "handshake" in its entry' in asked
    assert "era" not in failed


@pytest.mark.slow
async def test_a_server_on_the_mcp_sdk_that_asks_names_what_to_write():
    script = """if True:
        from mcp.server import MCPServer
        from mcp.server.mcpserver import Context
        from pydantic import BaseModel

        class Name(BaseModel):
            name: str

        server = MCPServer("s")

        @server.tool()
        async def ask(ctx: Context) -> str:
            answer = await ctx.elicit("Who?", Name)
            return answer.data.name

        server.run()
    """
    entry: Any = {"command": sys.executable, "args": ["-c", script]}
    servers: dict[str, Any] = {"modern": entry, "old": {**entry, "era": "handshake"}}
    async with host_of(**servers) as host:
        async with host.session(keep=False) as session:
            modern, old = [await session.call(f"{name}.ask") for name in servers]
        async with host.session(keep=False, elicit=lambda _: {"name": "Ann"}, tools=["old"]) as session:
            advised = await session.call("old.ask")

    assert 'write "era": "handshake" in its entry' in modern.message
    assert "give the session the function that answers: `elicit`" in old.message
    assert (advised.ok, advised.text) == (True, "Ann")


@pytest.mark.parametrize("name", ["files.nope", "nope.x"])
async def test_an_unknown_tool_of_a_known_server_gets_the_tools_of_that_server(name: str):
    async with host_of() as host, host.session(keep=False) as session:
        message = (await session.call(name)).message

    known = "The tools of 'files' are: read, list, find, write, edit."
    assert message.removeprefix(f"There is no tool '{name}'.").strip() == (known if "files" in name else "")


async def test_a_session_that_another_host_of_the_application_has_open_is_not_attributed_to_a_process():
    async with (
        open_store("memory:") as store,
        Host(store=store) as one,
        Host(store=store) as other,
        one.session(only_these=True) as session,
    ):
        with pytest.raises(HoldfastError, match="another host of this application: use that host") as raised:
            await other.reopen(session.context.session_id)

    assert raised.value.code == "SESSION_HELD"


async def test_a_folder_with_a_tilde_and_a_hint_are_explained():
    async with host_of() as host:
        with pytest.raises(HoldfastError, match=r"Path\(…\).expanduser\(\)"):
            await host.session(cwd="~/nowhere").__aenter__()
        async with host.session(keep=False):
            with pytest.raises(HoldfastError) as raised:
                await host.run(cwd="/").__aenter__()

    assert any("isolate=True" in note for note in raised.value.__notes__)


async def test_the_log_of_an_application_has_the_reason_in_its_text(caplog: pytest.LogCaptureFixture):
    noisy = "print('hello\\n' * 7, flush=True); raise SystemExit(3)"
    with caplog.at_level(logging.WARNING):
        reason = await refusals_of({"command": sys.executable, "args": ["-c", noisy]})

    texts = [record.getMessage() for record in caplog.records if record.name.startswith("holdfast")]
    assert any(
        text.startswith("malformed line of s: ") and text.endswith("It begins with: hello") for text in texts
    )
    assert "malformed lines of s: 7 in all" in texts
    assert "It printed 7 lines that are not MCP messages to standard output" in reason
    assert any("server refused: s: Could not start 's': It exited with status 3" in text for text in texts)


async def test_a_refused_server_whose_name_another_one_has_is_not_mistaken_for_it():
    servers: ServerConfigs = {"files": Toolbox("files")}
    async with host_of() as host, host.session(servers=servers) as session:
        listed = (await session.prompt("/servers")).text

    assert listed.splitlines() == [
        "- files: available",
        "- files: another server with this name was refused; /why files shows the reason",
    ]
