"""Attack 10: session ids are tried out, a hundred thousand of them."""

import json
import secrets
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.acp.guesses import MOST, Guesses
from holdfast.model.errors import HoldfastError
from tests.journeys.editor import HOLDFAST, environment

TRIES = 100_000
AT_ONCE = 100  # what fits into a pipe
GUESS = b'{"jsonrpc":"2.0","id":%d,"method":"session/load","params":{"sessionId":"sess_%b",%b}\n'


@pytest.mark.promise("ACP-06")
def test_none_is_hit_and_after_a_few_nothing_is_looked_up_any_more(tmp_path: Path):
    place = json.dumps({"cwd": str(tmp_path), "mcpServers": []})[1:].encode()
    seen: Counter[bytes] = Counter()
    with subprocess.Popen(
        HOLDFAST, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(tmp_path)
    ) as mallet:
        assert mallet.stdin is not None
        assert mallet.stdout is not None
        mallet.stdin.write(b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n')
        mallet.stdin.flush()
        mallet.stdout.readline()
        for start in range(1, TRIES, AT_ONCE):
            for number in range(start, start + AT_ONCE):
                guess = secrets.token_hex(16).encode()
                mallet.stdin.write(GUESS % (number, guess, place))
            mallet.stdin.flush()
            for _ in range(AT_ONCE):
                answer = mallet.stdout.readline()
                seen[answer.partition(b'"code":')[2].partition(b",")[0]] += 1
        mallet.stdin.close()

    assert set(seen) == {b"-32002", b"-32004"}
    assert MOST <= seen[b"-32002"] < MOST + 30  # a few at once, and one every few seconds
    assert seen.total() == TRIES


def test_whoever_finds_what_it_asks_for_is_never_made_to_wait():
    guesses = Guesses(clock=lambda: 0.0)

    for _ in range(1000):
        guesses.take()
        guesses.give_back()


def test_control_without_the_limit_every_guess_is_looked_up():
    assert (_looked_up(lambda: None), _looked_up(Guesses(clock=lambda: 0.0).take)) == (1000, MOST)


def _looked_up(before: Callable[[], None]) -> int:
    """How many of a thousand wrong guesses reach the store."""
    reached = 0
    for _ in range(1000):
        with suppress(HoldfastError):
            before()
            reached += 1
    return reached
