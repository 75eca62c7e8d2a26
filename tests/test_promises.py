"""The list of promises and the tests that verify them agree."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| (?P<id>[A-Z]+-\d+) \| .+ \| (?P<state>\w+) \|$", re.MULTILINE)


def test_every_done_promise_has_a_test_and_every_tested_promise_exists() -> None:
    listed = _listed((ROOT / "docs" / "promises.md").read_text(encoding="utf-8"))

    assert _mismatches(listed, _tested_in_files(with_slow=True)) == []


def test_every_done_promise_is_tested_by_make_test() -> None:
    """A test that is marked slow runs only in `make test-slow`."""
    listed = _listed((ROOT / "docs" / "promises.md").read_text(encoding="utf-8"))

    done = {id for id, state in listed.items() if state == "done"}
    assert sorted(done - _tested_in_files(with_slow=False)) == []


def test_every_promise_is_open_or_done_and_has_a_unique_id() -> None:
    text = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")

    rows = re.findall(r"^\| ([A-Z]+-\d+) ", text, re.MULTILINE)

    assert rows == list(_listed(text))
    assert set(_listed(text).values()) <= {"open", "done"}


def test_a_done_promise_without_a_test_is_found() -> None:
    listed = _listed("| CTX-01 | It holds. | done |\n| CTX-02 | `a | b` holds. | open |")

    assert _mismatches(listed, set()) == ["CTX-01 is done, but has no test."]


def test_a_test_of_an_unknown_promise_is_found() -> None:
    assert _mismatches({"CTX-01": "done"}, {"CTX-01", "CTX-99"}) == [
        "CTX-99 has a test, but is not a promise."
    ]


def test_a_promise_is_found_on_functions_classes_modules_and_parameters() -> None:
    source = """
        pytestmark = pytest.mark.promise("A-1")
        # @pytest.mark.promise("NO-1")
        text = 'pytest.mark.promise("NO-2")'

        @pytest.mark.promise("A-2", "A-3")
        async def test_one(): ...

        @pytest.mark.promise("A-4")
        class TestAll:
            @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.promise("A-5"))])
            def test_two(self, n): ...
    """

    assert sorted(_tested("if True:" + source)) == ["A-1", "A-2", "A-3", "A-4", "A-5"]
    slow = source.replace('@pytest.mark.promise("A-2', '@pytest.mark.slow\n        @pytest.mark.promise("A-2')
    assert sorted(_tested("if True:" + slow, with_slow=False)) == ["A-1", "A-4", "A-5"]


def _tested_in_files(*, with_slow: bool) -> set[str]:
    paths = sorted((ROOT / "tests").rglob("*.py"))
    sources = (path.read_text(encoding="utf-8") for path in paths)
    return {
        id for source in sources if "mark.promise" in source for id in _tested(source, with_slow=with_slow)
    }


def _listed(text: str) -> dict[str, str]:
    return {row["id"]: row["state"] for row in ROW.finditer(text)}


def _mismatches(listed: dict[str, str], tested: set[str]) -> list[str]:
    done = {id for id, state in listed.items() if state == "done"}
    return [
        *(f"{id} is done, but has no test." for id in sorted(done - tested)),
        *(f"{id} has a test, but is not a promise." for id in sorted(tested - listed.keys())),
    ]


def _tested(source: str, *, with_slow: bool = True) -> Iterator[str]:
    """The ids in all `pytest.mark.promise(...)` calls, read from the source so that partial runs work."""
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if not with_slow and _is_slow(node):
            continue
        nodes.extend(ast.iter_child_nodes(node))
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and ast.unparse(node.func) == "pytest.mark.promise"
        ):
            for argument in node.args:
                assert isinstance(argument, ast.Constant), (
                    f"line {node.lineno}: a promise id must be a literal"
                )
                assert isinstance(argument.value, str), f"line {node.lineno}: a promise id must be a string"
                yield argument.value


def _is_slow(node: ast.AST) -> bool:
    """Whether a test, or a class of tests, is marked slow."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(ast.unparse(decorator) == "pytest.mark.slow" for decorator in node.decorator_list)
