"""The import rules hold, and violations are detected."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "holdfast"
LOWEST = sorted(path for package in ("masking", "model") for path in (SOURCE / package).rglob("*.py"))
# Why these are structs: see pyproject.toml.
WITH_STRUCTS = {
    SOURCE / "masking/events.py",
    *(SOURCE / f"model/{name}.py" for name in ("call", "event", "limits")),
}


@pytest.mark.parametrize("path", LOWEST, ids=lambda path: path.stem)
def test_model_and_masking_import_only_themselves_and_the_standard_library(path: Path) -> None:
    allowed = sys.stdlib_module_names | {"holdfast.masking", "holdfast.model"}
    if path in WITH_STRUCTS:
        allowed |= {"msgspec"}

    assert [name for name in _imported(path) if name not in allowed] == []


def test_no_module_replaces_a_function_of_its_package_when_it_is_imported() -> None:
    replaced = [
        f"{init.parent.name}.{node.name}"
        for init in SOURCE.rglob("__init__.py")
        for node in ast.parse(init.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (init.with_name(f"{node.name}.py").exists() or init.with_name(node.name).is_dir())
    ]

    assert replaced == []


# `program_imports` normalizes names of imports only.
MAY_NORMALIZE = {"model/normal_form.py", "resolve/program_imports.py"}


def test_only_one_module_calls_pythons_normal_forms() -> None:
    calling = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "unicodedata" in (code := path.read_text(encoding="utf-8")) and _calls_normalize(code)
    ]

    assert {*calling} - MAY_NORMALIZE == set(), (
        "Call holdfast.model.normal_form.normalize: it takes linear time."
    )


@pytest.mark.parametrize(
    "code",
    [
        "import unicodedata\nunicodedata.normalize('NFC', text)",
        "import unicodedata as u\nu.is_normalized('NFC', text)",
        "from unicodedata import normalize as n",
        "import unicodedata\nform = unicodedata.ucd_3_2_0",
        "import unicodedata\ngetattr(unicodedata, name)",
    ],
)
def test_every_way_to_call_pythons_normal_forms_is_detected(code: str) -> None:
    assert _calls_normalize(code)


def test_other_functions_of_unicodedata_may_be_called() -> None:
    assert not _calls_normalize("import unicodedata\nunicodedata.category(char)\nshown.normalize()")


WRONG_IMPORTS = [
    ("model/trust.py", "import holdfast.settings"),
    ("model/trust.py", "import holdfast.masking"),
    ("model/trust.py", "import msgspec"),
    ("settings/loader.py", "import holdfast.log_output"),
    ("log_output.py", "import click"),
    ("settings/loader.py", "import rich"),
    ("log_output.py", "import structlog"),
    ("host/data_folder.py", "import holdfast.store.sqlite.store"),
    ("host/data_folder.py", "import langchain_core"),
    ("builtin/call_facts.py", "import websockets"),
]


def test_wrong_imports_and_an_unlisted_module_are_detected(tmp_path: Path) -> None:
    _copy(tmp_path)
    for module, line in WRONG_IMPORTS:
        with (tmp_path / "src" / "holdfast" / module).open("a", encoding="utf-8") as source:
            source.write(f"\n{line}\n")
    (tmp_path / "src" / "holdfast" / "attic.py").touch()

    result = _lint(tmp_path)

    missed = [
        (module, line)
        for module, line in WRONG_IMPORTS
        if f"holdfast.{module[:-3].replace('/', '.')} -> {line.split()[-1]} (l." not in result.stdout
    ]
    assert (result.returncode, missed, "- holdfast.attic" in result.stdout) == (1, [], True), result.stdout


@pytest.mark.slow
def test_every_module_can_be_imported() -> None:
    code = (
        "import importlib, pkgutil, holdfast\n"
        "for module in pkgutil.walk_packages(holdfast.__path__, 'holdfast.'):\n"
        "    module.name.endswith('__main__') or importlib.import_module(module.name)"
    )
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert (result.returncode, result.stderr) == (0, "")


def test_rules_hold(tmp_path: Path) -> None:
    _copy(tmp_path)

    result = _lint(tmp_path)

    assert (result.returncode, "BROKEN" in result.stdout) == (0, False), result.stdout + result.stderr


def _copy(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


_OF_ONE_CHARACTER = {"bidirectional", "category", "combining", "east_asian_width", "name"}


def _calls_normalize(code: str) -> bool:
    """Whether the code uses anything of `unicodedata` but functions of one character, which take constant time."""
    tree = ast.parse(code)
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "unicodedata"
    }
    allowed = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in _OF_ONE_CHARACTER
    }
    return any(
        (isinstance(node, ast.Name) and node.id in names and id(node) not in allowed)
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "unicodedata"
            and not {alias.name for alias in node.names} <= _OF_ONE_CHARACTER
        )
        for node in ast.walk(tree)
    )


def _imported(path: Path) -> Iterator[str]:
    """The top-level packages that a module imports; for our own, with the subpackage."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            yield ".".join(parts[:2]) if parts[0] == "holdfast" else parts[0]
