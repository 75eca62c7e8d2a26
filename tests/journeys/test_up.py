"""`holdfast up`, `holdfast mcp` and the tokens of their clients, as a person and their clients use them."""

import asyncio
import json
import os
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.cli.up import demo
from tests.gateway.running import Client
from tests.journeys.up import HOLDFAST, add_counter, environment, run, running_up

pytestmark = pytest.mark.anyio

CYCLES = int(os.environ.get("HOLDFAST_UP_CYCLES", "5"))


async def wait_until_dead(*processes: int) -> None:
    while any(Path(f"/proc/{process}").exists() for process in processes):
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.promise("GW-10")
async def test_up_needs_no_configuration(home: Path, cwd: Path):
    async with running_up(home, cwd) as up:
        token = run(home, "tokens", "create", "cursor").stdout.strip()
        async with Client(up.url, token) as client:
            names = (await client.post("tools/list")).json()["result"]["tools"]
        opened = await up.event("session_opened")

    assert (opened["token_name"], opened["client"], opened["era"]) == ("cursor", "test 1", "handshake")
    assert [tool["name"] for tool in names] == []


@pytest.mark.slow
@pytest.mark.promise("GW-10")
async def test_sigterm_lets_running_calls_finish_and_leaves_no_process(home: Path, cwd: Path):
    add_counter(home)
    async with running_up(home, cwd) as up:
        token = run(home, "tokens", "create", "client", "--mode", "auto").stdout.strip()
        async with Client(up.url, token) as client, Client(up.url, token) as idle:
            server = (await client.call("add"))["process"]
            others = (await idle.call("add"))["process"]
            call = asyncio.create_task(client.call("wait", seconds=2))
            await asyncio.sleep(0.2)
            up.process.terminate()
            await up.event("stopping")
            late = await idle.initialize()
            result = await call
        code = await asyncio.wait_for(up.process.wait(), 60)
        await asyncio.wait_for(wait_until_dead(server, others), 30)

    assert (result["result"], code) == ("done", 0)
    assert (late.status_code, late.headers["retry-after"]) == (503, "1")


@pytest.mark.slow
async def test_second_signal_cancels_running_calls(home: Path, cwd: Path):
    add_counter(home)
    async with running_up(home, cwd) as up:
        token = run(home, "tokens", "create", "client", "--mode", "auto").stdout.strip()
        async with Client(up.url, token) as client:
            server = (await client.call("add"))["process"]
            call = asyncio.create_task(client.call("wait", seconds=60))
            await asyncio.sleep(0.2)
            up.process.terminate()
            await up.event("stopping")
            up.process.terminate()
            code = await asyncio.wait_for(up.process.wait(), 9)
            await asyncio.gather(call, return_exceptions=True)
        await asyncio.wait_for(wait_until_dead(server), 30)

    assert code == 0


@pytest.mark.promise("GW-10")
@pytest.mark.timeout(60 + 20 * CYCLES)
async def test_kill_9_under_load_leaves_no_server_and_loses_no_answered_call(home: Path, cwd: Path):
    """`make soak-up` runs more cycles."""
    add_counter(home)
    token = run(home, "tokens", "create", "client", "--mode", "auto").stdout.strip()
    answered = 0
    for _ in range(CYCLES):
        async with running_up(home, cwd) as up:
            async with Client(up.url, token) as one, Client(up.url, token) as two:
                servers = [(await client.call("add"))["process"] for client in (one, two)]
                counts = dict.fromkeys(servers, 1)
                load = [
                    asyncio.create_task(_count(client, counts)) for client in (one, two) for _ in range(4)
                ]
                while min(counts.values()) < 10:
                    await asyncio.sleep(0.01)
                up.process.kill()
                await asyncio.gather(*load)
            await asyncio.wait_for(wait_until_dead(*servers), 30)
            answered += sum(counts.values())
    records = run(home, "audit", "list", "--all", "--kind", "call", "--json").stdout.splitlines()
    completed = [record for record in map(json.loads, records) if record["record"]["outcome"] == "completed"]
    verdict = run(home, "audit", "verify")
    sessions = run(home, "sessions", "list", "--all", "--json").stdout.splitlines()

    assert len(completed) >= answered
    assert (verdict.returncode, len(sessions)) == (0, 2 * CYCLES)


async def _count(client: Client, counts: dict[int, int]) -> None:
    try:
        while True:
            answer = await client.call("add")
            counts[answer["process"]] += 1
    except httpx.HTTPError:  # killed
        return


@pytest.mark.promise("GW-06")
async def test_print_config_creates_a_token_for_each_client(home: Path):
    blocks = {
        name: run(home, "up", "--print-config", name, "--port", "7001").stdout
        for name in ("claude-code", "cursor", "vscode", "zed", "codex", "inspector")
    }
    tokens = [json.loads(line) for line in run(home, "tokens", "list", "--json").stdout.splitlines()]

    def entry(name: str, *keys: str) -> Any:
        found: Any = json.loads(blocks[name])
        for key in (*keys, "holdfast"):
            found = found[key]
        return found["url"], found["headers"]["Authorization"].removeprefix("Bearer ")

    codex = tomllib.loads(blocks["codex"])["mcp_servers"]["holdfast"]
    inspector = shlex.split(blocks["inspector"])
    found = [
        entry("claude-code", "mcpServers"),
        entry("cursor", "mcpServers"),
        entry("vscode", "servers"),
        entry("zed", "context_servers"),
        (codex["url"], codex["http_headers"]["Authorization"].removeprefix("Bearer ")),
        (inspector[3], inspector[inspector.index("--header") + 1].removeprefix("Authorization: Bearer ")),
    ]
    assert {url for url, _ in found} == {"http://127.0.0.1:7001/mcp"}
    assert [token.split("_")[1] for _, token in found] == [token["id"] for token in tokens]
    assert {token["state"] for token in tokens} == {"valid"}
    assert all(token["expires_at"] for token in tokens)


def test_print_config_behind_a_proxy_prints_the_public_url(home: Path):
    printed = run(home, "up", "--print-config", "cursor", "--public-url", "https://mcp.example.org").stdout
    given = run(
        home, "up", "--print-config", "cursor", "--public-url", "https://a.example:8443/x/mcp/"
    ).stdout
    wrong = run(home, "up", "--print-config", "cursor", "--public-url", "mcp.example.org", check=False)

    assert json.loads(printed)["mcpServers"]["holdfast"]["url"] == "https://mcp.example.org/mcp"
    assert json.loads(given)["mcpServers"]["holdfast"]["url"] == "https://a.example:8443/x/mcp"
    assert (wrong.returncode, "--public-url" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_demonstration_with_a_failed_step_exits_with_1(as_json: bool, monkeypatch: pytest.MonkeyPatch):
    async def fail(folder: Path, *, as_json: bool) -> list[demo.Step]:
        return [demo.Step(title="It counts", direct="1", sandboxed="2", ok=False)]

    monkeypatch.setattr(demo, "_run", fail)
    with pytest.raises(SystemExit) as exited:
        demo.run_demo(as_json=as_json)

    assert exited.value.code == 1


@pytest.mark.promise("GW-07")
@pytest.mark.parametrize("address", ["0.0.0.0", "192.0.2.1"])
def test_up_without_tokens_serves_loopback_only(home: Path, address: str):
    done = run(home, "up", "--no-tokens", "--host", address, check=False)

    assert done.returncode == 1
    assert "--no-tokens works on loopback only" in done.stderr


@pytest.mark.promise("GW-07")
@pytest.mark.parametrize("command", [(), ("--print-config", "cursor")], ids=["serve", "print"])
@pytest.mark.parametrize(
    "option", [("--allow-host", "mcp.example.org"), ("--public-url", "https://mcp.example.org")]
)
def test_up_without_tokens_serves_no_public_name(
    home: Path, option: tuple[str, str], command: tuple[str, ...]
):
    done = run(home, "up", "--no-tokens", *option, *command, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert f"--no-tokens cannot be combined with {option[0]}" in done.stderr


@pytest.mark.promise("GW-07")
def test_up_without_tokens_serves_pages_of_this_machine_only(home: Path):
    command = ("up", "--no-tokens", "--print-config", "cursor", "--allow-origin")
    codes = [
        run(home, *command, origin, check=False).returncode
        for origin in ("https://pages.example", "null", "http://localhost:6274", "http://[::1]:6274")
    ]

    assert codes == [1, 1, 0, 0]


async def test_the_demonstration_shows_what_it_promises(home: Path):
    done = run(home, "up", "--demo", "--json")

    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert [step["ok"] for step in steps] == [True] * 5
    assert "STATE_LOST" in steps[3]["direct"]


def test_a_client_can_start_the_gateway_on_stdio(home: Path, cwd: Path):
    add_counter(home)
    info = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    call: Any = {"name": "who", "arguments": {}}
    messages: list[Any] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    with subprocess.Popen(
        [HOLDFAST, "mcp", "--mode", "auto"],
        env=environment(home),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        code = process.wait(60)

    by_id = {answer["id"]: answer["result"] for answer in answers}
    assert by_id[1]["serverInfo"]["name"] == "holdfast"
    assert by_id[2]["structuredContent"]["trust"] == "direct"
    assert code == 0
