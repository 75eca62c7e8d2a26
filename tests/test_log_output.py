import ast
import io
import json
import logging
import os
import select
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import log_output
from holdfast.masking import log_mask
from holdfast.masking.log_mask import LogSecrets
from holdfast.masking.mask import Mask
from holdfast.model.context import SessionContext, use_context
from holdfast.model.ids import SessionId
from holdfast.model.trust import Trust

CONTEXT = SessionContext(session_id=SessionId("sess_0123456789abcdef"), trust_level=Trust.DIRECT)
log = logging.getLogger("holdfast.wire.peer")


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def test_json_record_has_its_fields_and_the_session() -> None:
    def write() -> None:
        with use_context(CONTEXT):
            log.warning("request refused", extra={"method": "tools/call", "tries": 3, "ids": ("a", 1)})

    record = json.loads(_capture("json", write))

    assert record.pop("time").endswith("+00:00")
    assert record == {
        "level": "warning",
        "logger": "wire.peer",
        "event": "request refused",
        "method": "tools/call",
        "tries": 3,
        "ids": ["a", 1],
        "session": "sess_0123456789abcdef",
    }


def test_human_record_is_one_line_with_its_fields_and_the_session() -> None:
    def write() -> None:
        with use_context(CONTEXT):
            log.warning("request refused", extra={"method": "tools/call", "reason": 'says "no"', "tries": 3})

    time, _, rest = _capture("human", write).partition(" ")

    assert len(time) == len("12:34:56.789")
    assert rest == (
        r'warning wire.peer: request refused method=tools/call reason="says \"no\"" tries=3'
        " session=sess_0123456789abcdef\n"
    )


def test_record_outside_a_session_has_no_session() -> None:
    assert "session" not in json.loads(_capture("json", lambda: log.info("started")))


def test_field_of_the_caller_does_not_replace_a_standard_field() -> None:
    def write() -> None:
        with use_context(CONTEXT):
            log.info("real", extra={"event": "forged", "level": "forged", "session": "forged"})

    record = json.loads(_capture("json", write))

    assert (record["event"], record["level"], record["session"]) == ("real", "info", CONTEXT.session_id)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), b"\xff", {1: object}, {("a",): [{2}]}, "\ud800"]
)
def test_any_value_can_be_logged_as_valid_json(value: object) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    line = _capture("json", lambda: log.info("odd", extra={"value": value}))

    assert "value" in json.loads(line, parse_constant=refuse)


def test_message_with_missing_arguments_is_still_logged() -> None:
    record = logging.makeLogRecord({"name": "x", "msg": "%s and %s", "args": ("one",)})

    assert json.loads(log_output.JsonFormatter().format(record))["event"] == "%s and %s"


@given(text=st.text(alphabet=st.characters(), max_size=40), human=st.booleans())
def test_record_is_always_one_line(text: str, human: bool) -> None:
    forged = f"x\n12:00:00.000 error   wire: {text}\r\x85\u2028\x1b[2J"
    record = logging.makeLogRecord(
        {"name": forged, "levelname": forged, "msg": forged, "value": forged, "list": [forged], forged: 1}
    )

    line = (log_output.HumanFormatter(colour=False) if human else log_output.JsonFormatter()).format(record)

    assert line.isprintable()


@pytest.mark.parametrize("format", ["human", "json"])
def test_text_of_an_exception_cannot_imitate_a_record(format: str) -> None:
    def write() -> None:
        try:
            raise ValueError("no\n12:00:00.000 error   wire: forged\x1b[2J")
        except ValueError:
            log.exception("tool crashed")

    first, *below = _capture(format, write).removesuffix("\n").split("\n")

    assert "tool crashed" in first
    assert first.isprintable()
    if format == "json":
        assert below == []
        assert "ValueError: no" in json.loads(first)["traceback"]
    else:
        assert [line for line in below if not (line.startswith("  | ") and line.isprintable())] == []
        assert r"  | 12:00:00.000 error   wire: forged\x1b[2J" in below


def test_auto_is_human_on_a_terminal_and_json_elsewhere() -> None:
    def write() -> None:
        log.info("started")

    assert json.loads(_capture("auto", write, io.StringIO()))["event"] == "started"
    assert "wire.peer: started" in _capture("auto", write, Terminal())


def test_colours_are_used_on_a_terminal_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        log.info("started")

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[36minfo" in _capture("human", write, Terminal())
    assert "\x1b" not in _capture("human", write, io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in _capture("human", write, Terminal())


def test_libraries_log_from_warning() -> None:
    stream = io.StringIO()
    log_output.configure("debug", "json", stream)

    log.debug("ours")
    logging.getLogger("library").info("noise")
    logging.getLogger("library").warning("important")

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["ours", "important"]


def test_second_configure_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    log_output.configure("info", "json", first)
    log_output.configure("error", "json", second)

    log.warning("too little")
    log.error("enough")

    assert (first.getvalue(), second.getvalue().count("\n")) == ("", 1)


def test_logs_go_to_standard_error_and_nothing_to_standard_output() -> None:
    code = (
        "import logging; from holdfast import log_output\n"
        "log_output.configure('info', 'auto'); logging.getLogger('holdfast.x').info('started')"
    )

    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, check=True)

    assert (done.stdout, json.loads(done.stderr)["event"]) == (b"", "started")


@pytest.mark.slow
def test_logging_never_blocks_on_an_unread_pipe_and_counts_dropped_lines() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as writer:
        log_output.configure("info", "json", writer)
        for number in range(10_000):
            log.info("one of many", extra={"number": number, "padding": "x" * 100})

        lines: list[Any] = []
        while not lines or "count" not in lines[-1]:
            lines.append(json.loads(reader.readline()))

    numbers = [line["number"] for line in lines[:-1]]
    assert numbers == [*range(len(numbers))], "the first lines, in order"
    assert lines[-1]["count"] == 10_000 - len(numbers) > 0


def test_last_lines_are_written_at_exit_and_an_unread_pipe_does_not_delay_it() -> None:
    code = (
        "import logging, sys; from holdfast import log_output\n"
        "log_output.configure('info', 'json')\n"
        "for number in range(int(sys.argv[1])): logging.getLogger('holdfast.x').info('line %d', number)"
    )
    command = [sys.executable, "-c", code]

    few = subprocess.run([*command, "100"], capture_output=True, check=True)
    with subprocess.Popen([*command, "3000"], stderr=subprocess.PIPE) as many:
        left = many.wait(30)

    assert [json.loads(line)["event"] for line in few.stderr.splitlines()][-1] == "line 99"
    assert left == 0


INTERRUPTED = """
import logging, signal, sys, time
from holdfast import log_output
log_output.configure("info", "json")
log = logging.getLogger("holdfast.x")

inside = False

class Now(Exception): ...

def interrupted(number, frame):
    global inside
    log.info("in the middle")
    if inside:
        inside = False
        raise Now

signal.signal(signal.SIGALRM, interrupted)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
until = time.monotonic() + 1.5
while time.monotonic() < until:
    try:
        inside = True
        log.info("a line " * 1000)
        inside = False
    except Now:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
stream = logging.getLogger().handlers[0].stream
stream.drain(10)  # so that the last line is not dropped, even if the machine is busy
log.info("the last")
stream.drain(10)
"""
FORKED = """
import logging, os
from holdfast import log_output
log_output.configure("info", "json")
log = logging.getLogger("holdfast.x")
log.info("x" * 100_000)  # written by a thread, which the child does not have
logging.getLogger().handlers[0].stream.drain(10)
if not os.fork():
    log.info("y" * 10_000)
    raise SystemExit
os.wait()
log.info("the last")
"""


def test_signal_handler_can_log_in_the_middle_of_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True, timeout=30
    )

    # logging itself prints to stderr, without our stream, what the handler raises in the middle of a line.
    lines = [line for line in done.stderr.splitlines() if line.startswith("{")]
    assert "in the middle" in done.stderr
    assert json.loads(lines[-1])["event"] == "the last"


def test_line_of_a_signal_handler_is_counted_wherever_it_interrupts_another() -> None:
    reading, writing = os.pipe()
    stream = log_output.NonBlockingStream(writing)
    counted: list[int] = []

    def interrupt_after(calls: int) -> Callable[[FrameType, str, object], None]:
        left = calls

        def interrupt(_: FrameType, event: str, what: object) -> None:
            nonlocal left
            left -= event == "c_return"  # Python runs signal handlers after a call
            if left == 0:
                sys.setprofile(None)
                stream.write("y" * 10_000)

        return interrupt

    for calls in range(1, 13):
        stream.reset()
        stream._thread_lock.acquire()  # what is queued stays queued
        sys.setprofile(interrupt_after(calls))
        stream.write("x" * 10_000)
        sys.setprofile(None)
        counted.append(stream._queued_bytes)
    stream.reset()
    stream.close()
    for descriptor in (reading, writing):
        os.close(descriptor)

    assert set(counted) == {10_000, 20_000}
    assert counted == sorted(counted, reverse=True), "only after the end is there no second line"


def test_signal_handler_may_raise_wherever_it_interrupts_the_first_long_line() -> None:
    class RaisedError(Exception): ...

    calls = 0
    was_interrupted = True
    while was_interrupted:
        calls += 1
        reading, writing = os.pipe()
        stream = log_output.NonBlockingStream(writing)
        was_interrupted = False
        left = calls

        def interrupt(_: FrameType, event: str, what: object) -> None:
            nonlocal left
            left -= event == "c_return"  # Python runs signal handlers after a call
            if left == 0:
                raise RaisedError

        sys.setprofile(interrupt)
        try:
            stream.write("x" * 10_000)
        except RaisedError:
            was_interrupted = True
        finally:
            sys.setprofile(None)
        stream.write("y" * 10_000)
        stream.drain(10)
        stream.close()
        for descriptor in (reading, writing):
            os.close(descriptor)

        assert stream._queued_bytes == stream._written_bytes, f"interrupted after {calls} calls"
    assert calls > 4


def test_forked_process_can_log() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=30
    )

    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert sorted((event[0], len(event)) for event in events) == [("t", 8), ("x", 100_000), ("y", 10_000)]


def test_repeated_configure_leaks_no_thread_or_descriptor() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as writer:
        log_output.configure("info", "json", writer)
        before = len(os.listdir("/dev/fd"))
        for _ in range(20):
            log_output.configure("info", "json", writer)
            log.info("z" * 10_000)
            reader.readline()
        log_output.configure("info", "json", io.StringIO())
        writer.close()
        all_closed = select.poll()
        all_closed.register(reader, 0)  # reports only that no descriptor for writing is left
        all_closed.poll(30_000)

        assert len(os.listdir("/dev/fd")) == before - 2, (
            "the writer and the copy of its descriptor are closed"
        )


def _capture(format: Any, write: Callable[[], None], stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    log_output.configure("info", format, stream)
    write()
    return stream.getvalue()


def test_secret_is_masked_until_every_session_has_removed_it() -> None:
    mask = Mask.of(["canary-4f9a2c81"])
    log = logging.getLogger("holdfast.test")
    first, second = LogSecrets.of("a", mask, mask), LogSecrets.of("b", mask, mask)
    log_mask.add_secrets(first)
    log_mask.add_secrets(second)
    log_mask.remove_secrets(first)
    still = _capture("human", lambda: log.warning("canary-4f9a2c81"))
    log_mask.remove_secrets(second)
    after = _capture("human", lambda: log.warning("canary-4f9a2c81"))

    assert ("canary" in still, "[masked]" in still, "canary" in after) == (False, True, True)


@pytest.mark.parametrize("format", ["human", "json"])
def test_a_warning_of_a_library_is_one_masked_record(format: str) -> None:
    secrets = LogSecrets.of("a", Mask.of(["canary-4f9a2c81"]), Mask.of(["canary-4f9a2c81"]))
    log_mask.add_secrets(secrets)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        text = _capture(
            format, lambda: warnings.warn("received 'canary-4f9a2c81'\n\x1b[31mforged", stacklevel=1)
        )
    log_mask.remove_secrets(secrets)

    assert ("[masked]" in text, "canary" in text, "\x1b" in text, text.count("\n")) == (True, False, False, 1)


@pytest.mark.slow
def test_log_lines_about_a_server_or_a_tool_have_its_name_in_their_text() -> None:
    """Some programs that show logs leave out the fields."""
    nameless: list[str] = []
    assert [*_find_nameless(ast.parse('log.warning("ended", extra={"server": name})'))] == ["ended"]
    for path in Path(log_output.__file__).parent.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                nameless += (f"{path.name}: {text}" for text in _find_nameless(function))

    assert nameless == []


def _find_nameless(function: ast.AST) -> Iterator[str]:
    """The texts of the function's warnings and errors that have a server or a tool in their fields only."""
    fields: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            fields[node.targets[0].id] = node.value
    for node in ast.walk(function):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="log"), attr="warning" | "error" | "exception"),
                args=[ast.Constant(value=str(text)), *_],
                keywords=keywords,
            ):
                given = [keyword.value for keyword in keywords if keyword.arg == "extra"]
                extra = [fields.get(value.id) if isinstance(value, ast.Name) else value for value in given]
                keys = {
                    key.value
                    for value in extra
                    if isinstance(value, ast.Dict)
                    for key in value.keys
                    if isinstance(key, ast.Constant)
                }
                if keys & {"server", "tool"} and "%s" not in text:
                    yield text
            case _:
                pass
