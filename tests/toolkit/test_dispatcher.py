"""The dispatcher turns every result and every failure of a handler into an envelope."""

import asyncio
import contextvars
import dataclasses
import hashlib
import logging
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest

from holdfast.model import codes
from holdfast.model.context import SessionContext
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import new_session_id
from holdfast.model.trust import Trust
from holdfast.toolkit import Call, Observation, Toolbox, ToolError, Workspace, current_session, needs_session
from holdfast.toolkit.client_requests import DirectRequests
from holdfast.toolkit.dispatcher import DispatchResult
from holdfast.toolkit.outcome import Failed, Ok
from holdfast.wire.messages import Raw
from tests.toolkit.contexts import ANN, BOB

pytestmark = pytest.mark.anyio


async def dispatch(
    box: Toolbox, name: str = "it", call: Call | None = None, **arguments: Any
) -> DispatchResult:
    dispatcher = box.dispatcher()
    return await dispatcher.dispatch(call or Call(tool=name), Raw(msgspec.json.encode(arguments)))


def box_with(handler: Any, **options: Any) -> Toolbox:
    box = Toolbox("box")
    box.tool(name="it", description="It.", **options)(handler)
    return box


def code_of(result: DispatchResult) -> str:
    return result.envelope.code if isinstance(result.envelope, Failed) else "OK"


def data_of(result: DispatchResult) -> Any:
    assert isinstance(result.envelope, Ok)
    return msgspec.json.decode(result.envelope.data)


@dataclasses.dataclass
class Point:
    x: int


class Person(pydantic.BaseModel):
    name: str


@pytest.mark.promise("KIT-06")
@pytest.mark.parametrize(
    ("returned", "data"),
    [
        (None, {}),
        ("text", {"result": "text"}),
        (3, {"result": 3}),
        ([1, 2], {"items": [1, 2]}),
        ({"a": {1: datetime(2026, 1, 1, tzinfo=UTC)}}, {"a": {"1": "2026-01-01T00:00:00Z"}}),
        (Point(1), {"x": 1}),
        ([Point(1)], {"items": [{"x": 1}]}),
        (Person(name="Ann"), {"name": "Ann"}),
        ({"person": Person(name="Ann")}, {"person": {"name": "Ann"}}),
        ({"ok": False, "_meta": {}, "a": 1}, {"result": {"ok": False, "_meta": {}, "a": 1}}),
    ],
)
async def test_returned_value_becomes_a_json_object(returned: Any, data: Any):
    async def it() -> Any:
        return returned

    result = await dispatch(box_with(it))

    assert isinstance(result.envelope, Ok)
    assert msgspec.json.decode(result.envelope.data) == data
    assert msgspec.json.decode(result.result)["structuredContent"].keys() == {*data, "ok", "_meta"}


@pytest.mark.promise("KIT-03", "KIT-05")
@pytest.mark.parametrize(
    "problem",
    [
        RuntimeError("a secret"),
        KeyError("a secret"),
        SystemExit(1),
        TimeoutError(),
        asyncio.CancelledError(),
        StopAsyncIteration(),
        ExceptionGroup("a secret", [ValueError("x")]),
    ],
)
async def test_unexpected_failure_is_logged_and_not_shown_to_the_caller(
    problem: BaseException, caplog: pytest.LogCaptureFixture
):
    async def it() -> None:
        raise problem

    result = await dispatch(box_with(it))

    assert (code_of(result), b"secret" in bytes(result.result)) == ("INTERNAL_ERROR", False)
    assert [record.exc_info and record.exc_info[1] for record in caplog.records] == [problem]


@pytest.mark.promise("KIT-03", "KIT-05")
@pytest.mark.parametrize("returned", [object(), {"a": object()}, "\ud800", {"a": {1, object}}])
async def test_result_that_is_not_json_is_an_internal_error(returned: Any):
    async def it() -> Any:
        return returned

    assert code_of(await dispatch(box_with(it))) == "INTERNAL_ERROR"


@pytest.mark.promise("KIT-03")
async def test_error_details_that_are_not_json_are_an_internal_error():
    async def it() -> None:
        raise ToolError(codes.DENIED, "odd \ud800", thing="\ud800")

    assert code_of(await dispatch(box_with(it))) == "INTERNAL_ERROR"


@pytest.mark.promise("KIT-03")
async def test_blocking_handler_runs_in_a_thread():
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    var = contextvars.ContextVar("var", default=0)
    var.set(7)

    def it() -> int:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(began.wait(), loop).result(5)
        return var.get()

    result = await dispatch(box_with(it))

    assert result.envelope == Ok(data=b'{"result":7}', stats=result.envelope.stats)


@pytest.mark.promise("KIT-03")
async def test_cancellation_of_the_caller_is_raised():
    begun = asyncio.Event()

    async def it() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(dispatch(box_with(it)))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.promise("KIT-05")
async def test_holdfast_error_keeps_its_code():
    async def it() -> None:
        raise ToolError(codes.NOT_RUNNING, "It does not run.", next_actions=["Start it."], pid=3)

    result = await dispatch(box_with(it, codes=["NOT_RUNNING"]))

    assert result.envelope == Failed(
        code="NOT_RUNNING",
        message="It does not run.",
        next_actions=("Start it.",),
        details={"pid": 3},
        stats=result.envelope.stats,
    )


@pytest.mark.promise("KIT-07")
async def test_undeclared_code_is_logged(caplog: pytest.LogCaptureFixture):
    async def it() -> None:
        raise ToolError(codes.FILE_EXISTS, "It exists.")

    await dispatch(box_with(it))

    assert [record.getMessage() for record in caplog.records] == ["undeclared code of it: FILE_EXISTS"]


@pytest.mark.promise("KIT-08", "CTX-10")
async def test_concurrent_calls_keep_their_own_context():
    async def it(number: int) -> dict[str, Any]:
        before = current_session()
        await asyncio.sleep(0)
        after = current_session()
        assert before == after
        if number % 3 == 0:
            raise ToolError(codes.DENIED, "No.")
        return {"session": after and after.session_id}

    box = box_with(it, codes=["DENIED"])
    sessions = [SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT) for _ in range(50)]

    results = await asyncio.gather(
        *(
            dispatch(box, call=Call(tool="it", session=session), number=number)
            for number in range(40)
            for session in sessions
        )
    )

    session_ids = [result.envelope.stats.session_id for result in results]
    assert session_ids == [session.session_id for _ in range(40) for session in sessions]
    seen = [data_of(result)["session"] for result in results if isinstance(result.envelope, Ok)]
    assert seen == [session.session_id for number in range(40) if number % 3 for session in sessions]


@pytest.mark.promise("KIT-12")
async def test_slow_call_is_logged(caplog: pytest.LogCaptureFixture):
    async def it() -> None:
        await asyncio.sleep(0.02)

    box = box_with(it)
    box.slow_after = 0.01

    await dispatch(box)

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "slow call: it")
    ]


async def test_time_that_overlapping_questions_wait_is_counted_once():
    seconds = iter([0.1, 0.2])

    async def ask(method: str, params: object, *, timeout: float | None = None) -> Raw:
        await asyncio.sleep(next(seconds))
        return Raw(b"{}")

    async def ask_later() -> None:
        await asyncio.sleep(0.05)
        await requests.request("roots/list", {}, needs="roots")

    requests = DirectRequests({"roots": {}}, ask)
    await asyncio.gather(requests.request("roots/list", {}, needs="roots"), ask_later())

    assert 0.24 < requests.waited_seconds < 0.34


@pytest.mark.promise("KIT-12")
async def test_handler_is_cancelled_at_its_deadline():
    cancelled: list[str] = []

    async def it() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("it")

    box = box_with(it, deadline=0.01)

    assert code_of(await dispatch(box)) == "TIMEOUT"
    assert (box.slow_after, cancelled) == (1.0, ["it"])


@pytest.mark.promise("KIT-12")
async def test_timeout_error_of_the_handler_is_an_internal_error():
    async def it() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(5)

    assert code_of(await dispatch(box_with(it, deadline=3))) == "INTERNAL_ERROR"


@pytest.mark.promise("KIT-17")
@pytest.mark.parametrize("how", ["crashes", "raises", "returns False", "awaits False"])
async def test_guard_that_fails_in_any_way_denies_the_call(how: str):
    ran: list[str] = []

    async def it() -> None:
        ran.append("it")

    def guard(call: Call) -> Any:
        async def later() -> bool:
            return False

        match how:
            case "crashes":
                raise ZeroDivisionError
            case "raises":
                raise ToolError(codes.DENIED, "No.")
            case "returns False":
                return False
            case _:
                return later()

    result = await dispatch(box_with(it, guards=[guard]))

    assert (code_of(result), ran) == ("DENIED", [])


@pytest.mark.promise("KIT-17")
async def test_guards_that_do_not_raise_allow_the_call():
    async def it() -> str:
        return "ran"

    async def later(call: Call) -> None:
        assert call.session is ANN

    box = box_with(it, guards=[needs_session, later])

    assert code_of(await dispatch(box, call=Call(tool="it", session=ANN))) == "OK"
    assert code_of(await dispatch(box)) == "NO_CONTEXT"


@pytest.mark.promise("CTX-06")
async def test_session_parameter_is_injected_and_is_not_an_argument():
    async def strict(session: SessionContext) -> str:
        """With a session."""
        return session.session_id

    async def lenient(session: SessionContext | None, workspace: Workspace | None) -> dict[str, Any]:
        """With or without."""
        return {"session": session and session.session_id, "workspace": workspace and workspace.slug}

    box = Toolbox("box", workspaces=EmptyRegistry())
    box.tool()(strict)
    box.tool()(lenient)
    forged: dict[str, Any] = {"session": {"session_id": "sess_ffffffffffffffff", "trust_level": "direct"}}

    results = [
        await dispatch(box, call=Call(tool="strict", session=ANN)),
        await dispatch(box, call=Call(tool="strict")),
        await dispatch(box, call=Call(tool="strict", session=BOB), **forged),
        await dispatch(box, call=Call(tool="lenient")),
        await dispatch(box, call=Call(tool="lenient", session=BOB)),
    ]

    assert [code_of(result) for result in results] == ["OK", "NO_CONTEXT", "BAD_ARGUMENT", "OK", "OK"]
    assert [data_of(result) for result in results if isinstance(result.envelope, Ok)] == [
        {"result": ANN.session_id},
        {"session": None, "workspace": None},
        {"session": BOB.session_id, "workspace": "shop"},
    ]


class EmptyRegistry:
    """A registry without workspaces."""

    def get(self, slug: str) -> Workspace:
        raise HoldfastError(codes.UNKNOWN_WORKSPACE, "There is none.")

    def find(self, address: str) -> Workspace | None:
        return None


@pytest.mark.promise("KIT-03")
async def test_observers_see_every_call_without_its_arguments():
    async def it(text: str) -> None:
        if text == "bad":
            raise ToolError(codes.DENIED, "No.")

    box = box_with(it, codes=["DENIED"])
    seen: list[Observation] = []

    @box.observe
    def broken(observation: Observation) -> None:
        raise RuntimeError("an observer's own problem")

    box.observe(seen.append)
    traced = Call(tool="it", session=BOB, meta={"traceparent": "00-abc"})
    await dispatch(box, call=traced, text="secret")
    await dispatch(box, text="bad")
    await dispatch(box, "nope")

    hashed = hashlib.sha256(b'{"text":"secret"}').hexdigest()
    assert [(observed.tool, observed.operation, observed.code, observed.ok) for observed in seen] == [
        ("it", "command", "OK", True),
        ("it", "command", "DENIED", False),
        ("nope", None, "UNKNOWN_TOOL", False),
    ]
    assert (seen[0].session, seen[0].workspace, seen[0].trace, seen[0].arguments_sha256) == (
        BOB,
        "shop",
        "00-abc",
        hashed,
    )
    assert broken
    assert "secret" not in repr(seen)


async def test_log_messages_of_a_handler_are_logged_locally(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)

    async def it(call: Call) -> None:
        await call.log("notice", "a word", name="odd", size=3)

    await dispatch(box_with(it))

    (record,) = caplog.records
    assert (record.getMessage(), vars(record)["size"], vars(record)["name_"]) == ("a word", 3, "odd")
