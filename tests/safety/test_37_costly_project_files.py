"""Attack 37: the file of an unapproved project costs the host more than linear time, or memory without bound."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.host.host import Host
from holdfast.host.open_options import OpenOptions
from holdfast.model.limits import Limits
from holdfast.model.resolution import Stage
from holdfast.model.worker_threads import WorkerThreads
from holdfast.resolve.expand import Expander, ExpandError, referenced_variables
from holdfast.resolve.json_with_comments import decode_json_with_comments
from holdfast.resolve.server_names import skeleton, why_bad_name
from holdfast.wire.strict_json import StrictJsonError, check_json
from tests.connect.conftest import HostFactory, make_host
from tests.cost import least_cpu_seconds

__all__ = ["make_host"]

SIZE = 60_000  # less than a project's file may have
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
