"""Attack 34: servers with thousands of tools, which they list again and again, at other sessions' cost."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.audit import Audit
from holdfast.connect.catalog import build_catalog, catalog_steps
from holdfast.host import approvals as approvals_module
from holdfast.host.approvals import Approvals
from holdfast.model.server import ServerSpec, Source, Stdio
from holdfast.resolve.approval_store import read_tool_pins
from holdfast.session import servers
from holdfast.store.memory import MemoryStore
from holdfast.store.store import Tx
from holdfast.wire.loop_throttle import LoopThrottle, run_steps, run_steps_in_slices
from holdfast.wire.mcp.tools import Tool
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]
pytestmark = pytest.mark.anyio

MANY = [Tool(name=f"t{number}") for number in range(300)]


def server(folder: Path, name: str, tools: int) -> dict[str, Any]:
    file = folder / f"{name}.json"
    file.write_text(json.dumps([{"name": f"t{number}", "inputSchema": {}} for number in range(tools)]))
    script = str(Path(__file__).with_name("changing_tools_server.py"))
    return {"command": sys.executable, "args": ["-I", "-S", script, str(file)]}


def spec_of(source: Source) -> ServerSpec:
    return ServerSpec(name="t", source=source, transport=Stdio(command="x"))


@pytest.mark.parametrize("limit", [50, 1000])
async def test_servers_of_a_session_can_have_only_so_many_tools_together(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
):
    monkeypatch.setattr(servers, "MAX_TOOLS_PER_SESSION", limit)
    entries = {name: server(tmp_path, name, 20) for name in ("a", "b", "c")}
    async with make_host({}) as host, host.session(cwd=tmp_path, servers=entries) as session:
        offered = Counter(tool.server.name for tool in await session.tools())
        reasons = [refusal.reason for refusal in session.refusals]

        # One that grows over the limit keeps its last list, which still counts.
        (kept, *_) = (name for name in entries if name in offered)
        server(tmp_path, kept, limit)
        session.refresh_tools(kept)
        after = Counter(tool.server.name for tool in await session.tools())

    assert offered["files"] > 0
    if limit == 1000:  # the control
        assert [offered[name] for name in entries] == [20, 20, 20]
        return
    assert sorted(offered[name] for name in entries) == [0, 20, 20]
    (reason,) = reasons
    assert reason.startswith("It has 20 tools, and the other servers of this session have 40. Together,")
    assert after == offered


async def test_new_list_of_one_server_costs_nothing_for_the_others(make_host: HostFactory, tmp_path: Path):
    entries = {"big": server(tmp_path, "big", 200), "bell": server(tmp_path, "bell", 1)}
    async with make_host({}) as host, host.session(cwd=tmp_path, servers=entries) as session:
        before = {tool.name: tool for tool in await session.tools()}
        server(tmp_path, "bell", 2)
        session.refresh_tools("bell")
        after = {tool.name: tool for tool in await session.tools()}
        listed = [(tool.server, [tool.definition]) for tool in before.values() if tool.server.name == "big"]
        rebuilt = build_catalog(listed).tools

    assert set(after) - set(before) == {"bell.t1"}
    assert all(after[name] is tool for name, tool in before.items() if tool.server.name != "bell")
    assert all(before[tool.name] is not tool for tool in rebuilt), "the control"


@pytest.mark.parametrize("all_at_once", [False, True])
async def test_other_tasks_run_while_the_tools_are_named(all_at_once: bool):
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def steps():
        return catalog_steps((spec_of(Source.CLIENT), MANY * 10) for _ in range(3))

    other = asyncio.create_task(count_turns())
    await asyncio.sleep(0)
    began, throttle = turns, LoopThrottle("eve")
    if all_at_once:  # the control
        run_steps(steps())
    else:
        await asyncio.gather(*(run_steps_in_slices(steps(), throttle) for _ in range(2)))
    between = turns - began
    other.cancel()

    assert (between > 10) is not all_at_once
    assert all_at_once or throttle.free_at > 0, "the session is charged"


@pytest.mark.parametrize(
    ("source", "rows"),
    [(Source.CLIENT, {"client": 1, "pins": 1}), (Source.OPERATOR, {"pins": 1, "definition": 300})],
)
async def test_pins_of_all_tools_are_one_row_and_no_transaction_writes_many(
    source: Source, rows: dict[str, int]
):
    store, spec = MemoryStore(), spec_of(source)
    approvals = Approvals(store, Audit(store), pin_tools="all")
    written = _count_rows_of_writes(store)

    first = await approvals.screen(spec, MANY, user_id="ann")
    pins = await store.read(lambda tx: read_tool_pins(tx, spec, "ann"))
    again = await approvals.screen(spec, [*MANY[1:], Tool(name="t0", description="changed")], user_id="ann")
    stored = await store.read(lambda tx: tx.approvals())

    assert {name: [*digests] for name, digests in pins.all.items()} == {
        name: [digest] for name, digest in first.fingerprints.items()
    }
    assert (len(first.offered), [tool.name for tool in again.withheld]) == (300, ["t0"])
    assert Counter(json.loads(row.key)[0] for row in stored) == rows
    assert max(written) <= 100


async def test_control_without_batches_one_transaction_writes_them_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(approvals_module, "_MAX_ROWS", 1000)
    store = MemoryStore()
    written = _count_rows_of_writes(store)

    await Approvals(store, Audit(store), pin_tools="all").screen(
        spec_of(Source.OPERATOR), MANY, user_id="ann"
    )

    assert max(written) == 300


def _count_rows_of_writes(store: MemoryStore) -> list[int]:
    """From now on, how many approvals each transaction adds."""
    added: list[int] = []
    write = store.write

    async def counting(work: Callable[[Tx], Any], **options: Any) -> Any:
        def counted(tx: Tx) -> Any:
            before = len(tx.approvals())
            result = work(tx)
            added.append(len(tx.approvals()) - before)
            return result

        return await write(counted, **options)

    store.write = counting
    return added
