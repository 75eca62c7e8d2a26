"""Arguments that providers give, and the lifespan of a box."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, NewType, TypedDict

import pytest
from typing_extensions import TypeAliasType

from holdfast.model.errors import HoldfastError
from holdfast.toolkit import Call, Given, SessionContext, Toolbox, ToolError, Trust, current_session
from holdfast.toolkit.authentication import AnonymousAuthenticator
from holdfast.wire.http import HttpApp
from tests.toolkit.contexts import ANN, BOB
from tests.toolkit.http_memory_client import HttpMemoryClient
from tests.toolkit.memory_client import connect

pytestmark = [pytest.mark.anyio, pytest.mark.promise("KIT-25")]


class Pool:
    """Counts its instances, and notes what happens to them."""

    def __init__(self, log: list[str], name: str = "pool") -> None:
        self.number = sum(entry.startswith("open") for entry in log) + 1
        self.name = name


def provider_of(log: list[str]) -> Callable[[], AsyncIterator[Pool]]:
    async def get_pool() -> AsyncIterator[Pool]:
        pool = Pool(log)
        log.append(f"open {pool.number}")
        yield pool
        log.append(f"close {pool.number}")

    return get_pool


@pytest.mark.parametrize(("per", "is_lost"), [("call", False), ("session", True), ("process", True)])
@pytest.mark.parametrize("kind", ["tool", "resource", "prompt"])
def test_box_loses_the_values_that_its_handlers_keep(kind: str, per: Any, is_lost: bool):
    box = Toolbox("given")

    async def number(pool: Annotated[Pool, Given(provider_of([]), per=per)]) -> str:
        """The number of the pool."""
        return str(pool.number)

    add: dict[str, Any] = {"tool": box.tool, "resource": box.resource("pool://number"), "prompt": box.prompt}
    add[kind](number)

    assert box.loses_state is is_lost


@pytest.mark.parametrize(
    ("per", "numbers", "closed"),
    [("call", [1, 2, 3, 4], 4), ("session", [1, 1, 2, 2], 0), ("process", [1, 1, 1, 1], 0)],
)
async def test_value_is_kept_per_call_session_or_process(per: Any, numbers: list[int], closed: int):
    log: list[str] = []
    box = Toolbox("given")

    @box.tool()
    async def number(pool: Annotated[Pool, Given(provider_of(log), per=per)]) -> int:
        """The number of the pool."""
        return pool.number

    async with connect(box, "modern") as client:
        seen = [(await client.call("number", session))["result"] for session in (ANN, ANN, BOB, BOB)]
        closed_before_the_end = sum(entry.startswith("close") for entry in log)

    assert (seen, closed_before_the_end) == (numbers, closed)
    assert len(log) == 2 * max(numbers)


async def test_callers_neither_see_nor_send_given_arguments():
    box = Toolbox("given")

    @box.tool(operation="query")
    async def add(number: int, secret: Annotated[int, Given(lambda: 40)]) -> int:
        """Add."""
        return number + secret

    async with connect(box, "modern") as client:
        (tool,) = (await client.request("tools/list"))["tools"]
        added, forged = await client.call("add", number=2), await client.call("add", number=2, secret=0)

    assert tool["inputSchema"]["properties"] == {"number": {"type": "integer"}}
    assert "secret" not in str(box.manifest())
    assert (added["result"], forged["code"]) == (42, "BAD_ARGUMENT")
    assert forged["details"]["issues"][0]["field"] == "secret"


@pytest.mark.parametrize("name", [NewType, TypeAliasType])
async def test_caller_cannot_send_what_a_named_type_injects(name: Callable[[str, Any], Any]):
    box = Toolbox("given")

    def show(stock: Any, session: Any) -> list[Any]:
        """What the handler gets."""
        return [stock, session.user_id]

    stock = Annotated[dict[str, int], Given(lambda: {"tea": 3})]
    show.__annotations__ |= {
        "stock": name("Stock", stock),
        "session": Annotated[name("Session", SessionContext), "Who calls."],
    }
    box.tool(show)
    forged = {"stock": {"tea": 9}, "session": {"session_id": "s", "trust_level": "direct", "user_id": "root"}}

    async with box.client(user_id="ann") as client:
        (tool,) = await client.list_tools()
        got = await client.call("show")
        refused = await client.call("show", forged)

    assert tool["inputSchema"] == {"type": "object", "properties": {}, "additionalProperties": False}
    assert got.data["items"] == [{"tea": 3}, "ann"]
    assert refused.code == "BAD_ARGUMENT"


async def test_providers_may_be_functions_classes_and_generators_with_providers_of_their_own():
    threads: list[bool] = []
    log: list[str] = []

    def get_name() -> str:
        threads.append(threading.current_thread() is threading.main_thread())
        return "base"

    async def get_upper(name: Annotated[str, Given(get_name, per="process")]) -> str:
        return name.upper()

    def blocking(upper: Annotated[str, Given(get_upper)]) -> Iterator[str]:
        threads.append(threading.current_thread() is threading.main_thread())
        yield f"{upper}!"
        log.append("closed")

    @asynccontextmanager
    async def decorated(session: SessionContext | None, call: Call) -> AsyncIterator[str]:
        yield f"{call.tool} {session.user_id if session else 'no user'}"

    class Settings:
        def __init__(self) -> None:
            self.level = 3

    box = Toolbox("given")

    @box.tool()
    async def everything(
        text: Annotated[str, Given(blocking)],
        who: Annotated[str, Given(decorated)],
        settings: Annotated[Settings, Given(Settings)],
    ) -> list[Any]:
        """Return everything."""
        return [text, who, settings.level, list(log)]

    async with connect(box, "handshake") as client:
        first = await client.call("everything", ANN)

    assert (first["items"], log) == (["BASE!", "everything ann", 3, []], ["closed"])
    assert threads == [False, False]


async def test_one_value_per_call_for_handler_and_providers():
    log: list[str] = []
    get_pool = provider_of(log)

    async def get_user(pool: Annotated[Pool, Given(get_pool)]) -> int:
        return pool.number

    box = Toolbox("given")

    @box.tool()
    async def both(
        pool: Annotated[Pool, Given(get_pool)], user: Annotated[int, Given(get_user)]
    ) -> list[int]:
        """Return both."""
        return [pool.number, user]

    async with connect(box, "modern") as client:
        assert (await client.call("both"))["items"] == [1, 1]

    assert log == ["open 1", "close 1"]


async def test_value_is_closed_when_the_handler_fails_or_is_too_slow():
    log: list[str] = []

    async def get() -> AsyncIterator[str]:
        try:
            yield "value"
        except BaseException as error:
            log.append(type(error).__name__)
            raise

    box = Toolbox("given")

    @box.tool()
    async def crash(value: Annotated[str, Given(get)]) -> None:
        """Crash."""
        raise RuntimeError

    @box.tool(deadline=0.05)
    async def hang(value: Annotated[str, Given(get)]) -> None:
        """Hang."""
        await asyncio.Event().wait()

    async with connect(box, "modern") as client:
        found = [(await client.call(tool))["code"] for tool in ("crash", "hang")]

    assert (found, log) == (["INTERNAL_ERROR", "TIMEOUT"], ["RuntimeError", "CancelledError"])


async def test_provider_that_fails_fails_the_call_and_is_tried_again():
    attempts: list[int] = []
    box = Toolbox("given")
    down = box.code("DATABASE_DOWN", http=503, hint="Try later.", retryable=True)

    async def get() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ToolError(down, "The database is down.")
        return "up"

    @box.tool(codes=["DATABASE_DOWN"])
    async def use(value: Annotated[str, Given(get, per="process")]) -> str:
        """Use it."""
        return value

    async with connect(box, "modern") as client:
        first, second = await client.call("use"), await client.call("use")

    assert (first["code"], second["result"]) == ("DATABASE_DOWN", "up")


async def test_concurrent_first_calls_share_one_value():
    log: list[str] = []
    go = asyncio.Event()

    async def get() -> AsyncIterator[int]:
        await go.wait()
        log.append("open")
        yield len(log)

    box = Toolbox("given")

    @box.tool()
    async def use(value: Annotated[int, Given(get, per="process")]) -> int:
        """Use it."""
        return value

    async with connect(box, "modern") as client:
        calls = [asyncio.ensure_future(client.call("use")) for _ in range(5)]
        await asyncio.sleep(0)
        go.set()
        assert [envelope["result"] for envelope in await asyncio.gather(*calls)] == [1] * 5


async def test_value_of_a_direct_session_is_not_given_to_it_when_it_is_sandboxed():
    seen: list[str] = []

    async def get(session: SessionContext) -> str:
        return session.trust_level

    box = Toolbox("given")

    @box.tool()
    async def use(trust: Annotated[str, Given(get, per="session")]) -> None:
        """Use it."""
        seen.append(trust)

    async with connect(box, "modern") as client:
        for session in (ANN, ANN, replace(ANN, trust_level=Trust.SANDBOXED)):
            await client.call("use", session)

    assert seen == ["direct", "direct", "sandboxed"]


async def test_value_of_the_process_does_not_see_the_session_of_the_first_caller():
    seen: list[Any] = []

    async def shared() -> str:
        seen.append(current_session())
        return "shared"

    async def own() -> str:
        found = current_session()
        seen.append(found and found.session_id)
        return "own"

    box = Toolbox("given")

    @box.tool()
    async def use(
        one: Annotated[str, Given(shared, per="process")], other: Annotated[str, Given(own, per="session")]
    ) -> None:
        """Use both."""

    async with connect(box, "modern") as client:
        await client.call("use", ANN)

    assert seen == [None, ANN.session_id]


async def test_values_of_an_mcp_session_are_closed_when_it_ends():
    log: list[str] = []
    box = Toolbox("given")

    @box.tool()
    async def number(pool: Annotated[Pool, Given(provider_of(log), per="session")]) -> int:
        """The number of the pool."""
        return pool.number

    server = box.server(AnonymousAuthenticator())
    app = HttpApp(server)
    client = HttpMemoryClient(app)
    first = await client.open_session()
    second = await client.open_session()
    for session in (first, second, first):
        await client.call("number", session)
    app.sessions.end(app.sessions.find(first, ""))
    while "close 1" not in log:
        await asyncio.sleep(0)
    before_the_end = list(log)
    await server.close()

    assert (before_the_end, log[3:]) == (["open 1", "open 2", "close 1"], ["close 2"])


async def test_values_of_an_mcp_session_are_closed_after_its_calls_have_ended():
    log: list[str] = []
    box = Toolbox("given")

    @box.tool()
    async def hang(pool: Annotated[Pool, Given(provider_of(log), per="session")]) -> None:
        """Hang, and use the pool while being cancelled."""
        try:
            log.append("hanging")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            log.append("cancelled")

    server = box.server(AnonymousAuthenticator())
    app = HttpApp(server)
    client = HttpMemoryClient(app)
    session = await client.open_session()
    call = asyncio.ensure_future(client.send(client.message("tools/call", {"name": "hang"}), session))
    while "hanging" not in log:
        await asyncio.sleep(0)
    app.sessions.end(app.sessions.find(session, ""))
    await call
    await server.close()

    assert log == ["open 1", "hanging", "cancelled", "close 1"]


async def test_values_of_sessions_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.toolkit.server_state.MAX_SESSIONS", 1)
    log: list[str] = []
    box = Toolbox("given")

    @box.tool()
    async def number(pool: Annotated[Pool, Given(provider_of(log), per="session")]) -> int:
        """The number of the pool."""
        return pool.number

    async with connect(box, "modern") as client:
        for session in (ANN, BOB):
            await client.call("number", session)
        while "close 1" not in log:
            await asyncio.sleep(0)
        await client.call("number", BOB)
        before_the_end = list(log)

    assert before_the_end == ["open 1", "open 2", "close 1"]


async def test_values_of_a_session_without_calls_are_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.toolkit.server_state.IDLE_SECONDS", 0.05)
    log: list[str] = []
    box = Toolbox("given")

    @box.tool()
    async def number(pool: Annotated[Pool, Given(provider_of(log), per="session")]) -> int:
        """The number of the pool."""
        return pool.number

    async with connect(box, "modern") as client:
        await client.call("number", ANN)
        async with asyncio.timeout(20):
            while "close 1" not in log:
                await asyncio.sleep(0.01)


async def test_session_value_needs_a_caller_that_can_be_told_apart():
    box = Toolbox("given")

    @box.tool()
    async def use(value: Annotated[str, Given(lambda: "x", per="session")]) -> str:
        """Use it."""
        return value

    server = box.server(AnonymousAuthenticator())
    envelope = await HttpMemoryClient(HttpApp(server)).call("use")
    await server.close()

    assert envelope["code"] == "NO_CONTEXT"


async def needs_itself(value: "Annotated[str, Given(needs_itself)]") -> str:  # pyright: ignore
    return value


def takes_call(call: Call) -> str:
    return call.tool


def takes_session(session: SessionContext) -> str:
    return session.session_id


def takes_text(text: str) -> str:
    return text


def given_per_call(text: Annotated[str, Given(takes_call)]) -> str:
    return text


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (Given(needs_itself), "it needs itself"),
        (Given(takes_call, per="process"), 'it takes a Call. Use per="call"'),
        (Given(takes_call, per="session"), 'it takes a Call. Use per="call"'),
        (Given(takes_session, per="process"), 'Use per="session"'),
        (Given(given_per_call, per="process"), "it needs 'takes_call', per call"),
        (Given(takes_text), "nothing gives its parameter 'text'"),
        (Given(takes_call, per="request"), 'is not "process", "session" or "call"'),  # type: ignore[arg-type]  # pyright: ignore
        (Given("text"), "it is not a function"),  # type: ignore[arg-type]  # pyright: ignore
    ],
)
def test_provider_that_cannot_work_is_refused_when_the_tool_is_added(given: Given, problem: str):
    box = Toolbox("given")

    async def use(value: Annotated[str, given]) -> str:
        """Use it."""
        return value

    with pytest.raises(HoldfastError, match=r"cannot use the provider") as raised:
        box.tool()(use)

    assert problem in str(raised.value)


def test_given_as_a_default_is_refused_when_the_tool_is_added():
    async def use(value: str = Given(lambda: "x")) -> str:  # type: ignore[assignment]  # pyright: ignore
        """Use it."""
        return value

    with pytest.raises(HoldfastError, match=r"Annotated\[…, Given\(…\)\]"):
        Toolbox("given").tool()(use)


GivenText = Annotated[str, Given(lambda: "x")]


class OptionsDict(TypedDict):
    value: GivenText


@dataclass
class Options:
    value: GivenText


@dataclass
class Caller:
    session: SessionContext | None = None


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (GivenText | None, "around the type"),
        (list[GivenText], "around the type"),
        (OptionsDict, "around the type"),
        (list[Options], "around the type"),
        (list[SessionContext], "would let callers send a SessionContext"),
        (Caller | None, "would let callers send a SessionContext"),
    ],
)
def test_injected_value_inside_a_type_is_refused_when_the_tool_is_added(kind: Any, problem: str):
    async def use(value: Any) -> str:
        """Use it."""
        return str(value)

    use.__annotations__["value"] = kind

    with pytest.raises(HoldfastError, match=problem):
        Toolbox("given").tool()(use)


async def test_lifespan_gives_its_state_to_every_call_and_ends_with_the_server():
    log: list[str] = []

    async def lifespan(box: Toolbox) -> AsyncIterator[str]:
        log.append(f"begin {box.name}")
        yield "state"
        log.append("end")

    box = Toolbox("given", lifespan=lifespan)

    @box.tool()
    async def state(call: Call) -> str:
        """The state."""
        log.append("call")
        return call.state

    @box.resource("state://it")
    async def resource(call: Call) -> str:
        return call.state

    async with connect(box, "modern") as client:
        seen = (await client.call("state"))["result"]
        read = await client.request("resources/read", {"uri": "state://it"})

    assert (seen, read["contents"][0]["text"]) == ("state", "state")
    assert log == ["begin given", "call", "end"]


async def test_lifespan_ends_after_the_values_that_use_it_and_in_its_own_task():
    log: list[str] = []
    tasks: list[Any] = []

    @asynccontextmanager
    async def lifespan(box: Toolbox) -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        async with asyncio.timeout(60):  # as a cancel scope, it must end in the task in which it began
            yield
        tasks.append(asyncio.current_task())
        log.append("lifespan")

    async def get() -> AsyncIterator[str]:
        yield "value"
        log.append("value")

    box = Toolbox("given", lifespan=lifespan)

    @box.tool()
    async def use(value: Annotated[str, Given(get, per="process")]) -> str:
        """Use it."""
        return value

    async with connect(box, "modern") as client:
        await asyncio.gather(*(client.call("use") for _ in range(3)))

    assert log == ["value", "lifespan"]
    assert tasks[0] is tasks[1]


async def test_lifespan_that_fails_fails_the_calls():
    async def lifespan(box: Toolbox) -> AsyncIterator[None]:
        raise RuntimeError("secret")
        yield

    box = Toolbox("given", lifespan=lifespan)

    @box.tool()
    async def use() -> None:
        """Do nothing."""

    async with connect(box, "modern") as client:
        envelope = await client.call("use")

    assert (envelope["code"], "secret" in str(envelope)) == ("INTERNAL_ERROR", False)


async def test_call_does_not_wait_for_ever_for_a_lifespan_that_hangs():
    async def lifespan(box: Toolbox) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    box = Toolbox("given", lifespan=lifespan)
    box.deadline = 0.05

    @box.tool()
    async def use() -> None:
        """Do nothing."""

    async with connect(box, "modern") as client:
        assert (await client.call("use"))["code"] == "TIMEOUT"


async def test_included_box_keeps_its_lifespan():
    def lifespan(box: Toolbox) -> Any:
        @asynccontextmanager
        async def run() -> AsyncIterator[str]:
            yield f"state of {box.name}"

        return run()

    inner, outer = Toolbox("inner", lifespan=lifespan), Toolbox("outer", lifespan=lifespan)

    async def state(call: Call) -> str:
        """The state."""
        return call.state

    inner.tool()(state)
    outer.tool()(state)
    outer.include(inner, "in")

    async with connect(outer, "modern") as client:
        states = [(await client.call(tool))["result"] for tool in ("state", "in_state")]

    assert states == ["state of outer", "state of inner"]
