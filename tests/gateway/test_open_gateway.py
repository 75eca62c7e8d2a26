"""Tokens, limits and the audit of a gateway, over real HTTP."""

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest

from holdfast import settings
from holdfast.gateway.credential import LOCAL, Credential
from holdfast.gateway.open_gateway import gateway_options
from holdfast.gateway.options import GatewayOptions
from holdfast.model.limits import Limits
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust
from holdfast.wire.http.limits import DEFAULT_HTTP_LIMITS
from tests.gateway.running import (
    Client,
    RunningGateway,
    modern_call,
    post_modern,
    read_answer,
    running_gateway,
    try_to_open,
)

pytestmark = pytest.mark.anyio


async def wait_until_dead(process: int) -> None:
    while Path(f"/proc/{process}").exists():
        await asyncio.sleep(0.02)


@pytest.mark.promise("GW-07")
async def test_a_request_without_a_valid_token_is_refused_and_audited(tmp_path: Path):
    async with running_gateway(tmp_path) as running, Client(running.url, running.token()) as good:
        answers: list[httpx.Response] = []
        for authorization in (None, "Bearer nonsense", "Basic abc", f"Bearer hft_{'a' * 12}_{'A' * 43}"):
            headers = {} if authorization is None else {"Authorization": authorization}
            answers.append(await try_to_open(running.url, None, headers))
        base = running.url.removesuffix("/mcp")
        probes = [
            (await good.http.get(f"{base}/.well-known/oauth-protected-resource")).status_code,
            (await good.http.get(f"{base}/.well-known/oauth-authorization-server")).status_code,
            (await good.http.post(f"{base}/register", json={})).status_code,
        ]
        count = await good.call("add")
        await asyncio.wait_for(_wait_for_records(running, 3), 20)

    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["www-authenticate"] for answer in answers} == {'Bearer realm="holdfast"'}
    assert (probes, count["count"]) == ([404, 404, 404], 1)


@pytest.mark.slow
async def test_a_session_cannot_have_its_own_gateway_as_a_server(tmp_path: Path):
    async with running_gateway(tmp_path) as running, Client(running.url, running.token()) as good:
        entry = {"url": running.url, "headers": {"Authorization": f"Bearer {running.token()}"}}
        async with running.host.session(cwd=tmp_path / "project", servers={"self": entry}) as session:
            reasons = [refusal.reason for refusal in session.refusals]
        count = await good.call("add")

    assert (len(reasons), "would open sessions without end" in reasons[0]) == (1, True)
    assert count["count"] == 1, "other clients are served"


async def _wait_for_codes(running: RunningGateway, *names: str, number: int = 7) -> list[str]:
    """Wait until the audit counts this many refused requests, with all these codes. Return the records."""
    async with asyncio.timeout(20):
        while True:
            records = await running.denied()
            text = "".join(records)
            if all(name in text for name in names) and sum(map(_count, records)) >= number:
                return records
            await asyncio.sleep(0.05)


def _count(record: str) -> int:
    """How many requests an audit record stands for."""
    found = re.search(r"\((\d+) times\)", record)
    return int(found[1]) if found else 1


async def _wait_for_records(running: RunningGateway, number: int) -> None:
    while len(await running.denied()) < number:
        await asyncio.sleep(0.05)


@pytest.mark.promise("GW-07")
async def test_without_tokens_everyone_on_this_machine_is_served_and_the_host_is_still_checked(
    tmp_path: Path,
):
    local = Credential(id="local", mode=Mode.AUTO)
    async with running_gateway(tmp_path, local=local) as running, Client(running.url, None) as client:
        count = (await client.call("add"))["count"]
        evil = await client.post("tools/list", headers={"Host": "evil.example"})
        page = await client.post("tools/list", headers={"Origin": "https://evil.example"})
        other_port = await client.post("tools/list", headers={"Origin": "http://127.0.0.1:1"})
        own_page = await client.post("tools/list", headers={"Origin": running.url.removesuffix("/mcp")})
        proxied = await client.post("tools/list", headers={"X-Forwarded-For": "192.0.2.1"})

    assert (count, evil.status_code, page.status_code) == (1, 403, 403)
    assert (other_port.status_code, proxied.status_code, own_page.status_code) == (403, 403, 200)
    assert LOCAL.mode is None  # without --mode, sessions ask


@pytest.mark.promise("GW-07")
async def test_pages_of_another_scheme_or_port_are_refused_even_with_a_token(tmp_path: Path):
    async with running_gateway(tmp_path) as running, Client(running.url, running.token()) as client:
        port = running.url.split(":")[2].removesuffix("/mcp")
        origins = [f"http://127.0.0.1:{port}", f"http://localhost:{port}", f"https://127.0.0.1:{port}"]
        origins += ["http://127.0.0.1:1", "http://127.0.0.1", "null", f"http://evil.example:{port}"]
        statuses = [
            (await client.post("tools/list", headers={"Origin": origin})).status_code for origin in origins
        ]

    assert statuses == [200, 200, 403, 403, 403, 403, 403]


async def test_the_status_names_configured_built_in_servers_that_the_session_did_not_get(tmp_path: Path):
    async with (
        running_gateway(tmp_path, {"HOLDFAST_GATEWAY_BUILTIN": "files, tasks, task"}) as running,
        Client(running.url, running.token()) as client,
    ):
        status = str(await client.call("holdfast__status"))

    assert "Server tasks: not offered (load). It needs a workspace." in status
    assert (
        "Server task: not offered (load). There is no built-in server of this name. The built-in servers are: "
        in status
    )
    assert "Server files: not offered" not in status


@pytest.mark.slow
@pytest.mark.promise("GW-06")
async def test_the_limits_of_a_token_apply_to_its_sessions(tmp_path: Path):
    async with running_gateway(tmp_path, {"HOLDFAST_GATEWAY_BUILTIN": "files"}) as running:
        folder = tmp_path / "blog"
        folder.mkdir()
        workspace = running.host.registry.add(folder, "Blog", trust=Trust.DIRECT)
        narrow = running.token(
            workspace=workspace.slug, user_id="ann", servers=frozenset({"counter"}), mode=Mode.READ_ONLY
        )
        wide = running.token()
        async with Client(running.url, narrow) as client, Client(running.url, wide) as other:
            who = await client.call("counter__who")
            names = {tool["name"] for tool in read_answer(await client.post("tools/list"))["result"]["tools"]}
            refused = await client.call("counter__add")
            all_names = {
                tool["name"] for tool in read_answer(await other.post("tools/list"))["result"]["tools"]
            }

    assert (who["workspace"], who["user"]) == ("blog", "ann")
    assert not any(name.startswith("files") for name in names)
    assert any(name.startswith("files") for name in all_names)
    assert "read-only" in str(refused)


@pytest.mark.slow
@pytest.mark.promise("GW-02", "GW-06")
async def test_a_revoked_token_ends_its_live_sessions_and_their_servers_and_no_other(tmp_path: Path):
    async with running_gateway(tmp_path) as running:
        revoked, kept = running.token("revoked"), running.token("kept")
        async with Client(running.url, revoked) as client, Client(running.url, kept) as neighbour:
            process = (await client.call("add"))["process"]
            await neighbour.call("add")

            running.tokens.revoke("revoked")
            await asyncio.wait_for(wait_until_dead(process), 30)

            assert (await client.post("tools/list")).status_code == 401
            assert (await neighbour.call("add"))["count"] == 2

    assert running.ends[0] == "the token was revoked"


@pytest.mark.promise("GW-06")
async def test_an_expired_token_ends_its_live_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with running_gateway(tmp_path) as running:
        token = running.token(expires_at=4e9)
        async with Client(running.url, token) as client:
            process = (await client.call("add"))["process"]
            monkeypatch.setattr("holdfast.gateway.client_tokens.time.time", lambda: 4e9)
            await asyncio.wait_for(wait_until_dead(process), 30)

            assert (await client.post("tools/list")).status_code == 401
    assert running.ends[0] == "the token has expired"


@pytest.mark.slow
@pytest.mark.promise("GW-08")
async def test_each_limit_costs_the_token_that_exceeds_it_and_no_other(tmp_path: Path):
    limits = {
        "HOLDFAST_GATEWAY_MAX_SESSIONS_PER_TOKEN": "2",
        "HOLDFAST_GATEWAY_MAX_REQUESTS_IN_FLIGHT": "3",
        "HOLDFAST_GATEWAY_MAX_BODY_BYTES": "20000",
    }
    async with running_gateway(tmp_path, limits) as running:
        flooder, neighbour = running.token("flooder"), running.token("neighbour")
        async with Client(running.url, flooder) as client, Client(running.url, neighbour) as other:
            await client.call("add")
            async with Client(running.url, flooder) as second:
                await second.call("add")
                third = await try_to_open(running.url, flooder)
                too_large = await client.post(
                    "tools/call", {"name": "repeat", "arguments": {"text": "x" * 30_000}}
                )
                waiting = [
                    asyncio.create_task(
                        client.post("tools/call", {"name": "wait", "arguments": {"seconds": 1}})
                    )
                    for _ in range(8)
                ]
                statuses = sorted([(await task).status_code for task in waiting])
                refused = await _wait_for_codes(running, "TOO_MANY_SESSIONS", "TOO_LARGE", "BUSY")

            assert (await other.call("add"))["count"] == 1
            assert (third.status_code, too_large.status_code) == (503, 413)
            assert (statuses.count(200), statuses.count(429)) == (3, 5)
            assert all(f"token {flooder.split('_')[1]}" in record for record in refused)
            assert sum(_count(record) for record in refused) == 1 + 1 + 5


@pytest.mark.promise("GW-08")
async def test_the_number_of_new_sessions_is_counted_for_each_token(tmp_path: Path):
    async with running_gateway(tmp_path, {"HOLDFAST_GATEWAY_MAX_NEW_SESSIONS_PER_MINUTE": "1"}) as running:
        flooder, neighbour = running.token("flooder"), running.token("neighbour")
        flood = [(await try_to_open(running.url, flooder)).status_code for _ in range(5)]
        calm = await try_to_open(running.url, neighbour)
        refused = await _wait_for_codes(running, "RATE_LIMITED", number=4)

    assert (flood, calm.status_code) == ([200, 429, 429, 429, 429], 200)
    assert sum(map(_count, refused)) == 4


@pytest.mark.promise("GW-08")
async def test_the_request_rate_is_counted_for_each_token(tmp_path: Path):
    async with running_gateway(tmp_path, {"HOLDFAST_GATEWAY_MAX_REQUESTS_PER_SECOND": "5"}) as running:
        flooder, neighbour = running.token("flooder"), running.token("neighbour")
        async with httpx.AsyncClient(trust_env=False) as http:
            headers = {"Authorization": f"Bearer {flooder}", "Accept": "text/event-stream"}
            flood = await asyncio.gather(*(http.get(running.url, headers=headers) for _ in range(40)))

            headers["Authorization"] = f"Bearer {neighbour}"
            calm = await http.get(running.url, headers=headers)

    limited = [answer for answer in flood if answer.status_code == 429]
    assert (len(limited) > 0, limited[0].headers["retry-after"]) == (True, "1")
    assert calm.status_code == 400  # no session, but no limit either


def test_given_options_override_the_settings():
    loaded = settings.load(environ={"HOME": "/nowhere"})
    given = GatewayOptions(http_limits=DEFAULT_HTTP_LIMITS, limits=Limits(), call_seconds=3.0)
    options = gateway_options(loaded, given)
    default = gateway_options(loaded)

    assert (options.http_limits, options.limits) == (DEFAULT_HTTP_LIMITS, given.limits)
    assert (options.limits is given.limits, options.call_seconds) == (True, 3.0)
    assert (default.limits, default.http_limits != DEFAULT_HTTP_LIMITS) == (loaded.wire, True)


async def test_requests_that_are_sent_on_one_connection_before_the_first_answer_are_all_answered(
    tmp_path: Path,
):
    async with running_gateway(tmp_path) as running:
        token = running.token()
        async with Client(running.url, token) as client:
            url = httpx.URL(running.url)
            reader, writer = await asyncio.open_connection(url.host, url.port)
            for number, tool in enumerate(("wait", "add", "add")):
                call = {"name": tool, "arguments": {"seconds": 0.1} if tool == "wait" else {}}
                body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call})
                request = httpx.Request(
                    "POST",
                    url,
                    content=body,
                    headers={**client.http.headers, "Content-Type": "application/json"},
                )
                head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
                writer.write(f"POST /mcp HTTP/1.1\r\n{head}\r\n{body}".encode())
            received = b""
            async with asyncio.timeout(30):
                while received.count(b'"jsonrpc"') < 3:
                    received += await reader.read(65536)
            writer.close()

    assert [int(number) for number in re.findall(rb'"id":(\d)', received)] == [0, 1, 2]


@pytest.mark.promise("GW-03")
async def test_a_modern_client_keeps_the_session_of_its_token(tmp_path: Path):
    async with running_gateway(tmp_path) as running:
        counts: list[int] = []
        for token in (first := running.token("one"), first, running.token("two")):
            body, headers = modern_call("add")
            answer = await post_modern(running.url, token, body, headers)
            counts.append(read_answer(answer)["result"]["structuredContent"]["count"])

    assert counts == [1, 2, 1]


async def test_a_call_of_an_unknown_tool_is_audited_under_its_name(tmp_path: Path):
    async with (
        running_gateway(tmp_path, servers={}) as gateway,
        Client(gateway.url, gateway.token()) as client,
    ):
        await client.post("tools/call", {"name": "append", "arguments": {}})
        (record,) = await gateway.denied()

    assert '"tool":"append"' in record
    assert "There is no tool 'append' here." in record
