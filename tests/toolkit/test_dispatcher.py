"""The one owner of a call: whatever happens in a handler, an envelope comes out."""

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
from holdfast.model.envelope import Failed, Ok
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import new_session_id
from holdfast.model.trust import Trust
from holdfast.toolkit import Call, Observation, Toolbox, ToolError, Workspace, current_session, needs_session
from holdfast.toolkit.dispatcher import Outcome
from holdfast.wire.frame import Raw
from tests.toolkit.contexts import ANN, BOB

pytestmark = pytest.mark.anyio


async def dispatched(box: Toolbox, name: str = "it", call: Call | None = None, **arguments: Any) -> Outcome:
    dispatcher = box.dispatcher()
    return await dispatcher.dispatch(call or Call(tool=name), Raw(msgspec.json.encode(arguments)))


def box_of(handler: Any, **words: Any) -> Toolbox:
    box = Toolbox("box")
    box.tool(name="it", description="It.", **words)(handler)
    return box


def code_of(outcome: Outcome) -> str:
    return outcome.envelope.code if isinstance(outcome.envelope, Failed) else "OK"


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
        ({"ok": False, "_meta": {}, "a": 1}, {"a": 1}),
    ],
)
async def test_whatever_a_handler_returns_becomes_the_members_of_an_object(returned: Any, data: Any):
    async def it() -> Any:
        return returned

    outcome = await dispatched(box_of(it))

    assert isinstance(outcome.envelope, Ok)
    assert outcome.envelope.data == data
    assert msgspec.json.decode(outcome.result)["structuredContent"].keys() == {*data, "ok", "_meta"}


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
async def test_it_never_raises_and_an_unforeseen_failure_is_only_in_the_log(
    problem: BaseException, caplog: pytest.LogCaptureFixture
):
    async def it() -> None:
        raise problem

    outcome = await dispatched(box_of(it))

    assert (code_of(outcome), b"secret" in bytes(outcome.result)) == ("INTERNAL_ERROR", False)
    assert [record.exc_info and record.exc_info[1] for record in caplog.records] == [problem]


@pytest.mark.promise("KIT-03", "KIT-05")
@pytest.mark.parametrize("returned", [object(), {"a": object()}, "\ud800", {"a": {1, object}}])
async def test_a_result_that_json_cannot_say_is_an_unforeseen_failure_too(returned: Any):
    async def it() -> Any:
        return returned

    assert code_of(await dispatched(box_of(it))) == "INTERNAL_ERROR"


@pytest.mark.promise("KIT-03")
async def test_details_that_json_cannot_say_do_not_get_out_either():
    async def it() -> None:
        raise ToolError(codes.DENIED, "odd \ud800", thing="\ud800")

    assert code_of(await dispatched(box_of(it))) == "INTERNAL_ERROR"


@pytest.mark.promise("KIT-03")
async def test_a_handler_that_is_no_coroutine_runs_beside_the_loop():
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    var = contextvars.ContextVar("var", default=0)
    var.set(7)

    def it() -> int:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(began.wait(), loop).result(5)
        return var.get()

    outcome = await dispatched(box_of(it))

    assert outcome.envelope == Ok(data={"result": 7}, meta=outcome.envelope.meta)


@pytest.mark.promise("KIT-03")
async def test_the_callers_own_cancellation_gets_out():
    begun = asyncio.Event()

    async def it() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(dispatched(box_of(it)))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.promise("KIT-05")
async def test_an_error_of_holdfasts_own_keeps_its_code():
    async def it() -> None:
        raise ToolError(codes.NOT_RUNNING, "It does not run.", next_actions=["Start it."], pid=3)

    outcome = await dispatched(box_of(it, codes=["NOT_RUNNING"]))

    assert outcome.envelope == Failed(
        code="NOT_RUNNING",
        message="It does not run.",
        next_actions=("Start it.",),
        details={"pid": 3},
        meta=outcome.envelope.meta,
    )


@pytest.mark.promise("KIT-07")
async def test_a_code_that_a_tool_did_not_declare_is_noticed(caplog: pytest.LogCaptureFixture):
    async def it() -> None:
        raise ToolError(codes.NOT_RUNNING, "It does not run.")

    await dispatched(box_of(it))

    assert [record.getMessage() for record in caplog.records] == ["undeclared code"]


@pytest.mark.promise("KIT-08", "CTX-10")
async def test_concurrent_calls_never_cross():
    async def it(number: int) -> dict[str, Any]:
        before = current_session()
        await asyncio.sleep(0)
        after = current_session()
        assert before == after
        if number % 3 == 0:
            raise ToolError(codes.DENIED, "No.")
        return {"session": after and after.session_id}

    box = box_of(it, codes=["DENIED"])
    sessions = [SessionContext(session_id=new_session_id(), trust_level=Trust.DIRECT) for _ in range(50)]

    outcomes = await asyncio.gather(
        *(
            dispatched(box, call=Call(tool="it", session=session), number=number)
            for number in range(40)
            for session in sessions
        )
    )

    stamped = [outcome.envelope.meta.session_id for outcome in outcomes]
    assert stamped == [session.session_id for _ in range(40) for session in sessions]
    seen = [outcome.envelope.data["session"] for outcome in outcomes if isinstance(outcome.envelope, Ok)]
    assert seen == [session.session_id for number in range(40) if number % 3 for session in sessions]


@pytest.mark.promise("KIT-12")
async def test_a_slow_call_is_logged_as_slow(caplog: pytest.LogCaptureFixture):
    async def it() -> None:
        await asyncio.sleep(0.02)

    box = box_of(it)
    box.slow_after = 0.01

    await dispatched(box)

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "slow call")
    ]


@pytest.mark.promise("KIT-12")
async def test_by_default_a_second_is_not_slow_and_past_the_deadline_the_handler_is_cancelled():
    given_up: list[str] = []

    async def it() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.append("it")

    box = box_of(it, deadline=0.01)

    assert code_of(await dispatched(box)) == "TIMEOUT"
    assert (box.slow_after, given_up) == (1.0, ["it"])


@pytest.mark.promise("KIT-12")
async def test_a_timeout_of_the_handlers_own_is_not_ours():
    async def it() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(5)

    assert code_of(await dispatched(box_of(it, deadline=3))) == "INTERNAL_ERROR"


@pytest.mark.promise("KIT-17")
@pytest.mark.parametrize("how", ["raises", "denies", "says no", "says no later"])
async def test_a_guard_that_fails_in_any_way_denies_the_call(how: str):
    ran: list[str] = []

    async def it() -> None:
        ran.append("it")

    def guard(call: Call) -> Any:
        async def later() -> bool:
            return False

        match how:
            case "raises":
                raise ZeroDivisionError
            case "denies":
                raise ToolError(codes.DENIED, "No.")
            case "says no":
                return False
            case _:
                return later()

    outcome = await dispatched(box_of(it, guards=[guard]))

    assert (code_of(outcome), ran) == ("DENIED", [])


@pytest.mark.promise("KIT-17")
async def test_guards_that_pass_let_the_call_run():
    async def it() -> str:
        return "ran"

    async def later(call: Call) -> None:
        assert call.session is ANN

    box = box_of(it, guards=[needs_session, later])

    assert code_of(await dispatched(box, call=Call(tool="it", session=ANN))) == "OK"
    assert code_of(await dispatched(box)) == "NO_CONTEXT"


@pytest.mark.promise("CTX-06")
async def test_a_session_that_a_handler_asks_for_is_the_hosts_and_no_argument():
    async def strict(session: SessionContext) -> str:
        """With a session."""
        return session.session_id

    async def lenient(session: SessionContext | None, workspace: Workspace | None) -> dict[str, Any]:
        """With or without."""
        return {"session": session and session.session_id, "workspace": workspace and workspace.slug}

    box = Toolbox("box", workspaces=Nowhere())
    box.tool()(strict)
    box.tool()(lenient)
    forged: dict[str, Any] = {"session": {"session_id": "sess_ffffffffffffffff", "trust_level": "direct"}}

    outcomes = [
        await dispatched(box, call=Call(tool="strict", session=ANN)),
        await dispatched(box, call=Call(tool="strict")),
        await dispatched(box, call=Call(tool="strict", session=BOB), **forged),
        await dispatched(box, call=Call(tool="lenient")),
        await dispatched(box, call=Call(tool="lenient", session=BOB)),
    ]

    assert [code_of(outcome) for outcome in outcomes] == ["OK", "NO_CONTEXT", "BAD_ARGUMENT", "OK", "OK"]
    assert [outcome.envelope.data for outcome in outcomes if isinstance(outcome.envelope, Ok)] == [
        {"result": ANN.session_id},
        {"session": None, "workspace": None},
        {"session": BOB.session_id, "workspace": "shop"},
    ]


class Nowhere:
    """A registry with nothing in it."""

    def get(self, slug: str) -> Workspace:
        raise HoldfastError(codes.UNKNOWN_WORKSPACE, "There is none.")

    def find(self, address: str) -> Workspace | None:
        return None


@pytest.mark.promise("KIT-03")
async def test_every_call_is_observed_without_its_arguments():
    async def it(text: str) -> None:
        if text == "bad":
            raise ToolError(codes.DENIED, "No.")

    box = box_of(it, codes=["DENIED"])
    seen: list[Observation] = []

    @box.observe
    def broken(observation: Observation) -> None:
        raise RuntimeError("an observer's own problem")

    box.observe(seen.append)
    traced = Call(tool="it", session=BOB, meta={"traceparent": "00-abc"})
    await dispatched(box, call=traced, text="secret")
    await dispatched(box, text="bad")
    await dispatched(box, "nope")

    hashed = hashlib.sha256(b'{"text":"secret"}').hexdigest()
    assert [(told.tool, told.operation, told.code, told.ok) for told in seen] == [
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


async def test_a_handlers_log_lines_reach_standard_error(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)

    async def it(call: Call) -> None:
        await call.log("notice", "a word", name="odd", size=3)

    await dispatched(box_of(it))

    (record,) = caplog.records
    assert (record.getMessage(), vars(record)["size"], vars(record)["name_"]) == ("a word", 3, "odd")
