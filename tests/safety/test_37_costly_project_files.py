"""Attack 37: the file of an unapproved project costs the host more than linear time, or memory without bound."""

import importlib
import json
import pkgutil
import re
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import resolve
from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.limits import Limits
from holdfast.model.resolution import Stage
from holdfast.model.worker_threads import WorkerThreads
from holdfast.resolve.expand import Expander, ExpandError, referenced_variables
from holdfast.resolve.json_with_comments import decode_json_with_comments
from holdfast.resolve.program_imports import added_search_folders, import_candidates, loads_computed_names
from holdfast.resolve.script_languages import Language
from holdfast.resolve.server_names import skeleton, why_bad_name
from holdfast.wire.strict_json import StrictJsonError, check_json
from tests.connect.conftest import HostFactory, make_host
from tests.cost import least_cpu_seconds
from tests.safety.pattern_pieces import pieces

__all__ = ["make_host"]

SIZE = 60_000  # less than a project's file may have
SLOW_SIZE = 12_000
CALM_PATTERN = re.compile("a")
OLD_COMMENT = re.compile(rb'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
OLD_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
OLD_DIGITS = re.compile(rb"[0-9]{4301}")


def old_strip(text: bytes) -> None:
    OLD_COMMENT.sub(b" ", text)


def strip(text: bytes) -> None:
    with pytest.raises(StrictJsonError):
        decode_json_with_comments(text)


def old_find_references(text: bytes) -> None:
    OLD_REFERENCE.findall(text.decode())


def find_references(text: bytes) -> None:
    referenced_variables(text.decode())


def old_find_digits(text: bytes) -> None:
    OLD_DIGITS.search(text)


def check(text: bytes) -> None:
    check_json(b"[%b1]" % text, Limits(digits=4300))


Work = Callable[[bytes], None]
CALM = json.dumps({"mcpServers": {"a": {"command": "x"}}})
ATTACKS = [
    pytest.param(b"/*a", old_strip, strip, id="comments without an end"),
    pytest.param(b'\\"', old_strip, strip, id="strings without an end"),
    pytest.param(b"${a:-", old_find_references, find_references, id="references without an end"),
    pytest.param(b"1" * 4300 + b",", old_find_digits, check, id="many long numbers"),
]


@pytest.mark.promise("RES-15")
@pytest.mark.parametrize(("piece", "old", "new"), ATTACKS)
def test_hostile_text_costs_linear_time(piece: bytes, old: Work, new: Work):
    small, large = (_cpu_seconds(new, piece * (size // len(piece))) for size in (SIZE // 4, SIZE))

    assert large < 10 * small  # quadratic cost would be sixteen times


SCANS = ("search", "findall", "finditer", "sub", "split")
OLD_CHANGES_SEARCH = re.compile(r"\bsys\s*\.\s*path\b|\bfrom[ \t]+sys[ \t]+import\b.*\bpath\b|\baddsitedir\b")
OLD_END_OF_KEY = re.compile(r"[ \t]*(?:=|:(?=[ \t]|$))")
CODE = "".join(path.read_text() for path in Path(resolve.__path__[0]).glob("*.py"))


def patterns_of_resolve() -> dict[str, re.Pattern[Any]]:
    """All patterns of the modules that read what a stranger wrote."""
    modules = (f"{resolve.__name__}.{module.name}" for module in pkgutil.iter_modules(resolve.__path__))
    found: dict[str, re.Pattern[Any]] = {
        f"{module}.{name}": value
        for module in modules
        for name, value in vars(importlib.import_module(module)).items()
        if isinstance(value, re.Pattern)
    }
    assert len(found) > 70
    return found


def slow_piece(name: str, pattern: re.Pattern[Any]) -> str:
    """A text that, when repeated, costs this pattern more than linear time, used as the code uses it; empty if none was found."""
    methods = {*re.findall(rf"\b{name.rpartition('.')[2]}\.(\w+)", CODE)} & {*SCANS, "match", "fullmatch"}
    finds_one = pattern.match if "match" in methods else pattern.fullmatch

    work: Callable[[Any], object] = finds_one if methods and not methods & {*SCANS} else pattern.findall

    def cost(piece: str, size: int) -> float:
        repeated = piece * (size // len(piece))
        text = repeated if isinstance(pattern.pattern, str) else repeated.encode()
        return least_cpu_seconds(lambda: work(text), times=1)

    calm = least_cpu_seconds(lambda: [*CALM_PATTERN.finditer("a" * SLOW_SIZE)])
    slow = (
        piece
        for piece in pieces(pattern)
        if cost(piece, SLOW_SIZE) > 20 * calm and cost(piece, SLOW_SIZE) > 9 * cost(piece, SLOW_SIZE // 4)
    )
    return next(slow, "")


@pytest.mark.promise("RES-15")
def test_no_pattern_for_a_strangers_text_costs_more_than_linear_time():
    assert {
        name: slow for name, one in patterns_of_resolve().items() if (slow := slow_piece(name, one))
    } == {}


@pytest.mark.parametrize("old", [OLD_CHANGES_SEARCH, OLD_END_OF_KEY], ids=["sys", "key"])
def test_control_slow_pattern_is_found(old: re.Pattern[str]):
    assert slow_piece("old", old)


MARKS = "\u0316\u0301"  # in a row of these, each mark must be moved when they are put in order


@pytest.mark.promise("RES-15")
@pytest.mark.parametrize(
    "piece", [MARKS, "from sys import ", "require('", "'./a", "URL'", "coding:", "from .", "é "]
)
def test_sources_are_searched_in_linear_time(piece: str):
    def search(text: bytes) -> None:
        languages = (Language.PYTHON, Language.JAVASCRIPT)
        for _ in import_candidates("/missing/s", text, languages):
            pass
        loads_computed_names(text, languages)
        added_search_folders("/missing/s", text)

    small, large = (
        _cpu_seconds(search, b"# sys path " + (piece * (size // len(piece.encode()))).encode(), times=2)
        for size in (SIZE // 4, SIZE)
    )

    assert large < 10 * small + 0.01  # quadratic cost would be sixteen times


def test_control_normalizing_a_whole_source_takes_many_times_as_long():
    def normalize(text: bytes) -> None:
        unicodedata.normalize("NFKC", text.decode())

    marks, calm = ((text * (SIZE // 6)).encode() for text in (MARKS, "é\u0301"))
    assert _cpu_seconds(normalize, marks, times=1) > 10 * _cpu_seconds(normalize, calm)


@pytest.mark.slow
@pytest.mark.parametrize(("piece", "old", "new"), ATTACKS)
def test_control_patterns_that_backtrack_take_many_times_as_long(piece: bytes, old: Work, new: Work):
    text = piece * (SIZE // 6 // len(piece))

    assert _cpu_seconds(old, text, times=1) > 10 * _cpu_seconds(new, text)


def test_references_to_a_long_variable_are_bounded():
    with pytest.raises(ExpandError):
        Expander({"LONG": "x" * 100_000}).expand("${LONG}" * (SIZE // 7))


@pytest.mark.promise("RES-15")
@pytest.mark.anyio
async def test_session_opens_in_a_folder_with_such_a_file(make_host: HostFactory, tmp_path: Path):
    reasons: list[str] = []
    async with make_host({}) as host:
        for content in (
            b"/*a" * (SIZE // 3),
            json.dumps({"mcpServers": {"a": {"command": "${a:-" * (SIZE // 6)}}}).encode(),
            b'{"a":' * 10_000,
            b" " * 4_000_000,
            json.dumps({"mcpServers": {f"s{number}": {"command": "x"} for number in range(2000)}}).encode(),
        ):
            (tmp_path / ".mcp.json").write_bytes(content)
            _, resolution = await host.plan(OpenOptions(cwd=tmp_path))
            reasons += [
                refusal.reason
                for refusal in resolution.refusals
                if refusal.stage in (Stage.LOAD, Stage.ADMIT)
            ]

    assert [reason.partition(":")[0].partition(".")[0] for reason in reasons] == [
        "It is not valid JSON",
        "It is not approved, or has changed since you approved it",
        "It is not valid JSON",
        "It is not read",
        "It has 2000 servers, more than 100",
    ]


def _fit(make: Callable[[int], Any]) -> str:
    """The largest file of this kind, or nearly."""
    number = next(2**power for power in range(20) if len(json.dumps(make(2 ** (power + 1)))) > SIZE)
    return json.dumps({"mcpServers": make(number)}, ensure_ascii=False)


FILES = {
    "names that get 18 times as long": _fit(
        lambda number: {"\ufdfa" * 125 + f"{index:03}": {"command": "x"} for index in range(min(number, 100))}
    ),
    "URLs": _fit(lambda number: {"a": {"command": "x", "args": ["://a:bcdefg@h " * number]}}),
    "variables": _fit(lambda number: {"a": {"command": "x", "env": {"TOKEN": "${A:-b}x" * number}}}),
    "secrets": _fit(
        lambda number: {"a": {"command": "x", "env": {f"T{index}": "://a:b@c" for index in range(number)}}}
    ),
    "servers": _fit(
        lambda number: {
            f"s{index}": {"command": "x", "args": ["a1B2c3D4e5F6g7H8"] * (number // 4)}
            for index in range(100)
        }
    ),
}


@pytest.mark.anyio
async def test_work_on_the_event_loop_does_not_grow_with_the_file(make_host: HostFactory, tmp_path: Path):
    async with make_host({}) as host:
        calm = await _cpu_on_the_loop(host, tmp_path, CALM)
        hostile = {name: await _cpu_on_the_loop(host, tmp_path, content) for name, content in FILES.items()}

    # Refusing a hundred servers takes some time, however long their entries are.
    assert [name for name, seconds in hostile.items() if seconds > 3 * calm + 0.004] == []


@pytest.mark.anyio
async def test_control_resolved_on_the_event_loop_every_file_stalls_it(
    make_host: HostFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def run_here(self: WorkerThreads, function: Callable[..., Any], *args: Any, owner: str = "") -> Any:
        return function(*args)

    async with make_host({}) as host:
        calm = await _cpu_on_the_loop(host, tmp_path, CALM)
        monkeypatch.setattr(WorkerThreads, "run", run_here)
        hostile = {name: await _cpu_on_the_loop(host, tmp_path, content) for name, content in FILES.items()}

    cheap = {"names that get 18 times as long", "servers"}  # refused early
    assert {name for name, seconds in hostile.items() if seconds <= 3 * calm + 0.004} <= cheap


@pytest.mark.promise("RES-16")
def test_name_that_gets_longer_when_it_is_compared_is_refused_before_it_costs_time():
    assert [why_bad_name("\ufdfa" * 7), why_bad_name("ﬁ" * 64)] == [None, None]
    assert "at most 128 characters" in str(why_bad_name("\ufdfa" * 8))


def test_control_comparing_such_a_name_takes_many_times_as_long():
    def compare(name: bytes) -> None:
        skeleton.__wrapped__(name.decode())

    assert _cpu_seconds(compare, ("\ufdfa" * 128).encode()) > 4 * _cpu_seconds(compare, b"x" * 128)


async def _cpu_on_the_loop(host: Host, folder: Path, content: str) -> float:
    """The least CPU time of this thread for planning a session in a folder with this file."""
    (folder / ".mcp.json").write_text(content)
    took: list[float] = []
    for _ in range(3):
        began = time.thread_time()
        await host.plan(OpenOptions(cwd=folder))
        took.append(time.thread_time() - began)
    return min(took)


def _cpu_seconds(work: Callable[[bytes], None], text: bytes, times: int = 5) -> float:
    return least_cpu_seconds(lambda: work(text), times)
