"""Turns of a session with a model, against bare pydantic-ai with the same endpoint, prompt and tools."""

import asyncio
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.result import Result
from holdfast import Host, OpenOptions, Session, events, settings
from holdfast.connect.catalog import CatalogTool
from holdfast.testing.scripted_model import Answer, Call, ModelRequest, ScriptedModel, Step, Text, answer

if TYPE_CHECKING:
    from pydantic_ai.toolsets import FunctionToolset

DELTAS, FEW, STREAMS, TURNS = 400, 20, 50, 7
STREAM_DELTAS, STREAM_ROUNDS = 100, 3
INSTRUCTIONS = "You are an assistant. Answer briefly, and use the tools."
PEER = "pydantic-ai, bare"
Turn = Callable[[str], Awaitable[float]]
"""Answers a prompt; returns the seconds until the first text."""


def respond(request: ModelRequest) -> Step:
    """Answer the prompt `call` with a tool call first. A prompt that is a number says how many deltas the answer has."""
    if request.prompt == "call" and not request.tool_results:
        return answer(Call(request.tools[0], {"path": "."}))
    deltas = int(request.prompt) if request.prompt.isdigit() else 5
    return Answer(parts=(Text("word " * deltas, chunk=5),))


def results() -> list[Result]:
    with _endpoint() as base_url:
        return asyncio.run(_measure(base_url))


class _endpoint:  # noqa: N801 - used like a function
    """The endpoint in a process of its own, so that its work does not count."""

    def __enter__(self) -> str:
        command = [sys.executable, "-m", "holdfast.testing.scripted_model", "benchmarks.models:respond"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


async def _measure(base_url: str) -> list[Result]:
    figures: dict[str, dict[str, list[float]]] = {}
    async with _ours(base_url) as open_ours, _peer(base_url, await _offered_tools(base_url)) as open_peer:
        openers = {"ours": open_ours, "peer": open_peer}
        turns = {name: await opened() for name, opened in openers.items()}
        for name, turn in turns.items():
            for _ in range(3):
                await turn("call")
            figures[name] = {"turn": [], "few": [], "many": [], "first": []}
        for _ in range(TURNS):
            for name, turn in turns.items():
                samples = figures[name]
                samples["turn"].append(await _cpu(turn, "call"))
                samples["few"].append(await _cpu(turn, str(FEW)))
                samples["many"].append(await _cpu(turn, str(DELTAS)))
                samples["first"].append(await turn("5") * 1000)
        best = {
            name: {what: min(values) for what, values in samples.items()} for name, samples in figures.items()
        }
        rates = {"ours": 0.0, "peer": 0.0}
        many = {name: [await opened() for _ in range(STREAMS)] for name, opened in openers.items()}
        for _ in range(STREAM_ROUNDS):
            for name, together in many.items():
                # All of it runs on one core, so its CPU time counts: other programs do not change the figure.
                gc.collect()
                began = time.process_time()
                await asyncio.gather(*(turn(str(STREAM_DELTAS)) for turn in together))
                rate = STREAMS * STREAM_DELTAS / (time.process_time() - began)
                rates[name] = max(rate, rates[name])
    per_delta = {name: (of["many"] - of["few"]) / (DELTAS - FEW) * 1e6 for name, of in best.items()}
    sizes = await _sizes()
    ours, peer = best["ours"], best["peer"]
    return [
        Result(name="agent.turn.cpu", ours=ours["turn"] * 1000, peer=peer["turn"] * 1000, peer_name=PEER, unit="ms", goal="<= 1.25"),
        Result(name="agent.delta.cpu", ours=per_delta["ours"], peer=per_delta["peer"], peer_name=PEER, unit="µs", goal="<= 1.15"),
        Result(name="agent.first_token", ours=ours["first"], peer=peer["first"] + 5, peer_name=f"{PEER}, plus 5 ms", unit="ms", goal="<= 1"),
        Result(name="agent.streams50", ours=rates["ours"], peer=rates["peer"], peer_name=PEER, unit="deltas per CPU second", goal=">= 0.85"),
        Result(name="agent.tokens", ours=sizes[0], peer=sizes[1], peer_name=f"{PEER}, same tools", unit="bytes of a request", goal="<= 1.02"),
    ]  # fmt: skip


async def _cpu(turn: Turn, prompt: str) -> float:
    gc.collect()
    began = time.process_time()
    await turn(prompt)
    return time.process_time() - began


@asynccontextmanager
async def _ours(base_url: str) -> AsyncIterator[Callable[[], Awaitable[Turn]]]:
    with tempfile.TemporaryDirectory() as folder:
        async with Host(settings=_settings(folder, base_url)) as host:
            opened: list[Session] = []

            async def open_turn() -> Turn:
                session = await opened_session(host, folder)
                opened.append(session)
                return lambda prompt: _run_ours(session, prompt)

            yield open_turn
            for session in opened:
                await session.close()


async def opened_session(host: Host, folder: str) -> Session:
    session = await host.open(OpenOptions(cwd=folder))
    await session.wait_ready()
    return session


def _settings(folder: str, base_url: str) -> settings.Settings:
    loaded = settings.load(environ={})
    model = replace(loaded.model, name="openai-chat:gpt-5", base_url=base_url)
    return replace(loaded, data_dir=Path(folder) / "data", model=model)


async def _run_ours(session: Session, prompt: str) -> float:
    began, first = time.perf_counter(), 0.0
    # A history of its own for each turn, as the peer has.
    session.agent._history = _empty_history()  # type: ignore[attr-defined]
    async for stored in session.prompt(prompt):
        if not first and isinstance(stored.event, events.Replied):
            first = time.perf_counter() - began
    return first


def _empty_history() -> object:
    from holdfast.agent.model.history import History

    return History(100_000)


async def _offered_tools(base_url: str) -> list[CatalogTool]:
    """The tools of a session: the peer gets the same, since each of them makes a request larger."""
    with tempfile.TemporaryDirectory() as folder:
        async with Host(settings=_settings(folder, base_url)) as host:
            session = await opened_session(host, folder)
            tools = [*session.available_tools]
            await session.close()
    return tools


@asynccontextmanager
async def _peer(base_url: str, tools: Sequence[CatalogTool]) -> AsyncIterator[Callable[[], Awaitable[Turn]]]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def call(**arguments: object) -> str:
        return f"a.txt in {arguments['path']}"

    model = OpenAIChatModel("gpt-5", provider=OpenAIProvider(base_url=base_url, api_key="none"))
    agent = Agent(model, instructions=INSTRUCTIONS, toolsets=[_toolset(tools, call)])

    async def run(prompt: str) -> float:
        began, first = time.perf_counter(), 0.0
        text: list[object] = []

        async def handle(context: object, stream: AsyncIterable[object]) -> None:
            nonlocal first
            async for event in stream:
                if isinstance(event, PartStartEvent | PartDeltaEvent):
                    text.append(event)
                    first = first or time.perf_counter() - began

        await agent.run(prompt, event_stream_handler=handle)
        return first

    async def open_turn() -> Turn:
        return run

    yield open_turn


async def _sizes() -> tuple[int, int]:
    """The bytes of the second request of a turn: ours, and the peer's with the same instructions and tools."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with ScriptedModel(respond) as endpoint:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "project").mkdir()
            async with (
                Host(settings=_settings(folder, endpoint.base_url)) as host,
                host.session(cwd=Path(folder) / "project") as session,
            ):
                await session.prompt("call")
                tools = session.available_tools
        request = endpoint.requests[1]
        result = next(iter(request.tool_results.values()))
        provider = OpenAIProvider(base_url=endpoint.base_url, api_key="none")

        def call(path: str = "") -> str:
            return result

        toolset = _toolset(tools, call)
        model = OpenAIChatModel("gpt-5", provider=provider)
        await Agent(model, instructions=request.instructions, toolsets=[toolset]).run("call")
        return len(request.raw), len(endpoint.requests[3].raw)


def _toolset(tools: Sequence[CatalogTool], call: Callable[..., str]) -> "FunctionToolset[object]":
    """The tools of a session, for pydantic-ai. All of them call the same function."""
    from pydantic_ai.tools import Tool
    from pydantic_ai.toolsets import FunctionToolset

    toolset: FunctionToolset[object] = FunctionToolset()
    for tool in tools:
        schema: Any = msgspec.json.decode(tool.definition.input_schema)
        toolset.add_tool(Tool.from_schema(call, tool.model_name, tool.definition.description, schema))
    return toolset
