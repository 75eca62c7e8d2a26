"""Attack 10: guess session ids (`make fuzz`: a hundred thousand)."""

import json
import secrets
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.acp.unknown_id_limit import BURST, UnknownIdLimit
from holdfast.model.errors import HoldfastError
from tests.journeys.editor import HOLDFAST, environment
from tests.safety.repeats import REPEATS

TRIES = 10_000 * REPEATS
BATCH = 100  # fits into a pipe
DELETION = b'{"jsonrpc":"2.0","id":%d,"method":"session/delete","params":{"sessionId":"sess_%b"}}\n'
GUESS = b'{"jsonrpc":"2.0","id":%d,"method":"session/load","params":{"sessionId":"sess_%b",%b}\n'


@pytest.mark.slow
@pytest.mark.promise("ACP-06")
def test_no_guess_succeeds_and_further_guesses_are_rate_limited(tmp_path: Path):
    params = json.dumps({"cwd": str(tmp_path), "mcpServers": []})[1:].encode()
    seen: Counter[bytes] = Counter()
    with subprocess.Popen(
        HOLDFAST, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(tmp_path)
    ) as attacker:
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        attacker.stdin.write(
            b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n'
        )
        attacker.stdin.flush()
        attacker.stdout.readline()
        for start in range(1, TRIES, BATCH):
            for number in range(start, start + BATCH):
                guess = secrets.token_hex(16).encode()
                attacker.stdin.write(GUESS % (number, guess, params))
            attacker.stdin.flush()
            for _ in range(BATCH):
                answer = attacker.stdout.readline()
                seen[answer.partition(b'"code":')[2].partition(b",")[0]] += 1
        attacker.stdin.close()

    assert set(seen) == {b"-32002", b"-32004"}
    assert BURST <= seen[b"-32002"] < BURST + 30  # a few at once, and one every few seconds
    assert seen.total() == TRIES


@pytest.mark.slow
def test_deleting_guessed_ids_is_rate_limited_and_hardly_fills_the_audit(tmp_path: Path):
    tries = 2000
    seen: Counter[bytes] = Counter()
    with subprocess.Popen(
        HOLDFAST, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(tmp_path)
    ) as attacker:
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        attacker.stdin.write(
            b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n'
        )
        attacker.stdin.flush()
        attacker.stdout.readline()
        for number in range(1, tries + 1):
            attacker.stdin.write(DELETION % (number, secrets.token_hex(16).encode()))
            if number % BATCH == 0:
                attacker.stdin.flush()
                for _ in range(BATCH):
                    answer = attacker.stdout.readline()
                    seen[answer.partition(b'"code":')[2].partition(b",")[0]] += 1
        attacker.stdin.close()

    assert set(seen) == {b"", b"-32004"}  # an unknown session counts as deleted
    assert BURST <= seen[b""] < BURST + 30


def test_successful_lookups_are_never_rate_limited():
    limit = UnknownIdLimit(clock=lambda: 0.0)

    for _ in range(1000):
        limit.acquire()
        limit.refund()


def test_control_without_the_rate_limit_every_guess_is_looked_up():
    assert (_count_lookups(lambda: None), _count_lookups(UnknownIdLimit(clock=lambda: 0.0).acquire)) == (
        1000,
        BURST,
    )


def _count_lookups(before: Callable[[], None]) -> int:
    """The number of a thousand wrong guesses that reach the store."""
    reached = 0
    for _ in range(1000):
        with suppress(HoldfastError):
            before()
            reached += 1
    return reached
