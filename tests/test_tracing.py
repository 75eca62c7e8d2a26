"""Traces: which spans there are, what they contain, what servers get, and that nothing is traced by default."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import HoldfastError, Host
from holdfast.model.json import JsonObject
from holdfast.testing.scripted_model import Call, Fail, ModelRequest, ScriptedModel, Step, answer
from tests.agent.model.sessions import model_settings
from tests.commands import run_holdfast

pytestmark = pytest.mark.anyio

SECRET = "canary-in-a-prompt"
SERVER = str(Path(__file__).parent / "connect" / "counter_server.py")
COUNTER = {"command": sys.executable, "args": [SERVER]}


class Traced:
    """An application's own provider, which keeps the spans in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def parents(self) -> dict[str, str]:
        """The name of each span's parent, by the name of the span."""
        by_id = {span.context.span_id: span.name for span in self.spans.values() if span.context}
        return {
            name: by_id.get(span.parent.span_id, "?") if span.parent else ""
            for name, span in self.spans.items()
        }


def delegate_and_count(request: ModelRequest) -> Step:
    """The model: it counts and delegates at once; its sub-agent looks at what the server gets."""
    if "sub-agent" in request.instructions:
        return answer("Seen.") if request.tool_results else answer(Call("counter__whoami", {"word": SECRET}))
    if request.tool_results:
        return answer(f"Done: {SECRET}")
    return answer(Call("counter__count", {}), Call("agents__delegate", {"task": f"Look at {SECRET}"}))


@pytest.mark.slow
async def test_session_turn_requests_calls_and_sub_agents_are_spans_of_one_trace(tmp_path: Path):
    traced = Traced()
    async with ScriptedModel(delegate_and_count) as endpoint:
        loaded = model_settings(tmp_path, endpoint)
        async with (
            Host(settings=loaded, servers={"counter": COUNTER}, tracer_provider=traced.provider) as host,
            host.session(cwd=tmp_path, permission="auto", tools=["counter.*", "agents.*"]) as session,
        ):
            token = context.attach(baggage.set_baggage("user", SECRET))
            await session.prompt(f"Count, please: {SECRET}")
            context.detach(token)
            seen = await session.call("counter.whoami", {})

    assert len({span.context.trace_id for span in traced.spans.values() if span.context}) == 1
    assert traced.parents() == {
        "session": "",
        "invoke_agent holdfast": "session",
        "chat gpt-5": "invoke_agent holdfast",
        "tools/call count": "invoke_agent holdfast",
        "tools/call delegate": "invoke_agent holdfast",
        "invoke_agent agent": "tools/call delegate",
        "tools/call whoami": "session",
    }
    call = traced.spans["tools/call whoami"]
    assert call.context is not None
    sent = seen.data["all"]["traceparent"]
    assert sent.startswith(f"00-{call.context.trace_id:032x}-{call.context.span_id:016x}-")
    assert "baggage" not in seen.data["keys"]
    assert SECRET not in "".join(span.to_json() for span in traced.exporter.get_finished_spans())


async def test_spans_have_the_attributes_of_the_conventions(tmp_path: Path):
    traced = Traced()
    async with ScriptedModel(delegate_and_count) as endpoint:
        loaded = model_settings(tmp_path, endpoint)
        async with (
            Host(settings=loaded, servers={"counter": COUNTER}, tracer_provider=traced.provider) as host,
            host.session(cwd=tmp_path, permission="auto", tools=["counter.*", "agents.*"]) as session,
        ):
            await session.prompt("Go.")
            failed = await session.call("counter.fail", {})
            ids = {"gen_ai.conversation.id": session.context.session_id}
            port = int(endpoint.address.rpartition(":")[2])

    assert not failed.ok
    requests = [span for span in traced.exporter.get_finished_spans() if span.name == "chat gpt-5"]
    assert len(requests) == 4
    assert dict(requests[-1].attributes or {}) == ids | {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "own",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.response.model": "gpt-5",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    call = dict(traced.spans["tools/call fail"].attributes or {})
    assert call.pop("gen_ai.tool.call.id")
    assert call == ids | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "fail",
        "mcp.method.name": "tools/call",
        "network.transport": "pipe",
        "holdfast.server.name": "counter",
        "holdfast.outcome": "failed",
        "error.type": "tool_error",
    }
    turn = dict(traced.spans["invoke_agent holdfast"].attributes or {})
    assert turn["holdfast.stop_reason"] == "end_turn"
    assert int(str(turn["gen_ai.usage.output_tokens"])) > 0
    sub_agent = dict(traced.spans["invoke_agent agent"].attributes or {})
    assert str(sub_agent.pop("gen_ai.agent.id")).startswith("agent-")
    assert sub_agent == ids | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "agent",
        "holdfast.stop_reason": "end_turn",
    }


async def test_a_failed_request_is_a_failed_span_with_a_code_and_no_text(tmp_path: Path):
    traced = Traced()

    def think(request: ModelRequest) -> Step:
        is_first = "sub-agent" not in request.instructions and not request.tool_results
        return (
            answer(Call("agents__delegate", {"task": "Go."}))
            if is_first
            else Fail(status=401, message=SECRET)
        )

    async with ScriptedModel(think) as endpoint:
        loaded = model_settings(tmp_path, endpoint)
        async with (
            Host(settings=loaded, tracer_provider=traced.provider) as host,
            host.session(cwd=tmp_path, tools=["agents.*"]) as session,
        ):
            await session.prompt("Go.")

    for name in ("chat gpt-5", "invoke_agent agent", "invoke_agent holdfast"):
        span = traced.spans[name]
        assert (span.status.is_ok, span.status.description, span.events) == (False, None, ())
        assert (span.attributes or {}).get("error.type") == "MODEL_UNAVAILABLE"


async def test_the_current_span_of_the_application_is_the_parent_of_the_spans_of_holdfast(tmp_path: Path):
    traced = Traced()
    async with (
        Host(
            settings=replace(model_settings(tmp_path, ScriptedModel([])), data_dir=tmp_path / "data"),
            tracer_provider=traced.provider,
        ) as host,
        host.session(cwd=tmp_path) as session,
    ):
        with traced.provider.get_tracer("program").start_as_current_span("request"):
            await session.call("files.list", {})
        sent: JsonObject = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "x=any-text"}
        await session.call("files.find", {"text": "x"}, meta=sent)

    found = traced.spans["tools/call find"]
    assert traced.parents()["tools/call list"] == "request"
    assert found.parent is not None
    assert (found.parent.trace_id, found.parent.span_id) == (int("a" * 32, 16), int("b" * 16, 16))
    assert found.parent.trace_state == {}, "its text is the client's"


class Collector:
    """Collects what is sent to it over OTLP/HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.url = ""

    def receive(self, body: bytes) -> None:
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {one.key: one.value.string_value for one in part.resource.attributes}
            self.services.add(named["service.name"])
            self.spans += [span for scope in part.scope_spans for span in scope.spans]


@contextmanager
def collector() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                found.receive(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


def command_environment(folder: Path, **more: str) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "HOLDFAST_DATA_DIR": str(folder / "data"),
        "HOLDFAST_SERVERS_USER_FILE": str(folder / "mcp.json"),
        "HOLDFAST_SERVERS_HOST_FILE": str(folder / "none.json"),
        **more,
    }


def test_a_command_sends_its_spans_to_the_collector_of_the_setting(tmp_path: Path):
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"counter": COUNTER}}))
    with collector() as found:
        environment = command_environment(tmp_path, HOLDFAST_TRACES_OTLP_URL=found.url)
        called = run_holdfast("call", "counter.whoami", "{}", "--json", cwd=tmp_path, env=environment)

    spans = {span.name: span for span in found.spans}
    assert called.returncode == 0, called.stderr
    assert (set(spans), found.services) == ({"session", "tools/call whoami"}, {"holdfast"})
    assert spans["tools/call whoami"].parent_span_id == spans["session"].span_id
    assert spans["tools/call whoami"].trace_id.hex() in called.stdout, "the server got the trace"


def test_a_collector_that_is_not_there_does_not_stop_a_command(tmp_path: Path):
    environment = command_environment(tmp_path, HOLDFAST_TRACES_OTLP_URL="http://127.0.0.1:9")

    called = run_holdfast("call", "files.list", "{}", cwd=tmp_path, env=environment)

    assert called.returncode == 0


@pytest.mark.slow
def test_by_default_nothing_is_traced_and_opentelemetry_is_not_imported(tmp_path: Path):
    program = (
        "import asyncio, sys\n"
        "from holdfast import Host\n"
        "async def main():\n"
        "    async with Host(servers={'counter': {'command': sys.argv[1], 'args': [sys.argv[2]]}}) as host:\n"
        "        async with host.session(cwd='.') as session:\n"
        "            seen = await session.call('counter.whoami', {})\n"
        "            print('traceparent' in seen.data['all'])\n"
        "            await session.prompt('/tools')\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, sys.executable, SERVER],
        cwd=tmp_path,
        env=command_environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )

    assert ended.stdout.splitlines() == ["False", "[]"]


async def test_an_address_without_a_scheme_is_refused(tmp_path: Path):
    loaded = model_settings(tmp_path, ScriptedModel([]))
    host = Host(settings=replace(loaded, traces=replace(loaded.traces, otlp_url="localhost:4318")))

    with pytest.raises(HoldfastError, match=r"traces\.otlp_url must begin with http:// or https://"):
        await asyncio.wait_for(host.__aenter__(), 30)
