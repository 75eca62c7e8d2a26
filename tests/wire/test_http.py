"""The ASGI application: requests, responses and errors."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.wire.http import AllowedHosts, HttpApp, HttpLimits
from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.mcp.server import HttpCaller, McpRequest
from holdfast.wire.mcp.tools import CallParams, ParamHeader, text_result
from holdfast.wire.messages import Notification

pytestmark = pytest.mark.anyio

MODERN: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


class Echo:
    """A service whose tools notify, wait and crash."""

    info = OwnInfo(implementation=Implementation("echo", "1"), capabilities={"tools": {}})

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.ended: list[str] = []
        self.notifications: list[str] = []
        self.closed_sessions: list[str] = []

    async def answer(self, request: McpRequest) -> Any:
        if request.method != "tools/call":
            raise HoldfastError(codes.METHOD_NOT_FOUND, f"There is no method {request.method!r}.")
        name = request.decode_params(CallParams).name
        match name:
            case "notify":
                await request.notify("notifications/progress", {"progress": 1})
                return text_result("notified")
            case "wait":
                self.started.set()
                try:
                    await self.release.wait()
                finally:
                    self.ended.append("finished" if self.release.is_set() else "cancelled")
                return text_result("waited")
            case "crash":
                raise RuntimeError("a secret")
            case _:
                return text_result(
                    f"{name} {request.client.era} {request.http and request.http.session_id != ''}"
                )

    def on_notification(self, notification: Notification) -> None:
        self.notifications.append(notification.method)

    def param_headers_of(self, tool: str) -> tuple[ParamHeader, ...]:
        return ()

    def identify(self, headers: Mapping[str, str], query: str) -> HttpCaller:
        return HttpCaller(caller_id=headers.get("authorization", ""))

    def authorize(self, caller: HttpCaller, body: bytes) -> None:
        """Accept every caller."""

    def on_session_end(self, session_id: str) -> None:
        self.closed_sessions.append(session_id)


class RecordedResponse:
    """The response that a client received."""

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
    """Sends ASGI requests to an application. A body can be sent in parts; `disconnect` ends the request."""

    def __init__(self, app: HttpApp) -> None:
        self.app = app
        self.disconnect = asyncio.Event()

    async def send(
        self,
        method: str,
        body: bytes | list[bytes] = b"",
        headers: Mapping[str, str] | None = None,
        path: str = "/mcp",
    ) -> RecordedResponse:
        answer = RecordedResponse()
        await self.start(method, body, headers, path, answer)
        return answer

    def start(
        self,
        method: str,
        body: bytes | list[bytes],
        headers: Mapping[str, str] | None,
        path: str,
        answer: RecordedResponse,
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
            await self.disconnect.wait()
            return {"type": "http.disconnect"}

        return receive


def modern(tool: str, request_id: int = 1) -> tuple[bytes, dict[str, str]]:
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": "tools/call",
        "params": {"name": tool, "arguments": {}, "_meta": MODERN},
    }
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}
    return json.dumps(message).encode(), headers


def handshake_message(method: str, params: Any = None, request_id: int | None = 1) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return json.dumps(message if request_id is None else {**message, "id": request_id}).encode()


async def open_session(client: Client, **headers: str) -> dict[str, str]:
    answer = await client.send("POST", handshake_message("initialize", INITIALIZE), headers)
    return {"mcp-session-id": answer.headers["mcp-session-id"], **headers}


def call(tool: str, request_id: int = 2) -> bytes:
    return handshake_message("tools/call", {"name": tool, "arguments": {}}, request_id)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def client(echo: Echo) -> Client:
    return Client(
        HttpApp(
            echo,
            http_limits=HttpLimits(body_bytes=4096, body_seconds=0.05, sessions=2, keepalive_seconds=0.02),
        )
    )


def text(answer: RecordedResponse) -> Any:
    return answer.json["result"]["content"][0]["text"]


# Both eras


async def test_modern_request_needs_no_session(client: Client):
    body, headers = modern("echo")

    answer = await client.send("POST", body, headers)

    assert (answer.status, text(answer), "mcp-session-id" in answer.headers) == (
        200,
        "echo modern False",
        False,
    )


async def test_initialize_opens_a_session(client: Client):
    session = await open_session(client)

    answer = await client.send("POST", call("echo"), session)

    assert (answer.status, text(answer), len(session["mcp-session-id"])) == (200, "echo handshake True", 32)


async def test_notifications_reach_the_service(client: Client, echo: Echo):
    session = await open_session(client)

    statuses = [
        (await client.send("POST", handshake_message(method, None, None), session)).status
        for method in ("notifications/initialized", "notifications/roots/list_changed")
    ]

    assert (statuses, echo.notifications) == ([202, 202], ["notifications/roots/list_changed"])


async def test_delete_ends_a_session_and_cancels_its_requests(client: Client, echo: Echo):
    session = await open_session(client)
    waiting = asyncio.ensure_future(client.send("POST", call("wait"), session))
    await echo.started.wait()

    deleted = await client.send("DELETE", b"", session)
    after = await client.send("POST", call("echo"), session)
    await waiting

    assert (deleted.status, after.status, echo.ended) == (204, 404, ["cancelled"])
    assert echo.closed_sessions == [session["mcp-session-id"]]


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
        ("POST", call("echo"), {"content-encoding": "gzip"}, 415),
        ("POST", call("echo"), {"content-encoding": "Identity"}, 400),  # no session
        ("POST", call("echo"), {"accept": "text/html"}, 406),
        ("POST", b'{"jsonrpc":"2.0","id":1,"result":{}}', {}, 202),
    ],
)
async def test_invalid_request_has_the_right_status(
    client: Client, method: str, body: bytes, headers: dict[str, str], status: int
):
    assert (await client.send(method, body, headers)).status == status


async def test_other_path_is_not_found(client: Client):
    assert (await client.send("POST", call("echo"), path="/other")).status == 404


async def test_crash_is_answered_as_internal_error(client: Client):
    body, headers = modern("crash")

    answer = await client.send("POST", body, headers)

    assert answer.json["error"] == {"code": -32603, "message": "Internal error."}


async def test_unknown_method_is_404_in_the_modern_era_and_200_in_the_handshake_era(client: Client):
    body, headers = modern("echo")
    body = body.replace(b"tools/call", b"no/such")
    session = await open_session(client)

    now = await client.send("POST", body, {**headers, "mcp-method": "no/such"})
    before = await client.send("POST", handshake_message("no/such"), session)

    assert [(answer.status, answer.json["error"]["code"]) for answer in (now, before)] == [
        (404, -32601),
        (200, -32601),
    ]


# Streams


async def test_notifications_before_the_result_make_the_response_a_stream(client: Client):
    body, headers = modern("notify")

    answer = await client.send("POST", body, headers)

    assert answer.headers["content-type"] == "text/event-stream"
    assert [event.get("method", "answer") for event in answer.events] == ["notifications/progress", "answer"]


async def test_client_that_does_not_accept_a_stream_gets_only_the_result(client: Client):
    body, headers = modern("notify")

    answer = await client.send("POST", body, {**headers, "accept": "application/json"})

    assert (answer.headers["content-type"], text(answer)) == ("application/json", "notified")


async def test_slow_request_sends_keepalives(client: Client, echo: Echo):
    body, headers = modern("wait")
    answer = RecordedResponse()
    waiting = asyncio.ensure_future(client.start("POST", body, headers, "/mcp", answer))
    await answer.changed.wait()
    echo.release.set()
    await waiting

    assert answer.body.startswith(b": still here\n\n")
    assert answer.events[-1]["result"]["content"][0]["text"] == "waited"


async def test_disconnecting_cancels_a_modern_request(client: Client, echo: Echo):
    body, headers = modern("wait")
    waiting = asyncio.ensure_future(client.send("POST", body, headers))
    await echo.started.wait()

    client.disconnect.set()
    await waiting

    assert echo.ended == ["cancelled"]


async def test_handshake_request_is_cancelled_by_a_message_but_not_by_disconnecting(
    client: Client, echo: Echo
):
    session = await open_session(client)
    one, two = Client(client.app), Client(client.app)
    disconnected = asyncio.ensure_future(one.send("POST", call("wait", 5), session))
    await echo.started.wait()
    one.disconnect.set()
    await asyncio.sleep(0.05)
    survived = list(echo.ended)
    cancelled = asyncio.ensure_future(two.send("POST", call("wait", 6), session))
    await asyncio.sleep(0)
    cancellation = handshake_message("notifications/cancelled", {"requestId": 6}, None)
    accepted = await client.send("POST", cancellation, session)
    await cancelled
    echo.release.set()
    await disconnected

    assert (survived, accepted.status, echo.ended) == ([], 202, ["cancelled", "finished"])


async def test_session_cannot_cancel_a_request_of_another_session(client: Client, echo: Echo):
    mine, other = await open_session(client), await open_session(client)
    waiting = asyncio.ensure_future(client.send("POST", call("wait", 5), mine))
    await echo.started.wait()

    await client.send("POST", handshake_message("notifications/cancelled", {"requestId": 5}, None), other)
    await asyncio.sleep(0)
    echo.release.set()
    await waiting

    assert echo.ended == ["finished"]


async def test_session_has_one_get_stream_until_it_ends(client: Client):
    session = await open_session(client)
    answer = RecordedResponse()
    listening = asyncio.ensure_future(client.start("GET", b"", session, "/mcp", answer))
    await answer.changed.wait()
    second = await Client(client.app).send("GET", b"", session)
    await client.send("DELETE", b"", session)
    await listening

    assert (second.status, answer.body[:14], answer.over) == (409, b": still here\n\n", True)


# Limits


async def test_body_over_the_limit_is_refused(client: Client):
    declared = await client.send("POST", b"...", {"content-length": "5000"})
    streamed = await client.send("POST", [b"x" * 3000, b"x" * 3000])
    absurd = await client.send("POST", b"...", {"content-length": "9" * 40})

    assert [answer.status for answer in (declared, streamed, absurd)] == [413, 413, 413]


async def test_slow_body_times_out(client: Client):
    answer = await client.send("POST", [b'{"jsonrpc":', b"..."])

    assert (answer.status, answer.json["error"]["message"]) == (
        504,
        "The body did not arrive within 0.05 s.",
    )


async def test_number_of_sessions_is_limited_and_an_invalid_initialize_opens_none(client: Client):
    for _ in range(3):
        assert (
            await client.send("POST", handshake_message("initialize", {"protocolVersion": 1}))
        ).status == 400
    for session in (await open_session(client), await open_session(client)):
        await client.send("POST", handshake_message("notifications/initialized", None, None), session)

    third = await client.send("POST", handshake_message("initialize", INITIALIZE))

    assert (third.status, third.headers["retry-after"], len(client.app.sessions)) == (503, "1", 2)


async def test_idle_session_is_ended_when_another_opens(echo: Echo):
    client = Client(HttpApp(echo, http_limits=HttpLimits(sessions=1, idle_seconds=0.0)))
    first = await open_session(client)
    await asyncio.sleep(0.001)

    second = await open_session(client)
    after = await client.send("POST", call("echo"), first)

    assert (after.status, second != first, echo.closed_sessions) == (404, True, [first["mcp-session-id"]])


async def test_idle_session_is_ended_without_another_request(echo: Echo):
    client = Client(HttpApp(echo, http_limits=HttpLimits(idle_seconds=0.0, unused_seconds=0.0)))
    session = await open_session(client)

    async with asyncio.timeout(10):
        while not echo.closed_sessions:
            await asyncio.sleep(0.01)

    assert (echo.closed_sessions, len(client.app.sessions)) == ([session["mcp-session-id"]], 0)


async def test_requests_in_flight_are_limited(echo: Echo):
    client = Client(HttpApp(echo, http_limits=HttpLimits(in_flight=1)))
    waiting = asyncio.ensure_future(client.send("POST", *modern("wait")))
    await echo.started.wait()

    second = await client.send("POST", *modern("echo"))
    echo.release.set()
    await waiting

    assert (second.status, second.json["error"]["code"]) == (429, codes.BUSY.rpc_code)


async def test_session_is_unknown_to_other_callers(client: Client):
    session = await open_session(client, authorization="ann")

    mine = await client.send("POST", call("echo"), session)
    other = await client.send("POST", call("echo"), {**session, "authorization": "bob"})
    never = await client.send("POST", call("echo"), {"mcp-session-id": "0" * 32, "authorization": "bob"})

    assert (mine.status, other.status, other.body) == (200, 404, never.body)


async def test_id_cannot_be_in_flight_twice(client: Client, echo: Echo):
    session = await open_session(client)
    waiting = asyncio.ensure_future(client.send("POST", call("wait", 5), session))
    await echo.started.wait()

    second = await client.send("POST", call("echo", 5), session)
    echo.release.set()
    await waiting

    assert (second.status, second.json["error"]["code"]) == (400, -32600)


async def test_closing_the_app_ends_every_session(client: Client, echo: Echo):
    sessions = [await open_session(client), await open_session(client)]

    client.app.close()

    assert echo.closed_sessions == [session["mcp-session-id"] for session in sessions]


# Allowed hosts


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
async def test_host_and_origin_must_be_allowed(echo: Echo, headers: dict[str, str], allowed: bool):
    allowed_hosts = AllowedHosts(
        hosts=frozenset({"localhost", "127.0.0.1", "[::1]", "tools.example"}),
        origins=frozenset({"https://app.example"}),
    )
    client = Client(HttpApp(echo, allowed_hosts=allowed_hosts))
    body, mcp_headers = modern("echo")

    answer = await client.send("POST", body, {**mcp_headers, **headers})

    assert answer.status == (200 if allowed else 403)
