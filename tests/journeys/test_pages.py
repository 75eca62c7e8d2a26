"""Every program in these pages runs, and prints the output shown below it. Every import in the docs works."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.commands import run_program
from tests.journeys.test_python import environment

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("adapters.md", "agents.md", "moving.md", "testing.md")
PROGRAM = re.compile(
    r"```python\n# (?P<name>\w+\.py)\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```)?", re.DOTALL
)


def programs(page: str) -> dict[str, tuple[str, str | None]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = {each["name"]: (each["code"], each["output"]) for each in PROGRAM.finditer(text)}
    assert len(re.findall("```python\n# ", text)) == len(found)
    return found


SHOWN = [(page, name) for page in PAGES for name, (_, output) in programs(page).items() if output is not None]


@pytest.mark.timeout(180)  # some import large libraries
@pytest.mark.parametrize(("page", "name"), SHOWN)
def test_program_of_the_page_prints_the_output_shown_below_it(page: str, name: str, tmp_path: Path):
    folder = tmp_path / "programs"
    folder.mkdir()
    shown = programs(page)
    for each, (code, _) in shown.items():
        (folder / each).write_text(code)
    done = run_program(name, folder, environment(tmp_path))

    assert (done.stdout, done.returncode) == (shown[name][1], 0), done.stderr


@pytest.mark.timeout(180)
@pytest.mark.promise("KIT-27")
def test_tests_of_the_page_about_testing_pass_with_pytest(tmp_path: Path):
    name = "test_with_pytest.py"
    (tmp_path / name).write_text(programs("testing.md")[name][0])
    runs = [
        "import sys",
        "import pytest",
        f"sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '{name}']))",
    ]
    (tmp_path / "run.py").write_text("\n".join(runs))
    done = run_program("run.py", tmp_path, environment(tmp_path))

    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout


IMPORTS = re.compile(
    r"^(?:from holdfast[\w.]* import (?:\([^)]*\)|[^(\n]*)|import holdfast[\w., ]*)$", re.MULTILINE
)


@pytest.mark.parametrize(
    "page", [*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"], ids=lambda page: page.stem
)
def test_every_import_of_the_page_works(page: Path):
    missing: list[str] = []
    for line in IMPORTS.findall(page.read_text(encoding="utf-8")):
        (statement,) = ast.parse(line).body
        match statement:
            case ast.ImportFrom(module=str(module), names=names):
                found = importlib.import_module(module)
                missing += [f"{module}.{name.name}" for name in names if not hasattr(found, name.name)]
            case _:
                exec(compile(ast.Module([statement], []), page.name, "exec"), {})

    assert missing == []
