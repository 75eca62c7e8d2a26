"""No two kinds of work share an executor: blocking work runs in `WorkerThreads` of its own."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"
# They use asyncio's default executor, or one that the process waits for at its end.
BANNED = {"to_thread", "run_in_executor", "getaddrinfo", "getnameinfo", "ThreadPoolExecutor", "run_sync"}
ALLOWED = {("model/name_resolver.py", "getaddrinfo")}  # it is called in a thread of its own


def banned_names(source: str) -> set[str]:
    nodes = [*ast.walk(ast.parse(source))]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return (used | imported) & BANNED


@pytest.mark.slow
def test_no_module_uses_a_shared_executor():
    found = {
        (path.relative_to(SOURCE).as_posix(), name)
        for path in SOURCE.rglob("*.py")
        for name in banned_names(path.read_text(encoding="utf-8"))
    }

    assert found == ALLOWED


@pytest.mark.parametrize(
    "line",
    [
        "await asyncio.to_thread(work)",
        "await asyncio.get_running_loop().run_in_executor(None, work)",
        "await loop.getaddrinfo('example.org', 80)",
        "from asyncio import to_thread",
        "from anyio.to_thread import run_sync",
        "import concurrent.futures; concurrent.futures.ThreadPoolExecutor()",
    ],
)
def test_use_of_a_shared_executor_is_detected(line: str):
    assert banned_names(f"async def work(loop):\n    {line}\n") != set()
