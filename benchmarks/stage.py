"""The browser tools against the npm packages @playwright/mcp and chrome-devtools-mcp: the same pages, the same Chromium."""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.result import Result
from holdfast.builtin.stage.find_browser import find_browser
from tests.stage.site import Site, run_site

ROOT = Path(__file__).resolve().parent.parent
NODE_BIN = ROOT / "peers" / "node_modules" / ".bin"
# As root, a browser that is not confined would give itself a higher priority than other users' browsers have.
_WITHOUT_PRIORITY = (
    ("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice") if os.geteuid() == 0 else ()
)
CALLS = 40
STARTS = 5
STAGES = 20
SMALL, LARGE = 1_000, 100_000
PAGE = """<title>Shop</title><nav><a href=/a>Home</a> <a href=/b>Offers</a> <a href=/c>Basket</a></nav><main><h1>Tea</h1>
<form aria-label=Search><label>Search <input name=q></label><button type=button onclick="out.textContent='Found '+q.value">Find</button></form>
<p id=out></p><table><tr><th>Name<th>Price<th>Stock</tr>{rows}</table><label><input type=checkbox> Gift</label>
<button type=button onclick="out.textContent='Ordered'">Order</button></main>
<script>const q = document.querySelector('input')</script>"""

ROWS = "".join(f"<tr><td>Tea {n}<td>{n}.50<td>{n * 3}</tr>" for n in range(20))


@dataclass(frozen=True)
class Peer:
    """How a server is started, and what its tools are called."""

    name: str
    command: list[str]
    open: Callable[[str], list[tuple[str, dict[str, Any]]]]
    snapshot: tuple[str, dict[str, Any]]
    fill: Callable[[str, str], tuple[str, dict[str, Any]]]
    click: Callable[[str], tuple[str, dict[str, Any]]]
    ref: Callable[[str, str], str]


class Server:
    """An MCP server on stdio."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._number = 0
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        self.request("initialize", params)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self._process.stdout
        while True:
            message = json.loads(self._process.stdout.readline())
            if message.get("id") == self._number and "method" not in message:
                return message["result"]

    def memory(self) -> float:
        """The memory of the server, its browser and all their processes in MB. Shared pages count once."""
        return sum(map(_memory, _with_descendants(self._process.pid))) / 1024

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """The text that a model reads."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        text = "\n".join(block.get("text", "") for block in result["content"])
        assert not result.get("isError"), text
        return text

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


@contextmanager
def start(peer: Peer) -> Iterator[Server]:
    process = subprocess.Popen(
        [*_WITHOUT_PRIORITY, *peer.command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/tmp",
    )
    try:
        yield Server(process)
    finally:
        assert process.stdin
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ours() -> Peer:
    def ref(page: str, text: str) -> str:
        found = re.findall(rf"\[(\w+)\] \w+(?:\([^)]*\))? {text}", page)
        return found[-1]

    return Peer(
        "holdfast",
        [sys.executable, "-P", "-m", "holdfast", "builtin", "stage"],
        lambda url: [("open", {"url": url})],
        ("snapshot", {}),
        lambda ref, value: ("fill", {"ref": ref, "value": value}),
        lambda ref: ("click", {"ref": ref}),
        ref,
    )


def playwright(program: str) -> Peer:
    def ref(page: str, text: str) -> str:
        return re.findall(rf'"{text}"[^\n]*?\[ref=(\w+)\]', page)[-1]

    flags = ["--headless", "--isolated", "--executable-path", program]
    return Peer(
        "@playwright/mcp",
        [str(NODE_BIN / "playwright-mcp"), *flags, *(["--no-sandbox"] if os.geteuid() == 0 else [])],
        lambda url: [("browser_navigate", {"url": url}), ("browser_snapshot", {})],
        ("browser_snapshot", {}),
        lambda ref, value: ("browser_type", {"element": "field", "target": ref, "ref": ref, "text": value}),
        lambda ref: ("browser_click", {"element": "button", "target": ref, "ref": ref}),
        ref,
    )


def devtools(program: str) -> Peer:
    def ref(page: str, text: str) -> str:
        return re.findall(rf'uid=(\w+) (?:textbox|button) "{text} *"', page)[-1]

    flags = ["--headless", "--isolated", "--executablePath", program, "--no-usage-statistics"]
    page = {"pageId": 1}
    root = ["--chromeArg=--no-sandbox"] if os.geteuid() == 0 else []
    return Peer(
        "chrome-devtools-mcp",
        [str(NODE_BIN / "chrome-devtools-mcp"), *flags, *root],
        lambda url: [("navigate_page", {**page, "type": "url", "url": url}), ("take_snapshot", page)],
        ("take_snapshot", page),
        # Our answers say what changed. Its answers do so with a snapshot.
        lambda ref, value: ("fill", {**page, "uid": ref, "value": value, "includeSnapshot": True}),
        lambda ref: ("click", {**page, "uid": ref, "includeSnapshot": True}),
        ref,
    )


@dataclass(frozen=True)
class Figures:
    """What was measured of one server."""

    name: str
    manifest: float
    snapshot: float
    table: float
    task: float
    calls_per_second: float


def measure(peer: Peer, site: Site) -> Figures:
    url = site.page("/shop", PAGE.format(rows=ROWS))
    many = "".join(f"<tr><td>Tea {n}<td>{n}.50<td>{n * 3}</tr>" for n in range(1000))
    large = site.page("/large", PAGE.format(rows=many))
    with start(peer) as server:
        manifest = tokens(json.dumps(server.request("tools/list", {})["tools"]))
        task = tokens("".join(server.call(tool, arguments) for tool, arguments in peer.open(url)))
        page = server.call(*peer.snapshot)
        snapshot = tokens(page)
        for value in ("green", "black", "white", "red"):  # ten steps: search four times, order, look
            task += tokens(server.call(*peer.fill(peer.ref(page, "Search"), value)))
            task += tokens(server.call(*peer.click(peer.ref(page, "Find"))))
        task += tokens(server.call(*peer.click(peer.ref(page, "Order"))))
        task += tokens(server.call(*peer.snapshot))
        begin = time.perf_counter()
        for _ in range(CALLS):
            server.call(*peer.snapshot)
        rate = CALLS / (time.perf_counter() - begin)
        table = tokens("".join(server.call(tool, arguments) for tool, arguments in peer.open(large)))
    return Figures(peer.name, manifest, snapshot, table, task, rate)


def measure_starts(peers: list[Peer], site: Site) -> list[float]:
    """Seconds from the first call to the first snapshot, of each server: the median of starts that alternate."""
    url = site.page("/first", PAGE.format(rows=ROWS))
    times: list[list[float]] = [[] for _ in peers]
    for _ in range(STARTS):
        for number, peer in enumerate(peers):
            with start(peer) as server:
                server.request("tools/list", {})
                begin = time.perf_counter()
                for tool, arguments in peer.open(url):
                    server.call(tool, arguments)
                times[number].append(time.perf_counter() - begin)
    return [statistics.median(taken) for taken in times]


def measure_growth(site: Site) -> tuple[float, float]:
    """Microseconds per element for a snapshot of a small and of a large page: the 95th percentile."""
    figures: list[float] = []
    with start(ours()) as server:
        for count, repeats in ((SMALL, 40), (LARGE, 20)):
            url = site.page(f"/flat{count}", "".join(f"<p>Item {n}</p>" for n in range(count)))
            server.call("open", {"url": url})
            times: list[float] = []
            for _ in range(repeats):
                begin = time.perf_counter()
                server.call("snapshot", {})
                times.append(time.perf_counter() - begin)
            figures.append(sorted(times)[-1 - repeats // 20] / count * 1e6)
            server.call("close", {})
    return figures[0], figures[1]


def measure_memory(
    peer: Peer, site: Site, open_another: Callable[[str, int], tuple[str, dict[str, Any]]]
) -> float:
    """The memory with twenty pages that share nothing."""
    url = site.page("/twenty", PAGE.format(rows="<tr><td>Tea<td>1<td>2</tr>" * 50))
    with start(peer) as server:
        for number in range(STAGES):
            server.call(*open_another(url, number))
        return server.memory()


def _with_descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError):
                parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return list(found)


def _memory(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return int(re.findall(r"^Pss: +(\d+)", text, re.MULTILINE)[0])


def tokens(text: str) -> int:
    """An estimate: a token has four bytes."""
    return len(text.encode()) // 4


def results() -> list[Result]:
    program = find_browser()
    if program is None or not (NODE_BIN / "playwright-mcp").exists():
        return []
    with run_site() as site:
        others = [playwright(program), devtools(program)]
        own = measure(ours(), site)
        peers = [measure(peer, site) for peer in others]
        first, *first_of_peers = measure_starts([ours(), *others], site)
        fastest = min(range(len(others)), key=lambda number: first_of_peers[number])
        small, large = measure_growth(site)
        own_memory = measure_memory(ours(), site, lambda url, number: ("open", {"url": url, "budget": 200}))
        peer_memory = measure_memory(
            devtools(program),
            site,
            lambda url, number: ("new_page", {"url": url, "isolatedContext": f"c{number}"}),
        )
    return [
        _row("stage.manifest.tokens", own, peers, lambda figures: figures.manifest, "tokens", "<= 0.6"),
        Result(
            name="stage.first_snapshot",
            ours=first,
            peer=first_of_peers[fastest],
            peer_name=others[fastest].name,
            unit="s",
            goal="<= 0.8",
        ),
        _row("stage.snapshot.tokens", own, peers, lambda figures: figures.snapshot, "tokens", "<= 0.5"),
        _row("stage.table.tokens", own, peers, lambda figures: figures.table, "tokens", "<= 0.5"),
        _row("stage.task.tokens", own, peers, lambda figures: figures.task, "tokens", "<= 0.4"),
        _row("stage.calls_per_s", own, peers, lambda figures: figures.calls_per_second, "calls/s", ">= 2"),
        Result(
            name="stage.snapshot.flat",
            ours=large,
            peer=small,
            peer_name=f"{SMALL} elements",
            unit=f"µs/element of {LARGE}",
            goal="<= 1.2",
        ),
        Result(
            name="stage.memory20",
            ours=own_memory,
            peer=peer_memory,
            peer_name="chrome-devtools-mcp",
            unit="MB",
        ),
    ]


def _row(
    name: str, own: Figures, peers: list[Figures], figure: Callable[[Figures], float], unit: str, goal: str
) -> Result:
    choose = max if goal.startswith(">") else min
    best = choose(peers, key=figure)
    return Result(name=name, ours=figure(own), peer=figure(best), peer_name=best.name, unit=unit, goal=goal)
