"""MCP over HTTP, as the application sees it: what is asked, what is answered, and what is refused."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.frame import Notification
from holdfast.wire.http import Gate, HttpApp, Terms
from holdfast.wire.mcp.eras import Implementation, Introduction
from holdfast.wire.mcp.mirrors import Mirrors
from holdfast.wire.mcp.server import Ask
from holdfast.wire.mcp.tools import CallParams, text_result

pytestmark = pytest.mark.anyio

MODERN: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Echo:
    """Answers, tells, waits and crashes; remembers who it was."""

    introduction = Introduction(who=Implementation("echo", "1"), capabilities={"tools": {}})

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.over: list[str] = []
        self.heard: list[str] = []
        self.closed: list[str] = []

    async def answer(self, ask: Ask) -> Any:
        if ask.method != "tools/call":
            raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {ask.method!r} here.")
        name = ask.read(CallParams).name
        match name:
            case "tell":
                await ask.notify("notifications/progress", {"progress": 1})
                return text_result("told")
            case "wait":
                self.begun.set()
                try:
                    await self.let_go.wait()
                finally:
                    self.over.append("let go" if self.let_go.is_set() else "taken back")
                return text_result("waited")
            case "crash":
                raise RuntimeError("a secret")
            case _:
                return text_result(
                    f"{name} {ask.caller.era} {ask.exchange and ask.exchange.session_id != ''}"
                )

    def hear(self, notification: Notification) -> None:
        self.heard.append(notification.method)

    def mirrors_of(self, tool: str) -> Mirrors:
        return ()

    def owner_of(self, headers: Mapping[str, str]) -> str:
        return headers.get("authorization", "")

    def ended(self, session_id: str) -> None:
        self.closed.append(session_id)


class Answer:
    """What a client got back."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.over = False
        self.changed = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
            self.over = not message.get("more_body", False)
        self.changed.set()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        return [json.loads(line[6:]) for line in self.body.decode().splitlines() if line.startswith("data: ")]


class Client:
    """Speaks ASGI to an application: one request, its body in pieces, then silence until it hangs up."""

    def __init__(self, app: HttpApp) -> None:
        self.app = app
        self.hung_up = asyncio.Event()

    async def send(
        self,
        method: str,
        body: bytes | list[bytes] = b"",
        headers: Mapping[str, str] | None = None,
        path: str = "/mcp",
    ) -> Answer:
        answer = Answer()
        await self.start(method, body, headers, path, answer)
        return answer

    def start(
        self,
        method: str,
        body: bytes | list[bytes],
        headers: Mapping[str, str] | None,
        path: str,
        answer: Answer,
    ) -> Awaitable[None]:
        usual = {
            "host": "localhost:8000",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        pieces = [body] if isinstance(body, bytes) else body
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [
                (name.encode(), value.encode())
                for name, value in {**usual, **(headers or {})}.items()
                if value
            ],
        }
        return self.app(scope, self._receive(pieces), answer)

    def _receive(self, pieces: list[bytes]) -> Callable[[], Awaitable[Any]]:
        left = list(pieces)

        async def receive() -> Any:
            if left:
                piece = left.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(left) or piece == b"..."}
            await self.hung_up.wait()
            return {"type": "http.disconnect"}

        return receive


def modern(tool: str, identity: int = 1) -> tuple[bytes, dict[str, str]]:
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": identity,
        "method": "tools/call",
        "params": {"name": tool, "arguments": {}, "_meta": MODERN},
    }
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}
    return json.dumps(message).encode(), headers


def handshake(method: str, params: Any = None, identity: int | None = 1) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return json.dumps(message if identity is None else {**message, "id": identity}).encode()


async def opened(client: Client, **headers: str) -> dict[str, str]:
    answer = await client.send("POST", handshake("initialize", HELLO), headers)
    return {"mcp-session-id": answer.headers["mcp-session-id"], **headers}


def call(tool: str, identity: int = 2) -> bytes:
    return handshake("tools/call", {"name": tool, "arguments": {}}, identity)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def client(echo: Echo) -> Client:
    return Client(
        HttpApp(echo, terms=Terms(body_bytes=4096, body_seconds=0.05, sessions=2, quiet_seconds=0.02))
    )


def text(answer: Answer) -> Any:
    return answer.json["result"]["content"][0]["text"]


# Both eras


async def test_a_modern_request_stands_alone(client: Client):
    body, headers = modern("echo")

    answer = await client.send("POST", body, headers)

    assert (answer.status, text(answer), "mcp-session-id" in answer.headers) == (
        200,
        "echo modern False",
        False,
    )


async def test_a_handshake_opens_a_session_that_the_next_requests_name(client: Client):
    session = await opened(client)

    answer = await client.send("POST", call("echo"), session)

    assert (answer.status, text(answer), len(session["mcp-session-id"])) == (200, "echo handshake True", 32)


async def test_notifications_are_accepted_and_heard_by_their_session(client: Client, echo: Echo):
    session = await opened(client)

    statuses = [
        (await client.send("POST", handshake(method, None, None), session)).status
        for method in ("notifications/initialized", "notifications/roots/list_changed")
    ]

    assert (statuses, echo.heard) == ([202, 202], ["notifications/roots/list_changed"])


async def test_goodbye_ends_a_session_and_what_it_waits_for(client: Client, echo: Echo):
    session = await opened(client)
    waiting = asyncio.ensure_future(client.send("POST", call("wait"), session))
    await echo.begun.wait()

    goodbye = await client.send("DELETE", b"", session)
    after = await client.send("POST", call("echo"), session)
    await waiting

    assert (goodbye.status, after.status, echo.over) == (204, 404, ["taken back"])
    assert echo.closed == [session["mcp-session-id"]]


@pytest.mark.parametrize(
    ("method", "body", "headers", "status"),
    [
        ("POST", call("echo"), {}, 400),  # no session, no version
        ("POST", call("echo"), {"mcp-session-id": "0" * 32}, 404),
        ("GET", b"", {}, 400),
        ("GET", b"", {"mcp-session-id": "0" * 32}, 404),
        ("GET", b"", {"mcp-protocol-version": "2026-07-28"}, 405),
        ("GET", b"", {"accept": "text/html", "mcp-session-id": "0" * 32}, 406),
        ("DELETE", b"", {"mcp-session-id": "0" * 32}, 404),
        ("PUT", b"", {}, 405),
        ("POST", b"", {}, 400),
        ("POST", b"{", {}, 400),
        ("POST", b"[]", {}, 400),
        ("POST", b'{"jsonrpc":"2.0","id":1,"method":"m","id":2}', {}, 400),
        ("POST", call("echo"), {"content-type": "text/plain"}, 415),
        ("POST", call("echo"), {"content-type": ""}, 415),
        ("POST", call("echo"), {"accept": "text/html"}, 406),
        ("POST", b'{"jsonrpc":"2.0","id":1,"result":{}}', {}, 202),
    ],
)
async def test_what_is_wrong_with_a_request_shows_in_its_status(
    client: Client, method: str, body: bytes, headers: dict[str, str], status: int
):
    assert (await client.send(method, body, headers)).status == status


async def test_another_path_is_not_found(client: Client):
    assert (await client.send("POST", call("echo"), path="/other")).status == 404


async def test_a_crash_is_told_blandly(client: Client):
    body, headers = modern("crash")

    answer = await client.send("POST", body, headers)

    assert answer.json["error"] == {"code": -32603, "message": "Internal error."}


async def test_an_unknown_method_is_404_in_the_modern_era_and_200_before(client: Client):
    body, headers = modern("echo")
    body = body.replace(b"tools/call", b"no/such")
    session = await opened(client)

    now = await client.send("POST", body, {**headers, "mcp-method": "no/such"})
    before = await client.send("POST", handshake("no/such"), session)

    assert [(answer.status, answer.json["error"]["code"]) for answer in (now, before)] == [
        (404, -32601),
        (200, -32601),
    ]


# Streams


async def test_what_is_told_before_the_answer_makes_a_stream_of_it(client: Client):
    body, headers = modern("tell")

    answer = await client.send("POST", body, headers)

    assert answer.headers["content-type"] == "text/event-stream"
    assert [event.get("method", "answer") for event in answer.events] == ["notifications/progress", "answer"]


async def test_a_client_that_takes_no_stream_gets_the_answer_alone(client: Client):
    body, headers = modern("tell")

    answer = await client.send("POST", body, {**headers, "accept": "application/json"})

    assert (answer.headers["content-type"], text(answer)) == ("application/json", "told")


async def test_a_long_silence_is_broken_by_signs_of_life(client: Client, echo: Echo):
    body, headers = modern("wait")
    answer = Answer()
    waiting = asyncio.ensure_future(client.start("POST", body, headers, "/mcp", answer))
    await answer.changed.wait()
    echo.let_go.set()
    await waiting

    assert answer.body.startswith(b": still here\n\n")
    assert answer.events[-1]["result"]["content"][0]["text"] == "waited"


async def test_in_the_modern_era_hanging_up_takes_a_request_back(client: Client, echo: Echo):
    body, headers = modern("wait")
    waiting = asyncio.ensure_future(client.send("POST", body, headers))
    await echo.begun.wait()

    client.hung_up.set()
    await waiting

    assert echo.over == ["taken back"]


async def test_in_the_handshake_era_it_takes_a_message_and_hanging_up_does_not(client: Client, echo: Echo):
    session = await opened(client)
    one, two = Client(client.app), Client(client.app)
    hung_up = asyncio.ensure_future(one.send("POST", call("wait", 5), session))
    await echo.begun.wait()
    one.hung_up.set()
    await asyncio.sleep(0.05)
    survived = list(echo.over)
    cancelled = asyncio.ensure_future(two.send("POST", call("wait", 6), session))
    await asyncio.sleep(0)
    taken_back = handshake("notifications/cancelled", {"requestId": 6}, None)
    told = await client.send("POST", taken_back, session)
    await cancelled
    echo.let_go.set()
    await hung_up

    assert (survived, told.status, echo.over) == ([], 202, ["taken back", "let go"])


async def test_nobody_cancels_a_request_of_another_session(client: Client, echo: Echo):
    mine, other = await opened(client), await opened(client)
    waiting = asyncio.ensure_future(client.send("POST", call("wait", 5), mine))
    await echo.begun.wait()

    await client.send("POST", handshake("notifications/cancelled", {"requestId": 5}, None), other)
    await asyncio.sleep(0)
    echo.let_go.set()
    await waiting

    assert echo.over == ["let go"]


async def test_a_session_listens_on_one_stream_until_it_ends(client: Client):
    session = await opened(client)
    answer = Answer()
    listening = asyncio.ensure_future(client.start("GET", b"", session, "/mcp", answer))
    await answer.changed.wait()
    second = await Client(client.app).send("GET", b"", session)
    (opened_session,) = client.app.sessions._sessions.values()
    await opened_session.outbox.put(b'{"jsonrpc":"2.0","method":"notifications/x"}\n')
    while not answer.events:
        answer.changed.clear()
        await answer.changed.wait()
    await client.send("DELETE", b"", session)
    await listening

    assert (second.status, answer.events, answer.over) == (
        409,
        [{"jsonrpc": "2.0", "method": "notifications/x"}],
        True,
    )


# Bounds


async def test_a_body_over_the_limit_is_refused_declared_or_not(client: Client):
    declared = await client.send("POST", b"...", {"content-length": "5000"})
    streamed = await client.send("POST", [b"x" * 3000, b"x" * 3000])
    absurd = await client.send("POST", b"...", {"content-length": "9" * 40})

    assert [answer.status for answer in (declared, streamed, absurd)] == [413, 413, 413]


async def test_a_body_that_does_not_come_is_not_waited_for(client: Client):
    answer = await client.send("POST", [b'{"jsonrpc":', b"..."])

    assert (answer.status, answer.json["error"]["message"]) == (
        504,
        "The body was not there within 0.05 s.",
    )


async def test_the_number_of_sessions_is_bounded_and_a_malformed_hello_opens_none(client: Client):
    for _ in range(3):
        assert (await client.send("POST", handshake("initialize", {"protocolVersion": 1}))).status == 400
    await opened(client)
    await opened(client)

    third = await client.send("POST", handshake("initialize", HELLO))

    assert (third.status, third.headers["retry-after"], len(client.app.sessions)) == (503, "1", 2)


async def test_an_idle_session_is_forgotten_and_makes_room(echo: Echo):
    client = Client(HttpApp(echo, terms=Terms(sessions=1, idle_seconds=0.0)))
    first = await opened(client)
    await asyncio.sleep(0.001)

    second = await opened(client)
    after = await client.send("POST", call("echo"), first)

    assert (after.status, second != first, echo.closed) == (404, True, [first["mcp-session-id"]])


async def test_requests_in_flight_are_bounded(echo: Echo):
    client = Client(HttpApp(echo, terms=Terms(in_flight=1)))
    waiting = asyncio.ensure_future(client.send("POST", *modern("wait")))
    await echo.begun.wait()

    second = await client.send("POST", *modern("echo"))
    echo.let_go.set()
    await waiting

    assert (second.status, second.json["error"]["code"]) == (429, codes.BUSY.rpc)


async def test_a_session_is_unknown_to_all_but_its_owner(client: Client):
    session = await opened(client, authorization="ann")

    mine = await client.send("POST", call("echo"), session)
    other = await client.send("POST", call("echo"), {**session, "authorization": "bob"})
    never = await client.send("POST", call("echo"), {"mcp-session-id": "0" * 32, "authorization": "bob"})

    assert (mine.status, other.status, other.body) == (200, 404, never.body)


async def test_one_id_cannot_be_in_flight_twice(client: Client, echo: Echo):
    session = await opened(client)
    waiting = asyncio.ensure_future(client.send("POST", call("wait", 5), session))
    await echo.begun.wait()

    second = await client.send("POST", call("echo", 5), session)
    echo.let_go.set()
    await waiting

    assert (second.status, second.json["error"]["code"]) == (400, -32600)


async def test_at_the_end_every_session_is_over(client: Client, echo: Echo):
    sessions = [await opened(client), await opened(client)]

    client.app.close()

    assert echo.closed == [session["mcp-session-id"] for session in sessions]


# The gate


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"host": "localhost"}, True),
        ({"host": "LOCALHOST:8000"}, True),
        ({"host": "127.0.0.1:1"}, True),
        ({"host": "[::1]:8000"}, True),
        ({"host": "tools.example:443"}, True),
        ({"host": "evil.example"}, False),
        ({"host": "localhost.evil.example"}, False),
        ({"host": "evil.example:80@localhost"}, False),
        ({"host": "localhost:80:80"}, False),
        ({"host": ""}, False),
        ({"origin": "http://localhost:3000"}, True),
        ({"origin": "https://tools.example"}, True),
        ({"origin": "https://app.example"}, True),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "http://localhost.evil.example"}, False),
        ({"origin": "http://localhost@evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "file://localhost"}, False),
    ],
)
async def test_the_gate_knows_its_own_names_and_pages(echo: Echo, headers: dict[str, str], allowed: bool):
    gate = Gate(
        hosts=frozenset({"localhost", "127.0.0.1", "[::1]", "tools.example"}),
        origins=frozenset({"https://app.example"}),
    )
    client = Client(HttpApp(echo, gate=gate))
    body, said = modern("echo")

    answer = await client.send("POST", body, {**said, **headers})

    assert answer.status == (200 if allowed else 403)
