"""`holdfast up --demo`: shows what a direct and a sandboxed client get, on a gateway in a temporary folder."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast import log_output, settings
from holdfast.audit.verify_file import verify_file
from holdfast.cli.command_name import command_name
from holdfast.cli.find_session import short_id
from holdfast.cli.output import print_json, print_line
from holdfast.cli.up.demo_client import Answer, DemoClient
from holdfast.cli.up.serve import url_of
from holdfast.gateway.client_tokens import TOKENS_FOLDER, Tokens
from holdfast.gateway.credential import Credential
from holdfast.gateway.open_gateway import open_gateway
from holdfast.gateway.options import GatewayOptions
from holdfast.host.data_folder import DATABASE_FILE
from holdfast.host.host import Host
from holdfast.model.permission import Mode
from holdfast.model.plural import count
from holdfast.model.trust import Trust
from holdfast.toolkit.http_server import bind, serve_app

_SERVER = {
    "command": sys.executable,
    "args": ["-m", "holdfast.cli.up.demo_server"],
    "trust_level": "sandboxed",  # sandboxed sessions may use the server, too
}
_SECRET = "the diary of the user"
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the demonstration: what was done, and what each client got."""

    title: str
    direct: str
    sandboxed: str
    ok: bool
    """Whether this is the expected result."""


def run_demo(*, as_json: bool) -> None:
    """Run the demonstration, and print its steps. Exit with 1 if a step has an unexpected result."""
    log_output.configure("error", "auto")
    with TemporaryDirectory(prefix="holdfast-demo-") as folder:
        steps = asyncio.run(_run(Path(folder), as_json=as_json))
    is_good = all(step.ok for step in steps)
    if not as_json:
        print_line()
    if is_good and not as_json:
        print_line(f"To serve your own servers: {command_name()} up")
    elif not is_good:
        print_line(
            "A step did not have the expected result. `holdfast doctor` checks the installation.", err=True
        )
        sys.exit(1)


async def _run(folder: Path, *, as_json: bool) -> list[Step]:
    project, data = folder / "project", folder / "data"
    project.mkdir()
    (folder / "diary.txt").write_text(_SECRET)
    (project / "readme.txt").write_text("hello from the project")
    loaded = settings.load(
        environ={
            **os.environ,
            "HOLDFAST_DATA_DIR": str(data),
            "HOLDFAST_SERVERS_USER_FILE": str(data / "mcp.json"),
        }
    )
    steps: list[Step] = []

    def show(step: Step) -> None:
        steps.append(step)
        _print_json_step(step) if as_json else _print_step(len(steps), step)

    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(Host(settings=loaded, servers={"demo": _SERVER}))
        gateway = await stack.enter_async_context(open_gateway(host, GatewayOptions(cwd=project)))
        sock = bind("127.0.0.1", 0)
        await stack.enter_async_context(serve_app(gateway.asgi, sock))
        url, tokens = url_of("127.0.0.1", sock), Tokens(data / TOKENS_FOLDER)
        if not as_json:
            print_line(
                f"A gateway at {url}, and two MCP clients with a token each: one direct, one sandboxed."
            )
        direct = await _client(url, tokens, Trust.DIRECT)
        sandboxed = await _client(url, tokens, Trust.SANDBOXED)
        show(await _identity(direct, sandboxed))
        show(await _isolation(direct, sandboxed))
        show(await _confinement(direct, sandboxed, folder / "diary.txt"))
        show(await _lost_state(direct, sandboxed))
    show(_verify_audit(data / DATABASE_FILE))
    return steps


async def _client(url: str, tokens: Tokens, trust: Trust) -> DemoClient:
    token, _ = tokens.create(Credential(id="", name=f"{trust.value} client", trust=trust, mode=Mode.AUTO))
    client = DemoClient(url, token, f"{trust.value}-client")
    await client.connect()
    return client


async def _identity(direct: DemoClient, sandboxed: DemoClient) -> Step:
    first, second = await direct.call("who_calls"), await sandboxed.call("who_calls")
    return Step(
        title="Each tool knows its caller, in a way that no client or model can forge",
        direct=_describe_caller(first),
        sandboxed=_describe_caller(second),
        ok=[answer.fields.get("trust") for answer in (first, second)] == ["direct", "sandboxed"],
    )


async def _isolation(direct: DemoClient, sandboxed: DemoClient) -> Step:
    for _ in range(2):
        await direct.call("count")
    counts = [(await client.call("count")).fields.get("count") for client in (direct, sandboxed)]
    return Step(
        title="Each session has its own servers: one client called `count` three times, the other once",
        direct=f"count is {counts[0]}",
        sandboxed=f"count is {counts[1]}",
        ok=counts == [3, 1],
    )


async def _confinement(direct: DemoClient, sandboxed: DemoClient, outside: Path) -> Step:
    first = await direct.call("read", path=str(outside))
    second = await sandboxed.call("read", path=str(outside))
    return Step(
        title="Both ask the same server to read a file outside of the project",
        direct=f"reads {first.fields.get('result')!r}" if first.ok else first.error,
        sandboxed="reads it" if second.ok else second.error,
        ok=first.fields.get("result") == _SECRET and not second.ok,
    )


async def _lost_state(direct: DemoClient, sandboxed: DemoClient) -> Step:
    if process := (await direct.call("count")).fields.get("process"):
        with suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)
    notice = ""
    for _ in range(_TRIES):  # a call that reaches the process while it dies fails with CONNECTION_CLOSED
        answer = await direct.call("count")
        notice = next((text for text in answer.texts if "STATE_LOST" in text), "")
        if notice:
            break
    other = (await sandboxed.call("count")).fields.get("count")
    return Step(
        title="The direct client's server is killed. The next call starts it again, and says that its state is gone",
        direct=notice or "no notice",
        sandboxed=f"not affected: count is {other}",
        ok=bool(notice) and other == 2,
    )


def _verify_audit(store: Path) -> Step:
    verdict = verify_file(store)
    is_good = verdict is not None and verdict.is_intact
    text = (
        f"{count(verdict.seq, 'record')}, none changed or missing"
        if verdict is not None and is_good
        else "damaged"
    )
    return Step(
        title="Every call is in the audit, which can be verified", direct=text, sandboxed=text, ok=is_good
    )


def _describe_caller(answer: Answer) -> str:
    session, trust = str(answer.fields.get("session", "?")), answer.fields.get("trust", "?")
    return f"called by session {short_id(session)}…, trust {trust}"


def _print_step(number: int, step: Step) -> None:
    print_line()
    print_line(f"{number}. {step.title}.")
    if step.direct == step.sandboxed:
        print_line(f"     {step.direct}")
        return
    print_line(f"     direct:    {step.direct}")
    print_line(f"     sandboxed: {step.sandboxed}")


def _print_json_step(step: Step) -> None:
    report = {"step": step.title, "direct": step.direct, "sandboxed": step.sandboxed, "ok": step.ok}
    print_json(report)
