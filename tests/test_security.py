"""The list of attacks in docs/security.md and the tests in tests/safety agree."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| (?P<number>\d+) \| .* \| (?P<test>[^|]+) \|$", re.MULTILINE)


def listed() -> dict[int, str]:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    return {int(row["number"]): row["test"].strip() for row in ROW.finditer(text)}


def test_all_thirty_five_attacks_are_listed():
    assert sorted(listed()) == list(range(1, 36))


def test_every_attack_has_its_test_or_says_what_it_waits_for():
    wrong = {
        number: test
        for number, test in listed().items()
        if not test.startswith("waits for ") and not (ROOT / test.strip("`")).is_file()
    }

    assert wrong == {}


def test_every_safety_test_is_listed_and_has_a_control():
    tests = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "safety").glob("test_*.py"))
    without_control = [test for test in tests if not _has_control(ROOT / test)]

    assert sorted(test.strip("`") for test in listed().values() if test.startswith("`")) == tests
    assert without_control == []


def _has_control(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any("control" in function.name for function in functions)
