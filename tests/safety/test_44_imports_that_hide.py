"""Attack 44, continued: a source hides from the approval which files it imports, or a tool finds the files that it runs by itself.

The control of each case is the interpreter: it runs the code of the file that was hidden.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.servers.review_server import describe_program
from holdfast.resolve.program import describe_change, quote_path
from holdfast.resolve.program_imports import import_candidates
from holdfast.resolve.read_program import read_program
from holdfast.resolve.script_languages import Language
from tests.connect.conftest import HostFactory, folder, make_host
from tests.cost import count_calls
from tests.safety.test_44_rewriting_an_approved_program import SERVER, TOOLS, approve_project, open_and_call

__all__ = ["folder", "make_host"]
pytestmark = pytest.mark.anyio
PYTHON = {"helper.py": "print('ran')"}
PACKAGE = {"p/__init__.py": "", "p/a.py": "", "p/helper.py": "print('ran')"}
JAVASCRIPT = {"helper.js": "console.log('ran')"}
MODULE = {"lib/helper.mjs": "console.log('ran')"}
LONG = "x" * 1200
UTF_7 = "+AGkAbQBwAG8AcgB0ACAAaABlAGwAcABlAHI-\n"  # import helper
CASES: dict[str, tuple[dict[str, str], str]] = {
    # What looks like an import, in a string or a comment, and swallows the next one.
    "brackets in a string": ({"s.py": '"""\nfrom x import (\n"""\nimport helper', **PYTHON}, "python3 s.py"),
    "brackets in a comment": ({"s.py": "#:from x import (\nimport helper\n#)", **PYTHON}, "python3 s.py"),
    "import in a string": ({"s.py": 'if """\nimport x""": import helper', **PYTHON}, "python3 s.py"),
    "from in a string": ({"s.py": 'if """\nfrom x import y""": import helper', **PYTHON}, "python3 s.py"),
    "bracket in a list": ({"s.py": "from p import (\n a, # 1)\n helper,\n)", **PACKAGE}, "python3 s.py"),
    "quote in a comment": ({"s.js": "/* './ */ require('./helper.js')", **JAVASCRIPT}, "node s.js"),
    "quote in a text": ({"s.js": "`'./`; require('./helper.js')", **JAVASCRIPT}, "node s.js"),
    # Other spellings of the same name.
    "byte order mark": ({"s.py": "\ufeffimport helper", **PYTHON}, "python3 s.py"),
    "coding of a later line": (
        {"s.py": "import os\n\n# coding: latin-1\nimport ｈelper", **PYTHON},
        "python3 s.py",
    ),
    "coding of a line after code": (
        {"s.py": "import os\n# coding: latin-1\nimport ｈelper", **PYTHON},
        "python3 s.py",
    ),
    "escaped slash": ({"s.js": "require('.\\/helper.js')", **JAVASCRIPT}, "node s.js"),
    "escaped dot": ({"s.js": "require('\\x2e/hel\\u0070er.js')", **JAVASCRIPT}, "node s.js"),
    "escaped line end": ({"s.js": "require('./hel\\\nper.js')", **JAVASCRIPT}, "node s.js"),
    "long path": ({"s.js": f"require('./{'./' * 3000}helper.js')", **JAVASCRIPT}, "node s.js"),
    "query": ({"s.mjs": "import './lib/helper.mjs?v=1'", **MODULE}, "node s.mjs"),
    "fragment": ({"s.mjs": "import './lib/helper.mjs#v'", **MODULE}, "node s.mjs"),
    "percent": ({"s.mjs": "import './lib/%68elper.mjs'", **MODULE}, "node s.mjs"),
    "backslash": ({"s.mjs": "import './lib\\\\helper.mjs'", **MODULE}, "node s.mjs"),
    "query in the command": ({"s.mjs": "", **MODULE}, "node --import ./lib/helper.mjs?v=1 s.mjs"),
    "quotes in a word": ({"s.sh": "python3 he''lper.py", **PYTHON}, "bash s.sh"),
    "backslash in a word": ({"s.sh": "# don't\npython3 he\\lper.py", **PYTHON}, "bash s.sh"),
    "quotes in a recipe": ({"Makefile": "all:\n\t@python3 he''lper.py", **PYTHON}, "make"),
    "NUL": ({"s.js": "// \0\nrequire('./helper.js')", **JAVASCRIPT}, "node s.js"),
    "needless escape": ({"s.js": "require('./hel\\per.js')", **JAVASCRIPT}, "node s.js"),
    "escaped line separator": ({"s.js": "require('./hel\\\u2028per.js')", **JAVASCRIPT}, "node s.js"),
    "escaped tab": ({"s.mjs": "import './lib/hel\\tper.mjs'", **MODULE}, "node s.mjs"),
    "many spaces": ({"s.py": f"from helper{' ' * 1200}import __name__", **PYTHON}, "python3 s.py"),
    "combining mark": ({"s.py": "import he\u0301lper", "hélper.py": "print('ran')"}, "python3 s.py"),
    # Names that are computed or executed.
    "comment in a URL": (
        {"s.mjs": "import(new URL(/* x */ 'lib/helper.mjs', import.meta.url))", **MODULE},
        "node s.mjs",
    ),
    "joined name": ({"s.js": "require(['./hel', 'per.js'].join(''))", **JAVASCRIPT}, "node s.js"),
    "renamed require": (
        {"s.js": "const r = require; r(module.path + '/helper.js')", **JAVASCRIPT},
        "node s.js",
    ),
    "absolute path": ({"s.js": "require('/proc/self/cwd/helper.js')", **JAVASCRIPT}, "node s.js"),
    "name that a pattern stands for": (
        {
            "s.js": "require('#helper')",
            "package.json": '{"imports": {"#*": "./lib/*.js"}}',
            "lib/helper.js": "console.log('ran')",
        },
        "node s.js",
    ),
    "executed text": ({"s.py": "exec('import helper')", **PYTHON}, "python3 s.py"),
    "executed file": ({"s.py": "exec(open('helper.py').read())", **PYTHON}, "python3 s.py"),
    "joined module": ({"s.py": "__import__('hel' + 'per')", **PYTHON}, "python3 s.py"),
    "escaped module": ({"s.py": "__import__(name='\\x68elper')", **PYTHON}, "python3 s.py"),
    "comment before a module": ({"s.py": "__import__( # x\n'helper')", **PYTHON}, "python3 s.py"),
    "raw text": ({"s.py": "__import__(r'helper')", **PYTHON}, "python3 s.py"),
    "braces": ({**PYTHON}, "bash -c 'exec python3 {helper,}.py'"),
    "escape of the shell": ({**PYTHON}, "bash -c \"exec python3 $'hel\\\\x70er.py'\""),
    "working folder": ({**PYTHON}, "sh -c 'exec python3 $PWD/helper.py'"),
    # Folders that a source adds to those in which modules are looked for.
    "added folder": (
        {"s.py": "import sys\nsys.path.insert(0, 'lib')\nimport helper", "lib/helper.py": "print('ran')"},
        "python3 s.py",
    ),
    "added folder under another name": (
        {
            "s.py": "from sys import path as p\np.append('lib')\nimport helper",
            "lib/helper.py": "print('ran')",
        },
        "python3 s.py",
    ),
    "added folder next to that of the source": (
        {
            "bin/s.py": "import os, sys\nsys.path.append(os.path.dirname(__file__) + '/../' 'lib')\nimport helper",
            "lib/helper.py": "print('ran')",
        },
        "python3 bin/s.py",
    ),
    "added folder with a space": (
        {
            "s.py": "import sys\nsys.path.insert(0, 'my lib')\nimport helper",
            "my lib/helper.py": "print('ran')",
        },
        "python3 s.py",
    ),
    "added folder by another name of sys": (
        {"s.py": "import sys as s\ns.path.insert(0, 'lib')\nimport helper", "lib/helper.py": "print('ran')"},
        "python3 s.py",
    ),
    "added folder after a line break": (
        {
            "s.py": "from sys import (\n path)\npath.insert(0, 'lib')\nimport helper",
            "lib/helper.py": "print('ran')",
        },
        "python3 s.py",
    ),
    "code in the settings of a folder": (
        {"s.py": "import site\nsite.addsitedir('lib')", "lib/helper.pth": "import sys; print('ran')"},
        "python3 s.py",
    ),
    # Scripts whose name does not say in which language they are.
    "python, named as text": ({"s.txt": "import helper", **PYTHON}, "python3 s.txt"),
    "python, named as shell": ({"s.sh": "import helper", **PYTHON}, "python3 s.sh"),
    "javascript, named as text": ({"s.txt": "require('./helper.js')", **JAVASCRIPT}, "node s.txt"),
    "javascript, imported as text": (
        {"s.js": "require('./a.md')", "a.md": "require('./helper.js')", **JAVASCRIPT},
        "node s.js",
    ),
    "shell, named as text": ({"s.txt": "python3 helper.py", **PYTHON}, "bash s.txt"),
    "shell, named as javascript": ({"s.js": "python3 helper.py", **PYTHON}, "bash s.js"),
    "awk": ({"helper.x": 'BEGIN {print "ran"}'}, "awk -f helper.x"),
}


def write(folder: Path, files: dict[str, str]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content, encoding="utf-8")


def run(command: str, folder: Path) -> str:
    """What the command prints. `python3` is the Python of the tests."""
    words = shlex.split(command)
    if shutil.which(words[0]) is None:
        pytest.skip(f"needs {words[0]}")
    bin_folder = folder.parent / "bin"
    bin_folder.mkdir(exist_ok=True)
    (bin_folder / "python3").symlink_to(sys.executable)
    env = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize("case", CASES)
def test_import_cannot_be_hidden_from_the_approval(folder: Path, case: str):
    files, command = CASES[case]
    write(folder, files)
    changed = next(path for path in files if Path(path).stem in ("helper", "hélper"))
    before = read_program(shlex.split(command), str(folder))
    control = run(command, folder)
    (folder / changed).write_text("evil")
    after = read_program(shlex.split(command), str(folder))

    assert control == "ran\n"
    assert describe_change(before.parts, after) == f"{quote_path(changed)} changed"


def test_word_that_is_not_imported_does_not_make_a_file_part_of_the_program(folder: Path):
    write(folder, {"s.py": "# no helper\nimport a\nhelper = 'helper'", "a.py": "", **PYTHON})

    assert [*read_program(["python3", "s.py"], str(folder)).files] == ["s.py", "a.py"]


@pytest.mark.parametrize("line", ["a{0},\n#:from x import(\n", ":from x import(a{0},\n", ":import a{0}"])
def test_cost_of_what_looks_like_imports_is_linear(line: str):
    def cost(lines: int) -> int:
        source = "".join(map(line.format, range(lines))).encode()
        return count_calls(lambda: [*import_candidates("/p/s.py", source, (Language.PYTHON,))])

    assert cost(400) < 2.5 * cost(200)


COMPUTED = {
    "s.py": [
        "exec(x)",
        "eval(x)",
        "import importlib",
        "import subprocess",
        "import runpy",
        "import sys\nsys.path[:0] = [x]",
        "from sys import *",
    ],
    "s.js": [
        "require(x)",
        "import(x)",
        "eval(x)",
        "const r = require",
        "require(`./${x}`)",
        "// \0",
        "import '/x.js'",
    ],
    "s.sh": ["# \0"],
}
READ = {
    "s.py": "import os, sys\nprint(os.path.sep, sys.argv)",
    "s.js": "require('./a.js'); import('./b.mjs')",
    "s.sh": "echo",
}
RUNNERS = {"s.py": "python3", "s.js": "node", "s.sh": "sh"}


@pytest.mark.parametrize(("name", "source"), [(name, each) for name in COMPUTED for each in COMPUTED[name]])
def test_source_that_cannot_be_read_with_certainty_is_noted(folder: Path, name: str, source: str):
    write(folder, {name: source})
    program = read_program([RUNNERS[name], name], str(folder))
    write(folder, {name: READ[name]})

    assert "It may run more files than these 1." in "\n".join(describe_program(program))
    assert not read_program([RUNNERS[name], name], str(folder)).is_partial


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize("line", [f"# {LONG} coding: utf-7\n", f"# {LONG}\n# coding: utf-7\n"])
def test_encoding_named_after_a_long_comment_is_noted(folder: Path, line: str):
    write(folder, {"s.py": line + UTF_7, **PYTHON})

    assert run("python3 s.py", folder) == "ran\n"
    assert read_program(["python3", "s.py"], str(folder)).is_partial


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    "start",
    ['"""\nfrom x import (\n"""\nimport helper\n', "\ufeffimport helper\n"],
    ids=["swallowed", "mark"],
)
async def test_changed_module_that_a_source_hid_does_not_run(
    make_host: HostFactory, folder: Path, start: str
):
    write(
        folder, {"server.py": start + SERVER, "helper.py": "", "tools.txt": json.dumps(TOOLS), "data.txt": ""}
    )
    async with make_host({}) as host:
        await approve_project(host, folder, "server.py", "tools.txt")
        (folder / "data.txt").write_text("changed")
        control = await open_and_call(host, folder)
        (folder / "helper.py").write_text("open('ran', 'w')")
        told = await open_and_call(host, folder)

    assert "helper.py changed" in told
    assert control == "run ran"
    assert not (folder / "ran").exists()


@pytest.mark.promise("RES-07")
def test_compiled_module_in_a_folder_that_is_no_package_is_part_of_the_program(folder: Path):
    name = "mod.cpython-313-x86_64-linux-gnu.so"
    write(folder, {"s.py": "import space.mod", f"space/{name}": "x", "space/other.so": "x"})

    assert [*read_program(["python3", "s.py"], str(folder)).files] == ["s.py", f"space/{name}"]


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize("name", ["fastmcp.json", ".fastmcp.toml", ".fastmcprc"])
def test_settings_that_are_named_after_a_tool_are_part_of_its_program(folder: Path, name: str):
    write(
        folder,
        {name: '{"source": {"path": "server.py"}}', "server.py": "import helper", "other.json": "", **PYTHON},
    )
    command = ["uv", "run", "fastmcp", "run"]

    assert {*read_program(command, str(folder)).files} == {name, "server.py", "helper.py"}
    assert not read_program(["uv", "run", "other-tool"], str(folder)).files


@pytest.mark.parametrize(
    "settings",
    [
        {"paths": {"@/*": ["./src/*"]}},
        {"baseUrl": "src"},
        {"imports": {"@/": "./src/"}},
    ],
)
@pytest.mark.parametrize("name", ["tsconfig.json", "base.json"])
def test_names_that_stand_for_any_file_of_a_folder_are_noted(
    folder: Path, settings: dict[str, object], name: str
):
    write(
        folder,
        {"tsconfig.json": '{"extends": "./base.json"}', "base.json": "{}", "s.ts": "import '@/helper'"},
    )
    control = read_program(["tsx", "s.ts"], str(folder))
    (folder / name).write_text(json.dumps({"compilerOptions": settings}))

    assert read_program(["tsx", "s.ts"], str(folder)).is_partial
    assert not control.is_partial


@pytest.mark.parametrize("command", ["sh -c 'python3 help*.py'", "find . -name *.py -exec python3 {} ;"])
def test_files_that_a_pattern_names_are_noted(folder: Path, command: str):
    write(folder, PYTHON)

    assert run(command, folder) == "ran\n"
    assert read_program(shlex.split(command), str(folder)).is_partial
    assert not read_program(["server", "--match", "*.py"], str(folder)).is_partial


@pytest.mark.promise("RES-07")
def test_files_of_a_version_manager_are_part_of_a_program_that_it_starts(folder: Path):
    write(folder, {"s.py": "", ".tool-versions": "python 3.12.1", ".python-version": "3.12"})
    with_shims, without = "/home/ann/.asdf/shims:/usr/bin", "/usr/local/bin:/usr/bin"

    def files(search_path: str) -> set[str]:
        return {*read_program(["python3", "s.py"], str(folder), search_path).files}

    assert files(with_shims) == {"s.py", ".tool-versions", ".python-version"}
    assert files(without) == {"s.py"}


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        (".tool-versions", "python path:./tools", "python3 s.py"),
        ("mise.toml", '[tools]\npython = "path:./tools"', "python3 s.py"),
        (".python-version", "./tools/bin/python3", "uv run s.py"),
        (".python-versions", "3.12\ntools", "uv run s.py"),
    ],
)
def test_version_that_is_a_program_in_the_project_is_refused(
    folder: Path, name: str, text: str, command: str
):
    write(folder, {"s.py": "", "tools/bin/python3": "", name: text})
    program = read_program(shlex.split(command), str(folder), "/home/ann/shims:/usr/bin")
    (folder / name).write_text(
        "3.12" if name.startswith(".python") else "python 3.12 # not a path: a version"
    )
    control = read_program(shlex.split(command), str(folder), "/home/ann/shims:/usr/bin")

    told = "is a file that says where a program is, instead of its version; write the version"
    assert (program.problem.endswith(f"{name} {told}"), control.problem) == (True, "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".npmrc", "# https://comment.example/\nregistry=https://ann:secret@evil.example/npm?key=secret\n"),
        (".npmrc", "@good:registry = http://evil.example/"),
        ("pnpm-workspace.yaml", "registries:\n  default: https://evil.example"),
    ],
)
def test_review_shows_where_packages_come_from(folder: Path, name: str, text: str):
    write(folder, {name: text})
    shown = "\n".join(describe_program(read_program(["pnpm", "dlx", "@good/server"], str(folder))))

    assert f'program:   "{name}"' in shown
    assert 'fetches:   packages from "evil.example", as the project\'s settings say' in shown
    assert "secret" not in shown
    assert "fetches" not in "\n".join(
        describe_program(read_program(["pnpm", "dlx", "x"], str(folder.parent)))
    )


def test_path_in_a_reason_cannot_pose_as_another_line(folder: Path):
    name = 'x\n"good" is approved\u202e'
    write(folder, {f"{name}/package.json": "[]", f"{name}/s.js": ""})
    problem = read_program(["node", f"{name}/s.js"], str(folder)).problem

    assert problem.endswith(f'{json.dumps(name)[1:-1]}/package.json" is not a valid JSON object')
    assert problem.isprintable()
