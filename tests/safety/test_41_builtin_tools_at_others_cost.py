"""Attack 41: built-in tools that are made to use CPU time, memory, threads or descriptors at other sessions' cost."""

import asyncio
import fnmatch
import inspect
import os
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import pytest

from holdfast.builtin.files import disk, search
from holdfast.builtin.files.edit import Replacement
from holdfast.builtin.files.lines import line_numbers
from holdfast.builtin.files.open_path import open_path
from holdfast.builtin.files.roots import Roots
from holdfast.builtin.files.search import Search
from holdfast.builtin.tasks.store import TaskStore
from holdfast.model.errors import HoldfastError
from holdfast.model.worker_threads import WorkerThreads, run_in_slices
from holdfast.session.session import Session
from tests.builtin.support import Files
from tests.connect.conftest import HostFactory, make_host
from tests.cost import count_calls, least_cpu_seconds

__all__ = ["make_host"]

pytestmark = pytest.mark.anyio

FILES = 1200
ATTACKS = 60
ATTEMPTS = 3  # a stall caused by another process is not repeated; one caused by Holdfast is
MAX_STALL = 0.05


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose search takes a while."""
    tree = tmp_path_factory.mktemp("tree")
    for number in range(FILES):
        (tree / f"{number}.txt").write_text("some text\n" * 20)
    return tree


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The folder of another session."""
    small = tmp_path / "small"
    small.mkdir()
    (small / "file").write_text("needle\n")
    return small


# Threads


async def finished_before(neighbour: Awaitable[Any], attacks: Sequence[asyncio.Future[Any]]) -> int:
    """How many of the attacks were finished when the other session's call was."""
    await neighbour
    finished = sum(attack.done() for attack in attacks)
    for attack in attacks:
        attack.cancel()
    await asyncio.gather(*attacks, return_exceptions=True)
    return finished


@pytest.mark.promise("SES-12")
async def test_searches_of_one_session_do_not_fill_the_threads_of_another(tree: Path, small: Path):
    attacker, neighbour = Files(tree), Files(small)
    attacks = [asyncio.ensure_future(attacker.code("find", text="missing")) for _ in range(ATTACKS)]
    await asyncio.sleep(0)  # all of them have begun

    assert await finished_before(neighbour.call("find", text="needle"), attacks) <= 2
    assert await finished_before(neighbour.call("read", path="file"), []) == 0
    assert (await attacker.call("find", glob="1.txt"))["found"] == [{"path": "1.txt"}]


async def test_threads_that_all_sessions_share_are_filled(tree: Path, small: Path):
    """Control: whole searches in one pool, as in asyncio's own."""
    with ThreadPoolExecutor(4) as pool:
        loop = asyncio.get_running_loop()
        attacks = [loop.run_in_executor(pool, _exhaust, _search(tree)) for _ in range(12)]
        neighbour = loop.run_in_executor(pool, _exhaust, _search(small))

        assert await finished_before(neighbour, attacks) >= 12 - 4


# Cancelling


async def test_cancelled_search_stops(tree: Path):
    threads, running = (
        WorkerThreads("test", threads=1),
        Search(glob="**", text="", ignore_case=False, limit=1000),
    )
    steps = running.run(Roots((str(tree.resolve()),)), ".")
    calling = asyncio.create_task(run_in_slices(threads, _slowly(steps), owner="a"))
    await _until(lambda: running.checked_files > 0)

    calling.cancel()
    await asyncio.wait([calling])
    await threads.run(int, owner="a")  # the slice that was running has ended

    assert (calling.cancelled(), inspect.getgeneratorstate(steps)) == (True, inspect.GEN_CLOSED)
    assert running.checked_files < FILES
    assert _open_below(tree) == []


async def test_call_that_times_out_stops_its_search(
    tree: Path, make_host: HostFactory, monkeypatch: pytest.MonkeyPatch
):
    searches: list[Search] = []

    def never_ends(self: Search, roots: Roots, path: str) -> Generator[None, None, str]:
        searches.append(self)
        while True:
            yield

    async with make_host({}) as host, host.session(cwd=tree) as session:
        with monkeypatch.context() as patch:
            patch.setattr(Search, "run", never_ends)
            result = await session.call("files.find", {"text": "missing"}, timeout=0.1)
        again = await session.call("files.find", {"glob": "1.txt"})  # waits for the session's other searches

    assert (result.code, len(searches)) == ("TIMEOUT", 1)
    assert again.data["found"] == [{"path": "1.txt"}]


async def test_cancelled_search_in_a_thread_of_its_own_goes_on(tree: Path):
    """Control."""
    running = Search(glob="**", text="", ignore_case=False, limit=1000)
    steps = running.run(Roots((str(tree.resolve()),)), ".")
    with ThreadPoolExecutor(1) as pool:
        calling = asyncio.get_running_loop().run_in_executor(pool, _exhaust, steps)
        await _until(lambda: running.checked_files > 0)
        calling.cancel()

    assert running.checked_files > 1000


# The event loop


async def stall_during(work: Awaitable[Any]) -> float:
    """The 99th percentile of how late the event loop runs a callback during this work."""
    late: list[float] = []
    task = asyncio.ensure_future(work)
    while not task.done():
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append(time.perf_counter() - began)
    await task
    return statistics.quantiles(late, n=100)[98] if len(late) > 1 else late[0]


async def extra_stall(attack: Callable[[], Awaitable[Any]]) -> float:
    """The stall during the attack, less the stall of an idle event loop in the same run."""
    calm = await stall_during(asyncio.sleep(0.2))
    return await stall_during(attack()) - calm


@pytest.mark.promise("SES-12")
async def test_edits_and_reads_of_large_files_do_not_stall_the_event_loop(tmp_path: Path):
    (tmp_path / "lines").write_text("ab\n" * 300_000)
    (tmp_path / "letters").write_text("x" * 900_000)
    files = Files(tmp_path)

    async def attack() -> None:
        codes = await asyncio.gather(
            *(files.code("edit", path="lines", old="ab", new="c") for _ in range(5)),
            *(files.code("edit", path="lines", old="ab c", new="c") for _ in range(5)),
            *(files.code("edit", path="letters", old="x", new="y" * 4000, all=True) for _ in range(5)),
            *(files.code("read", path="lines", first_line=200_000, lines=10_000) for _ in range(5)),
        )
        assert sorted(set(codes)) == ["FILE_TOO_LARGE", "NO_MATCH", "OK", "SEVERAL_MATCHES"]

    stalls: list[float] = []
    while len(stalls) < ATTEMPTS and (not stalls or stalls[-1] > MAX_STALL):
        stalls.append(await extra_stall(attack))

    assert stalls[-1] < MAX_STALL, stalls


async def test_counting_lines_from_the_beginning_for_every_match_stalls_the_event_loop():
    """Control: the old way, on the event loop, in a much smaller text."""
    text = "ab\n" * 12_000

    async def attack() -> None:
        await asyncio.sleep(0.005)
        assert _line_numbers_from_the_beginning(text, "ab")[:10] == line_numbers(text, "ab", limit=10)

    assert await extra_stall(attack) > MAX_STALL


# Long paths, and folders with many names


def test_long_path_outside_of_the_roots_takes_linear_time(tmp_path: Path):
    root = tmp_path.resolve() / "root"
    root.mkdir()
    (root / "link").symlink_to("/" + "a/" * 2040)
    (tmp_path / "alias").symlink_to(root)
    roots = Roots((str(root),))

    def attack() -> None:
        for path in ("/a" * 2047, "/" + "tmp/../" * 580, str(root / "link")):
            with pytest.raises(HoldfastError, match="outside"), open_path(roots, path):
                pass

    assert count_calls(attack) < count_calls(lambda: _resolve_every_parent("/a" * 400)), "control"
    with open_path(roots, f"{tmp_path}/alias/file") as handle:
        assert handle.real_path == str(root / "file")


def test_path_that_goes_up_again_and_again_is_refused_soon(tmp_path: Path):
    tmp_path.joinpath(*"d" * 900).mkdir(parents=True)
    roots = Roots((str(tmp_path.resolve()),))

    def go(path: str) -> None:
        with pytest.raises(HoldfastError, match="too many components"), open_path(roots, path):
            pass

    with pytest.MonkeyPatch.context() as patch:
        attack = count_calls(lambda: go("d/" * 900 + "../d/" * 400))
        patch.setattr("holdfast.builtin.files.open_path._MAX_COMPONENTS", 12_000)
        control = count_calls(lambda: go("d/" * 900 + "../d/" * 400))
    assert attack * 2 < control


def test_names_are_sorted_a_few_at_a_time():
    prefix = "\U0001f600" * 60
    names = [f"{prefix}{number * 7919 % 50_000:06d}" for number in range(50_000)]
    parts = search._SortedNames()  # pyright: ignore[reportPrivateUsage]

    sort_at_once = least_cpu_seconds(lambda: sorted(names))
    # The collector, or a page that is not there yet, may delay a few of so many steps.
    slow_adds = sum(least_cpu_seconds(partial(parts.add, name), 1) * 4 > sort_at_once for name in names)
    in_order = parts.in_order()
    slow_steps = sum(least_cpu_seconds(lambda: next(in_order), 1) * 4 > sort_at_once for _ in range(5000))

    assert (slow_adds < 5, slow_steps < 5) == (True, True)
    assert list(in_order) == sorted(names)[5000:]


async def test_listing_keeps_only_the_names_that_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(disk, "MAX_LISTED", 100)
    for number in range(600):
        (tmp_path / f"{number * 7919 % 600:06d}").touch()
    steps: Any = disk.list_folder(Roots((str(tmp_path.resolve()),)), ".")
    most = max(len(steps.gi_frame.f_locals["first"]) for _ in steps)

    listed = await Files(tmp_path).call("list")

    assert (most, len(list(tmp_path.iterdir()))) == (100, 600), "the second one is the control"
    assert [entry["name"] for entry in listed["entries"]] == [f"{number:06d}" for number in range(100)]


# Neighbours


async def latency_of_calls(session: Session, during: Sequence[asyncio.Future[Any]]) -> float:
    """The 90th percentile of the time that a session's calls take, while all of this work is running."""
    times: list[float] = []
    for _ in range(30):
        began = time.perf_counter()
        result = await session.call("files.read", {"path": "file"})
        times.append(time.perf_counter() - began)
        assert result.data["text"] == "needle\n"
    assert not during or not all(work.done() for work in during), "the attack was over too early"
    return statistics.quantiles(times, n=10)[-1]


async def test_calls_of_another_session_are_not_slowed_down(tree: Path, small: Path, make_host: HostFactory):
    extra: list[float] = []
    async with (
        make_host({}) as host,
        host.session(cwd=tree) as attacker,
        host.session(cwd=small) as neighbour,
    ):
        while len(extra) < ATTEMPTS and (not extra or extra[-1] > MAX_STALL):
            calm = await latency_of_calls(neighbour, [])
            attacks = [
                asyncio.ensure_future(attacker.call("files.find", {"text": "missing", "ignore_case": True}))
                for _ in range(ATTACKS)
            ]
            extra.append(await latency_of_calls(neighbour, attacks) - calm)
            for attack in attacks:
                attack.cancel()
            await asyncio.gather(*attacks, return_exceptions=True)

    assert extra[-1] < MAX_STALL, extra


# Memory


def test_result_of_an_edit_is_not_made_if_it_is_too_large():
    text, replacement = "x" * 20_000, Replacement(old="x", new="y" * 2000, every=True)

    def apply() -> None:
        with pytest.raises(HoldfastError, match="would have 40000000 bytes"):
            replacement.apply("file", text)

    assert _peak_bytes(apply) < 1_000_000
    assert _peak_bytes(lambda: text.replace("x", "y" * 2000)) >= 40_000_000, "control"


async def test_answers_are_bounded(tmp_path: Path):
    files = Files(tmp_path)
    deep = tmp_path.joinpath(*["f" * 250] * 10)
    deep.mkdir(parents=True)
    for number in range(200):
        (deep / f"{number}").touch()

    written = await files.call("write", path="new", text="x\n" * 200_000)
    changed = await files.call("write", path="new", text="y\n" * 200_000)
    found = await files.call("find", limit=1000)

    assert [answer.get("truncated") for answer in (written, changed)] == [
        "The change is too long to show."
    ] * 2
    assert len(str(found)) < 300_000
    assert found["truncated"].startswith("Only the first ")


async def test_huge_folders_are_not_read_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(disk, "_MAX_ENTRIES", 100)
    monkeypatch.setattr(search, "_MAX_ENTRIES", 100)
    for number in range(150):
        (tmp_path / f"{number}").mkdir()
    files = Files(tmp_path)

    listed = await files.call("list")
    found = await files.call("find")

    assert listed["truncated"] == "The folder has more than 100 entries; 100 are listed."
    assert found["truncated"] == "Stopped after 0 files. Search in a subfolder."
    monkeypatch.undo()  # control: within the limit
    assert ("truncated" in await files.call("list"), "truncated" in await files.call("find")) == (
        False,
        False,
    )


async def test_globs_are_not_kept(small: Path):
    kept = fnmatch._compile_pattern.cache_info().currsize  # pyright: ignore
    for number in range(50):
        await Files(small).call("find", glob=f"*{number}*{os.urandom(8).hex()}")

    assert fnmatch._compile_pattern.cache_info().currsize == kept  # pyright: ignore
    fnmatch.fnmatchcase("file", os.urandom(8).hex())
    assert fnmatch._compile_pattern.cache_info().currsize == kept + 1, "control"  # pyright: ignore


def test_list_of_tasks_is_returned_in_parts(tmp_path: Path):
    store = TaskStore(lambda: tmp_path / "tasks.db")
    for number in range(30):
        store.add("blog", f"{number}", "x" * 20_000, "")

    first, following = store.list("blog", None)
    rest, end = store.list("blog", None, following)
    last, _ = store.list("blog", None, end)

    assert [task.number for task in (*first, *rest, *last)] == list(range(1, 31))
    assert max(sum(len(task.body) for task in part) for part in (first, rest, last)) <= 256 * 1024


# Descriptors


def test_deep_path_does_not_keep_its_folders_open(tmp_path: Path):
    roots, path = Roots((str(tmp_path.resolve()),)), "a/" * 400 + "../" * 5 + "file"

    with open_path(roots, path, make_parents=True):
        open_now = _open_below(tmp_path)
    naive = [os.open(tmp_path, os.O_RDONLY)]
    naive += [os.open("a", os.O_RDONLY, dir_fd=naive[-1]) for _ in range(1)]
    for _ in range(20):
        naive.append(os.open("a", os.O_RDONLY, dir_fd=naive[-1]))
    open_naive = _open_below(tmp_path)
    for descriptor in naive:
        os.close(descriptor)

    assert len(open_now) == 1
    assert len(open_naive) == 22, "control"


async def test_deep_tree_does_not_keep_its_folders_open(tmp_path: Path):
    tmp_path.joinpath(*"a" * 60).mkdir(parents=True)
    running = Search(glob="**", text="", ignore_case=False, limit=1000)

    most = 0
    for _ in _every_pause(running, tmp_path):
        most = max(most, len(_open_below(tmp_path)))

    assert most <= 4


def _search(folder: Path) -> Generator[None, None, str]:
    running = Search(glob="**", text="missing", ignore_case=False, limit=10)
    return running.run(Roots((str(folder.resolve()),)), ".")


def _every_pause(running: Search, folder: Path) -> Generator[None, None, str]:
    for number in range(60):
        folder.joinpath(*"a" * number, "file").touch()
    return running.run(Roots((str(folder.resolve()),)), ".")


def _exhaust(steps: Generator[None, None, str]) -> None:
    for _ in steps:
        pass


def _slowly(steps: Generator[None, None, str]) -> Generator[None, None, str]:
    """The same steps, with a pause after each: one search lasts several slices."""
    try:
        while True:
            next(steps)
            time.sleep(0.001)
            yield
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


def _open_below(folder: Path) -> list[str]:
    """The paths of this process's open descriptors in a folder."""
    found: list[str] = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        except OSError:  # it was closed after it was listed
            continue
        if path.startswith(str(folder.resolve())):
            found.append(path)
    return found


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


def _line_numbers_from_the_beginning(text: str, part: str) -> list[int]:
    numbers: list[int] = []
    at = text.find(part)
    while at >= 0:
        numbers.append(text.count("\n", 0, at) + 1)
        at = text.find(part, at + len(part))
    return numbers


def _resolve_every_parent(path: str) -> None:
    for parent in PurePath(path).parents:
        os.path.realpath(parent)


def _peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
