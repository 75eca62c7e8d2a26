"""Attack 37: the file of an unapproved project costs the host more than linear time, or memory without bound."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.host.open_options import OpenOptions
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.resolution import Stage
from holdfast.resolve.expand import Expander, ExpandError, referenced_variables
from holdfast.resolve.json_with_comments import read_json
from holdfast.wire.strict_json import StrictJsonError, check_json
from tests.connect.conftest import HostFactory, make_host

__all__ = ["make_host"]

SIZE = 60_000  # less than a project's file may have
OLD_COMMENT = re.compile(rb'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
OLD_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
OLD_DIGITS = re.compile(rb"[0-9]{4301}")


def old_strip(text: bytes) -> None:
    OLD_COMMENT.sub(b" ", text)


def strip(text: bytes) -> None:
    with pytest.raises(StrictJsonError):
        read_json(text)


def old_find_references(text: bytes) -> None:
    OLD_REFERENCE.findall(text.decode())


def find_references(text: bytes) -> None:
    referenced_variables(text.decode())


def old_find_digits(text: bytes) -> None:
    OLD_DIGITS.search(text)


def check(text: bytes) -> None:
    check_json(b"[%b1]" % text, DEFAULT_LIMITS)


Work = Callable[[bytes], None]
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
        "It is not approved as it is now",
        "It is not valid JSON",
        "It is not read",
        "It has 2000 servers, more than 100",
    ]


def _cpu_seconds(work: Callable[[bytes], None], text: bytes, times: int = 5) -> float:
    """The least CPU time that this thread takes: other processes do not count."""
    took: list[float] = []
    for _ in range(times):
        began = time.thread_time()
        work(text)
        took.append(time.thread_time() - began)
    return min(took)
