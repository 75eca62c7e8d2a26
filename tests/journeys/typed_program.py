"""A program that uses every name of the Python API. `test_types.py` checks it as a user's program, with a strict type checker."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

import holdfast
from holdfast import (
    Agent,
    CatalogTool,
    Command,
    Door,
    DoorCapabilities,
    HoldfastError,
    Host,
    JsonObject,
    Mode,
    OpenOptions,
    PermissionQuestion,
    Refusal,
    ServerConfig,
    ServerConfigs,
    Session,
    SessionContext,
    SessionOptions,
    ToolResult,
    Trust,
    TurnContext,
    TurnResult,
    events,
)
from holdfast.toolkit import Toolbox

SERVERS = {"counter": {"command": sys.executable, "args": ["counter.py"], "env": {"LEVEL": "1"}}}
TYPED: ServerConfigs = {"web": {"url": "http://127.0.0.1:8000/mcp"}, "local": {"command": "counter"}}


COUNTER: ServerConfig = {"command": sys.executable, "args": ["counter.py"], "lazy": True, "timeout": 5.0}
BOX = Toolbox("local")
MIXED: ServerConfigs = {
    "counter": COUNTER,
    "box": BOX,
    "made": lambda: Toolbox("made"),
    "more": {"toolbox": BOX},
}


def ask(question: PermissionQuestion) -> bool:
    """Allow the calls of one tool."""
    return question.call.tool == "add"


async def elicit(params: JsonObject) -> dict[str, str] | None:
    """Decline some questions."""
    return {"name": "Ann"} if params.get("message") else None


def see(stored: events.StoredEvent) -> None:
    """Print every event."""
    print(stored.seq)


class Number(BaseModel):
    """The arguments of a tool."""

    number: int


class Echo(Agent):
    """Calls one tool for each prompt."""

    @property
    def commands(self) -> tuple[Command, ...]:
        return (Command(name="again", description="Call it again."),)

    async def run_turn(self, blocks: Sequence[JsonObject], turn: TurnContext) -> events.StopReason:
        tools: tuple[CatalogTool, ...] = await turn.tools()
        result: ToolResult = await turn.call(tools[0].name, Number(number=len(blocks)))
        await turn.call(tools[0].name)
        await turn.reply(result.text)
        refusals: tuple[Refusal, ...] = turn.server_status().refusals
        await turn.think(f"{len(refusals)} servers are missing")
        return events.StopReason.END_TURN


async def watch(session: Session) -> list[str]:
    """Collect what happens."""
    seen: list[str] = []
    async for stored in session.subscribe(after=3):
        match stored.event:
            case events.ToolEnded(outcome=events.Outcome.FAILED, code=code):
                seen.append(f"{stored.at.isoformat()} {code}")
            case events.UnknownEvent(kind=kind):
                seen.append(kind)
            case event:
                seen.append(events.event_kind(event))
    return seen


async def use(session: Session, door: Door) -> None:
    """Use a session."""
    context: SessionContext = session.context
    attachment = session.attach(door)
    ended: TurnResult = await session.prompt([{"type": "text", "text": f"Hello from {context.session_id}"}])
    turn = session.prompt("and again")
    async for stored in turn:
        see(stored)
    print(turn.result.text, turn.result.ok)
    result = await session.call("counter.add", {"number": ended.last_seq}, timeout=5.0)
    if not result.ok:
        raise RuntimeError(f"{result.code}: {result.message}")
    for tool in await session.tools():
        print(tool.name, tool.model_name, tool.definition.description)
    print(attachment.detach(), DoorCapabilities(permission=True))


async def main(door: Door) -> None:
    """Open sessions in every way."""
    options: SessionOptions = {"cwd": Path.cwd(), "keep": False, "tags": ["nightly"], "permission": "ask"}
    async with Host(servers=SERVERS, agent=Echo()) as host:
        async with host.session(**options) as session:
            await use(session, door)
        async with host.session(
            cwd=".",
            workspace="shop",
            trust=Trust.SANDBOXED,
            servers=TYPED,
            only_these=True,
            tools=("counter.add", "files.*"),
            user_id="ann",
            title="Everything",
            tags=("nightly",),
            permission=Mode.READ_ONLY,
            keep=True,
            ask=ask,
            elicit=elicit,
            on_event=see,
        ) as session:
            watching = asyncio.create_task(watch(session))
        print(await watching)
        async with host.session(servers=MIXED) as session:
            print((await session.call("box.add", {"number": 1})).raise_for_error().images)
        async with host.run(servers=SERVERS, trust="direct"), host.run(isolate=True, permission="read-only"):
            result = await host.call("counter.add")
            print(result.data, holdfast.__version__)
        try:
            session = await host.reopen("sess_0123456789abcdef", OpenOptions(cwd=Path.cwd(), mode=None))
            await session.close()
            async with await host.reopen("sess_0123456789abcdef", servers=TYPED, user_id="ann") as session:
                print(session.context)
        except HoldfastError as error:
            print(error.code.name, error.code == "UNKNOWN_SESSION", error.message, error.details)
