"""The list of attacks in docs/security.md and the tests in tests/safety agree."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| (?P<number>\d+) \| .* \| (?P<tests>[^|]+) \|$", re.MULTILINE)


def listed() -> dict[int, str]:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    return {int(row["number"]): row["tests"].strip() for row in ROW.finditer(text)}


def test_attacks_are_numbered_without_gaps():
    assert sorted(listed()) == list(range(1, len(listed()) + 1))


def test_every_attack_has_tests_or_a_reason_to_wait():
    named = {
        number: re.findall(r"`(tests/safety/test_\d\d_\w+\.py)`", tests) for number, tests in listed().items()
    }

    untested = [
        number
        for number, tests in named.items()
        if not tests and not listed()[number].startswith("waits for ")
    ]
    misplaced = [
        test for number, tests in named.items() for test in tests if f"/test_{number:02d}_" not in test
    ]
    assert (untested, misplaced) == ([], [])


def test_every_safety_test_is_listed():
    tests = sorted(f"tests/safety/{path.name}" for path in (ROOT / "tests" / "safety").glob("test_*.py"))

    assert sorted(re.findall(r"`(tests/safety/[^`]+)`", " ".join(listed().values()))) == tests


def test_every_test_that_is_named_exists():
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")

    assert [path for path in re.findall(r"`(tests/[^`]+)`", text) if not (ROOT / path).exists()] == []
