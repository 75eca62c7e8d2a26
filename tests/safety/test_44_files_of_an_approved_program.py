"""Attack 44, continued: what belongs to an approved program: every file that its command, its manifests and its sources name."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from holdfast.resolve.file_hashes import FileHashes
from holdfast.resolve.program import describe_change, quote_path
from holdfast.resolve.program_imports import python_module_candidates
from holdfast.resolve.read_program import read_program
from tests.connect.conftest import folder, make_host
from tests.cost import count_calls

__all__ = ["folder", "make_host"]
pytestmark = pytest.mark.anyio

MAPPED = json.dumps(
    {
        "name": "nj",
        "imports": {"#y": {"node": ["./lib/y.js"]}},
        "exports": {"./x": {"import": "./lib/x.mjs"}},
    }
)
START = json.dumps({"scripts": {"start": "node b/x", "twice": "npm run start"}})


@pytest.mark.promise("RES-07")
def test_path_that_leads_elsewhere_than_it_reads_is_refused(tmp_path: Path):
    for path in ("project/server.py", "elsewhere/server.py", "elsewhere/lib/x"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"print({path!r})")
    project = tmp_path / "project"
    (project / "lib").symlink_to(tmp_path / "elsewhere" / "lib")
    (project / "folder").mkdir()
    command = [sys.executable, "lib/../server.py"]

    control = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True).stdout

    assert (control, os.path.normpath(command[1])) == ("elsewhere/server.py\n", "server.py")
    assert read_program(command, str(project)).problem == (
        "lib/../server.py is reached by `..` after a symbolic link; write its path without `..`"
    )
    assert read_program(["sh", "-c", "cd lib/.. && node server.py"], str(project)).problem
    assert [*read_program(["python", "folder/../server.py"], str(project)).files] == ["server.py"]


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    ("files", "command", "changed"),
    [
        ({"x.js": "require(`./y`)", "y.js": ""}, "node x.js", "y.js"),
        ({"x.mjs": "await import(\n  './y.mjs')", "y.mjs": ""}, "node x.mjs", "y.mjs"),
        ({"x.js": "new Worker('./y.js')", "y.js": ""}, "node x.js", "y.js"),
        (
            {"x.js": "require('./lib')", "lib/package.json": '{"main": "y"}', "lib/y.js": ""},
            "node x.js",
            "lib/y.js",
        ),
        ({"x.js": "require('./lib')", "lib/package.json": '{"main": "y"}'}, "node x.js", "lib/package.json"),
        ({"x.js": "require('./y')", "y.node": ""}, "node x.js", "y.node"),
        ({"s.py": "import a; import b", "a.py": "", "b.py": ""}, "python s.py", "b.py"),
        ({"s.py": "try: import b\nexcept: pass", "b.py": ""}, "python s.py", "b.py"),
        ({"s.py": "import a, \\\n b", "b.py": ""}, "python s.py", "b.py"),
        ({"s.py": "import_module( 'a.b')", "a/b.py": ""}, "python s.py", "a/b.py"),
        ({"s/__init__.py": "import_module('.b', 's')", "s/b.py": ""}, "python -m s", "s/b.py"),
        ({"s.py": "__import__('b')", "b.py": ""}, "python s.py", "b.py"),
        ({"x.mjs": "new Worker(new URL('a/y.js', u))", "a/y.js": ""}, "node x.mjs", "a/y.js"),
        ({"s.py": "import b", "b.abi3.so": ""}, "python s.py", "b.abi3.so"),
        ({"s.py": "import asyncio", "ssl.py": ""}, "python s.py", "ssl.py"),
        ({"../tools/s.py": "import b", "../tools/b.py": ""}, "python ../tools/s.py", "../tools/b.py"),
        ({"app/__main__.pyc": ""}, "python app", "app/__main__.pyc"),
        ({"s.pyc": ""}, "python s.pyc", "s.pyc"),
        ({"s.py": "x = 1\rimport b\r", "b.py": ""}, "python s.py", "b.py"),
        ({"s.py": "\fimport b", "b.py": ""}, "python s.py", "b.py"),
        ({"x.js": "import '#y'", "package.json": MAPPED, "lib/y.js": ""}, "node x.js", "lib/y.js"),
        ({"x.js": "import 'nj/x'", "package.json": MAPPED, "lib/x.mjs": ""}, "node x.js", "lib/x.mjs"),
        ({"src/x.js": "", "package.json": "{}"}, "node src/x.js", "package.json"),
        ({"run": "#!./tool\n", "tool": ""}, "./run", "tool"),
        (
            {"run": "#!/usr/bin/env -S node --import=./hook.mjs\n", "hook.mjs": ""},
            "sh -c 'exec ./run'",
            "hook.mjs",
        ),
        ({"opts": "-version"}, "java @opts", "opts"),
        ({"opts": "-cp x.jar Main", "x.jar": ""}, "java @opts", "x.jar"),
        ({"compose.override.yaml": ""}, "docker compose run x", "compose.override.yaml"),
        ({".yarn/releases/yarn.cjs": ""}, "yarn mcp", ".yarn/releases/yarn.cjs"),
        ({".cargo/config": ""}, "cargo run", ".cargo/config"),
        ({".mvn/jvm.config": ""}, "mvn exec:java", ".mvn/jvm.config"),
        ({"go.work": ""}, "go run .", "go.work"),
        ({".python-version": ""}, "uvx server", ".python-version"),
        *(
            ({"b/index.js": ""}, command, "b/index.js")
            for command in ("node b/index", "node ./b", "bun run b/index")
        ),
        *(({"b/index.ts": ""}, command, "b/index.ts") for command in ("tsx b/index", "npx -y tsx b/index")),
        *(
            ({"package.json": START, "b/x.js": ""}, command, "b/x.js")
            for command in (
                *(
                    "npm start",
                    "npm run start",
                    "npm --silent start",
                    "yarn start",
                    "pnpm start",
                    "bun start",
                ),
                *("npm run twice", "node --run start", "node --run=start", "sh -c 'npm start'"),
            )
        ),
        ({"server.js": "", "package.json": "{}"}, "npm start", "server.js"),
        *(
            ({"pyproject.toml": f"[{table}]\nstart = {value}", "app/cli.py": ""}, command, "app/cli.py")
            for table, value, command in (
                ("project.scripts", "'app.cli:main'", "uv run start"),
                ("tool.poetry.scripts", "'app.cli:main'", "poetry run start"),
                ("tool.pdm.scripts", "{cmd = ['python', '-m', 'app.cli']}", "pdm run start"),
                ("tool.hatch.envs.dev.scripts", "['python app/cli.py']", "hatch run dev:start"),
                ("tool.rye.scripts", "{ chain = ['python -Im app.cli'] }", "rye run start"),
            )
        ),
        ({"pixi.toml": "[tasks.go]\ncmd = 'python s.py'", "s.py": ""}, "pixi run go", "s.py"),
        ({"setup.cfg": "console_scripts =\n  go = app:main", "app.py": ""}, "uv run go", "app.py"),
        ({"Pipfile": "[scripts]\ngo = 'python s.py'", "s.py": ""}, "pipenv run go", "s.py"),
        ({"deno.json": '{"tasks": {"start": "deno run -A x.ts"}}', "x.ts": ""}, "deno task start", "x.ts"),
        ({"Makefile": "serve:\n\t@node b/index", "b/index.js": ""}, "make serve", "b/index.js"),
        ({"justfile": "serve:\n  python -m app", "app/__main__.py": ""}, "just serve", "app/__main__.py"),
        ({"app/main.py": ""}, "uvicorn app.main:app", "app/main.py"),
        ({"my-app.py": ""}, "python -Im my-app", "my-app.py"),
        ({"s.py": "import hélper", "hélper.py": ""}, "python s.py", "hélper.py"),
        ({"s.py": "import ﬁles", "files.py": ""}, "python s.py", "files.py"),
        ({"a/s.py": "from.b import c", "a/b.py": ""}, "python a/s.py", "a/b.py"),
        (
            {"s.py": "from p import *", "p/__init__.py": "__all__ = ['q']", "p/q.py": ""},
            "python s.py",
            "p/q.py",
        ),
        ({"a.jar": "", "b.jar": ""}, "java -cp a.jar:b.jar Main", "b.jar"),
        ({"b/Main.class": ""}, "java -cp b Main", "b/Main.class"),
        ({"src/main.rs": "", "Cargo.toml": ""}, "cargo run", "src/main.rs"),
        ({"cmd/x/main.go": "", "go.mod": ""}, "go run ./cmd/x", "cmd/x/main.go"),
        ({"s.py": "import b as\tc", "b.py": ""}, "python s.py", "b.py"),
        ({"s.py": "import a . b as c", "a/__init__.py": "", "a/b.py": ""}, "python s.py", "a/b.py"),
        ({"package.json": f"\ufeff{START}", "b/x.js": ""}, "npm start", "b/x.js"),
        *(
            (
                {"package.json": json.dumps({"scripts": {"start": script}}), "b c/x.js": "", "b/x.js": ""},
                "npm start",
                changed,
            )
            for script, changed in (
                ("node b/x;true", "b/x.js"),
                ('node "b/x"', "b/x.js"),
                ("true&&node b/x", "b/x.js"),
                ("node 'b c/x'", "b c/x.js"),
                ("sh -c 'node \"b/x\"; true'", "b/x.js"),
            )
        ),
        ({"b/x.js": ""}, "sh -c 'node b/x;true'", "b/x.js"),
        ({"env": ""}, "sh -c '. env; exec /usr/bin/server'", "env"),
        *(
            (
                {"Makefile": f"{line}\nserve:\n\t$(CMD)", "rules": rules, "b/x.js": ""},
                "make serve",
                changed,
            )
            for line in ("include rules", "-include rules", "sinclude other rules")
            for rules, changed in (("CMD=true", "rules"), ("CMD=node b/x", "b/x.js"))
        ),
        ({"Makefile": "serve:\n\t-@node b/x", "b/x.js": ""}, "make serve", "b/x.js"),
        ({"justfile": "import 'rules'", "rules": "serve:\n  node b/x", "b/x.js": ""}, "just serve", "b/x.js"),
        ({".yarnrc": 'yarn-path "./y"', "y": "", "package.json": START}, "yarn start", "y"),
        ({"a/b/s.py": ""}, "sh -c 'cd a && cd b && exec python3 s.py'", "a/b/s.py"),
        ({"Procfile": "web: python s.py", "s.py": ""}, "honcho start", "s.py"),
        ({"Procfile": "web: true"}, "honcho start", "Procfile"),
        ({"Procfile.test": "web: node b/x", "b/x.js": ""}, "foreman start -f Procfile.test", "b/x.js"),
        *(
            ({"Makefile": "", "rules": "serve:\n\tnode b/x", "b/x.js": ""}, f"make {option} serve", "b/x.js")
            for option in ("-f rules", "-frules", "--file=rules")
        ),
        ({"Makefile": "", "rules": "serve:\n\ttrue"}, "make -f rules serve", "rules"),
        ({"gunicorn.conf.py": "import h", "h.py": "", "app.py": ""}, "gunicorn app:app", "h.py"),
        ({".Rprofile": "source('renv/a.R')", "renv/a.R": "", "s.R": ""}, "Rscript s.R", "renv/a.R"),
        (
            {"node.config.json": "{}", "s.js": ""},
            "node --experimental-default-config-file s.js",
            "node.config.json",
        ),
        ({".env": "", "s.py": ""}, "dotenv run -- python s.py", ".env"),
        ({".env.local": "", "s.py": ""}, "dotenv -f .env.local run python s.py", ".env.local"),
        ({"a b/s.py": ""}, "sh -c 'cd \"a b\" && exec python3 s.py'", "a b/s.py"),
        # Code in the command itself.
        *(
            ({"app/s.py": "import b", "b.py": "", "run": ""}, command, changed)
            for command, changed in (
                ("python3 -c 'import app.s'", "b.py"),
                ("python3 -c 'from app import s; s.main()'", "b.py"),
                ("python3 '-cimport app.s'", "b.py"),
                ("python3 -c '__import__(\"app.s\")'", "b.py"),
                ("python3 -c 'exec(open(\"run\").read())'", "run"),
                ("""sh -c 'exec python3 -c "import app.s"'""", "b.py"),
            )
        ),
        ({"b/x.js": ""}, """node -e 'require("./b/x")'""", "b/x.js"),
        ({"hook.rb": "", "s.rb": ""}, "ruby -r./hook s.rb", "hook.rb"),
        # Shell scripts.
        *(
            ({"bin/run.sh": script, "b/x.js": "", "bin/x.py": "", "lib.sh": ""}, command, changed)
            for script, changed in (
                ("exec node b/x", "b/x.js"),
                ('DIR="$(cd "$(dirname "$0")/.." && pwd)"\nexec node "$DIR/b/x"', "b/x.js"),
                ('exec python3 "$(dirname "$0")/x.py"', "bin/x.py"),
                ('exec python3 "${HERE}/x.py"', "bin/x.py"),
                (". ./lib.sh", "lib.sh"),
            )
            for command in ("sh bin/run.sh", "bin/run.sh")
        ),
        (
            {"run": "#!/bin/sh\ncd b && npm start", "b/package.json": START, "b/b/x.js": ""},
            "./run",
            "b/b/x.js",
        ),
        # Local packages, and what builds them.
        *(
            (
                {
                    "sub/pyproject.toml": f"{text}[project.scripts]\ngo = 'app.cli:main'",
                    **dict.fromkeys(paths, ""),
                },
                command,
                changed,
            )
            for text in ("[build-system]\nbuild-backend = 'own'\nbackend-path = ['tools']\n",)
            for paths in (("sub/app/cli.py", "sub/tools/own.py"),)
            for command in ("uvx --from ./sub go", "uv run --directory sub go", "pipx run --spec ./sub go")
            for changed in paths
        ),
        (
            {"pyproject.toml": "[tool.uv.sources]\ndep = {path = './dep'}", "dep/setup.py": "", "s.py": ""},
            "uv run s.py",
            "dep/setup.py",
        ),
        (
            {
                "node_modules/@o/s/package.json": '{"bin": {"other": "cli.js"}}',
                "node_modules/@o/s/cli.js": "",
            },
            "npx -y @o/s",
            "node_modules/@o/s/cli.js",
        ),
        # Files that runners find by themselves, and what these name.
        (
            {"compose.yaml": "services: {s: {build: ./s}}", "s/Dockerfile": ""},
            "docker compose up",
            "s/Dockerfile",
        ),
        ({"flake.nix": "x"}, "nix run .#server", "flake.nix"),
        ({"vite.config.ts": "", "s.ts": ""}, "npx vite-node s.ts", "vite.config.ts"),
        ({"package.json": START, "b/x.js": ""}, "npx concurrently npm:other npm:start", "b/x.js"),
        (
            {"map.json": '{"imports": {"a": "./a.ts"}}', "a.ts": "", "s.ts": ""},
            "deno run --import-map=map.json s.ts",
            "a.ts",
        ),
        (
            {"tsconfig.json": '{"extends": "./base.json"}', "base.json": "", "s.ts": ""},
            "tsx s.ts",
            "base.json",
        ),
        ({".env.local": "", "s.ts": ""}, "bun s.ts", ".env.local"),
        (
            {".env": "NODE_OPTIONS=--require ./x.js", "s.js": "", "x.js": ""},
            "node --env-file=.env s.js",
            "x.js",
        ),
        (
            {"node.config.json": '{"nodeOptions": {"import": ["./x.mjs"]}}', "s.js": "", "x.mjs": ""},
            "node --experimental-default-config-file s.js",
            "x.mjs",
        ),
        (
            {
                "Cargo.toml": "",
                ".cargo/config.toml": "[target.'cfg(unix)']\nrunner = './x'",
                "x": "#!/bin/sh",
            },
            "cargo run",
            "x",
        ),
        ({"mise.toml": "", "mise-tasks/serve": "#!/bin/sh"}, "mise run serve", "mise-tasks/serve"),
        ({".config/mise.toml": "[tasks.serve]\nrun = 'sh x.sh'", "x.sh": ""}, "mise run serve", "x.sh"),
        (
            {
                "s.py": '# /// script\n# [tool.uv.sources]\n# foo = { path = "./foo" }\n# ///\nimport foo',
                "foo/setup.py": "",
            },
            "uv run s.py",
            "foo/setup.py",
        ),
    ],
)
def test_what_a_program_loads_is_part_of_it(
    tmp_path: Path, files: dict[str, str], command: str, changed: str
):
    project = tmp_path / "project"
    project.mkdir()
    for path, content in files.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(content)
    before = read_program(shlex.split(command), str(project))
    (project / changed).write_text('{"name": "evil"}' if changed.endswith("package.json") else "evil")
    after = read_program(shlex.split(command), str(project))

    assert describe_change(before.parts, after) == f"{quote_path(changed)} changed"
    assert before.digest != after.digest


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("npm start", "npm runs what a file in the project's folder says, and no such file was found."),
        ("deno task dev", "deno runs what a file in the project's folder says"),
        ("make serve", "make runs what a file in the project's folder says"),
        ("honcho start", "honcho runs what a file in the project's folder says"),
        ("npm run start -w server", "with '-w', npm runs another package of the project."),
        ("pnpm --filter=server start", "with '--filter', pnpm runs another package of the project."),
        ("yarn workspace server start", "with 'workspace', yarn runs another package of the project."),
        # These run what is not in the project, or nothing that a file in it decides.
        *(
            (command, "")
            for command in ("npx -y some-package", "uvx some-server --package x", "node /opt/x.js")
        ),
        *(
            (command, "")
            for command in ("python -m installed", "go run example.org/x@v1", "npm run x --prefix /opt/x")
        ),
        ("uv run s.py --package x", ""),
    ],
)
def test_command_that_hides_what_it_runs_is_refused_with_advice(tmp_path: Path, command: str, told: str):
    problem = read_program(shlex.split(command), str(tmp_path)).problem

    assert problem.startswith(told)
    assert bool(problem) == bool(told)
    assert not told or "Write the command that" in problem


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    ("files", "command", "told"),
    [
        ({"package.json": START + "/* */"}, "npm start", "package.json is not a valid JSON object"),
        ({"package.json": "[" * 100_000}, "npm start", "package.json is not a valid JSON object"),
        ({"package.json": START + " " * 300_000}, "npm start", "package.json is more than 262144 bytes"),
        ({"package.json": START.encode("utf-16")}, "npm start", "package.json is not UTF-8 text"),
        ({"package.json": "[]", "x.js": ""}, "node x.js", "package.json is not a valid JSON object"),
        ({"Makefile": "#" * 300_000}, "make serve", "Makefile is more than 262144 bytes"),
        ({"Makefile": b"serve:\n\t\xe9"}, "make serve", "Makefile is not UTF-8 text"),
        ({"pyproject.toml": "#" * 300_000}, "uv run serve", "pyproject.toml is more than 262144 bytes"),
        *(
            ({"package.json": START, ".npmrc": f"; mine\n{line}\n"}, "npm start", f".npmrc is a file {told}")
            for line, told in (
                ("node-options=--require ./hook.js", "with the setting 'node-options'"),
                ("workspace = lib", "with the setting 'workspace'"),
                ("workspace[]=lib", "with the setting 'workspace[]'"),
                ("script-shell=./sh", "with the setting 'script-shell'"),
                ("x=y\rscript_shell=./sh", "with the setting 'script_shell'"),
                (
                    '"node\\u002doptions"=x',
                    "with a quote, a backslash or a `$` in the name of a setting, in line 2; remove this line",
                ),
                (
                    "${X}=x",
                    "with a quote, a backslash or a `$` in the name of a setting, in line 2; remove this line",
                ),
            )
        ),
        # The controls: the same files, if they can be read and run nothing else.
        ({"package.json": START}, "npm start", ""),
        (
            {
                "package.json": START,
                ".npmrc": "# mine\n@a:registry=https://r/\n//r/:_authToken=${TOKEN}\nfund=false",
            },
            "npm start",
            "",
        ),
        ({"Makefile": "serve:\n\ttrue"}, "make serve", ""),
    ],
)
def test_program_whose_manifest_cannot_be_read_as_a_whole_is_refused(
    tmp_path: Path, files: dict[str, str | bytes], command: str, told: str
):
    for path, content in files.items():
        (tmp_path / path).write_bytes(content if isinstance(content, bytes) else content.encode())

    problem = read_program(shlex.split(command), str(tmp_path)).problem

    assert (told in problem, bool(problem)) == (True, bool(told))


@pytest.mark.slow
def test_names_that_a_task_file_computes_and_words_that_are_not_checked_are_noted(tmp_path: Path):
    (tmp_path / "Makefile").write_text("include $(wildcard *.x)")
    (tmp_path / "a.py").touch()

    (tmp_path / "many.sh").write_text("".join(f"sh s{number}.sh\n" for number in range(600)))
    for number in range(600):
        (tmp_path / f"s{number}.sh").write_text(f"echo {number}")

    assert read_program(["make"], str(tmp_path)).is_partial
    assert read_program(["sh", "many.sh"], str(tmp_path)).is_partial
    assert read_program(["sh", "-c", "true " * 3000 + "; python a.py"], str(tmp_path)).is_partial
    assert not read_program(["sh", "-c", "true; python a.py"], str(tmp_path)).is_partial


def test_source_in_an_unusual_encoding_is_approved_with_a_note(tmp_path: Path):
    (tmp_path / "s.py").write_bytes(b"# coding: utf-7\nimport b")
    (tmp_path / "t.py").write_bytes("# coding: latin-1\nimport \xe9".encode("latin-1"))
    (tmp_path / "é.py").touch()

    assert read_program(["python", "s.py"], str(tmp_path)).is_partial
    known = read_program(["python", "t.py"], str(tmp_path))
    assert (sorted(known.files), known.is_partial) == (["t.py", "é.py"], False)


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize("command", ["python s.py", "python -m s", "python -c 'import s'"])
def test_new_module_beside_a_program_is_noticed(tmp_path: Path, command: str):
    (tmp_path / "s.py").touch()
    (tmp_path / "data.txt").touch()
    before = read_program(shlex.split(command), str(tmp_path))
    (tmp_path / "more.txt").touch()
    data = read_program(shlex.split(command), str(tmp_path))
    (tmp_path / "new.py").touch()
    after = read_program(shlex.split(command), str(tmp_path))

    assert before.digest == data.digest
    assert describe_change(before.parts, after) == "new.py is new"


@pytest.mark.parametrize(
    "source",
    [
        "#" * 300_000 + "\nimport b",
        "import " + "a." * 40 + "b",
        f"import {'é' * 1001}",
    ],
)
def test_program_with_more_imports_than_are_checked_says_so(tmp_path: Path, source: str):
    (tmp_path / "s.py").write_text(source)
    (tmp_path / "/".join("a" * 40)).mkdir(parents=True)
    (tmp_path / "short.py").write_text("import b")

    assert read_program(["python", "s.py"], str(tmp_path)).is_partial
    assert not read_program(["python", "short.py"], str(tmp_path)).is_partial


@pytest.mark.promise("RES-07")
@pytest.mark.parametrize(
    "source",
    [
        "from a import (" + "b, " * 1000 + "c)",
        "\n".join(f"import a{number}, b{number}, c{number}" for number in range(4000)) + "\nimport a.c",
    ],
)
def test_module_after_many_imports_is_part_of_the_program(tmp_path: Path, source: str):
    (tmp_path / "s.py").write_text(source)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "c.py").touch()
    program = read_program(["python", "s.py"], str(tmp_path))

    assert ([*program.files], program.is_partial) == (["s.py", "a/c.py"], False)


def test_cost_of_a_long_module_name_is_limited():
    def cost(name: str) -> int:
        return sum(map(len, python_module_candidates("/folder", name)))

    def old_cost(name: str) -> int:
        parts = name.split(".")
        return sum(len(".".join(parts[:length])) for length in range(1, len(parts) + 1))

    short, long = "m." * 1000 + "m", "m." * 4000 + "m"

    assert cost(short) == cost(long)
    assert old_cost(long) > 10 * old_cost(short)
    assert not [*python_module_candidates("/folder", f"{'m' * 256}.x")]


@pytest.mark.slow
@pytest.mark.promise("RES-15")
def test_changed_source_is_not_searched_for_imports(tmp_path: Path):
    command = ["python", "s.py"]
    (tmp_path / "s.py").touch()
    approved = {part: {digest} for part, digest in read_program(command, str(tmp_path)).parts.items()}
    names = (".".join(f"a{number}_{depth}" for depth in range(30)) for number in range(400))
    (tmp_path / "s.py").write_text("\n".join(f"import {name}" for name in names))

    def search(known: Mapping[str, Collection[str]] | None) -> str:
        return read_program(command, str(tmp_path), approved=known).unapproved_part

    assert search(approved) == "s.py"
    assert count_calls(lambda: search(approved)) * 5 < count_calls(lambda: search(None)), "control"


@pytest.mark.promise("RES-15")
def test_servers_of_one_project_share_the_limit_of_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.resolve.file_hashes.MAX_BYTES", 1000)
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("#" * 600)
    hashes = FileHashes()

    problems = [
        read_program(["python", name, number], str(tmp_path), hashes=hashes).problem
        for name, number in (("a.py", "1"), ("a.py", "2"), ("b.py", "3"))
    ]
    control = read_program(["python", "b.py"], str(tmp_path)).problem

    assert problems == ["", "", f"{tmp_path}/b.py is too large (more than 1000 bytes in all)"]
    assert control == ""


def test_program_that_takes_too_long_to_read_is_refused(tmp_path: Path):
    (tmp_path / "s.py").write_text("import b")

    refused = read_program(["python", "s.py"], str(tmp_path), hashes=FileHashes(seconds=-1))

    assert refused.problem.endswith(" is part of a program that takes too long to read")


@pytest.mark.parametrize(
    ("files", "command", "program"),
    [
        ({"run.sh": "", "data.db": ""}, "bash run.sh data.db", "run.sh"),
        ({"run": "#!/bin/sh"}, "./run", "run"),
        ({"pkg/__main__.py": "", "pkg/__init__.py": ""}, "python -m pkg", "pkg/__init__.py pkg/__main__.py"),
        ({"x.js": "require('./y')", "y.js": "", "z.js": ""}, "node x.js", "x.js y.js"),
        ({"package.json": '{"bin": "cli.mjs"}', "cli.mjs": ""}, "npx .", "cli.mjs package.json"),
        ({"package.json": '{"scripts": {"mcp": "node s"}}', "s": ""}, "npm run mcp", "package.json s"),
        ({"package.json": "{}", ".npmrc": ""}, "npx -y some-package .", ".npmrc"),
        (
            {"pyproject.toml": '[project.scripts]\nserve = "app.cli:main"', "src/app/cli.py": ""},
            "uv run serve",
            "pyproject.toml src/app/cli.py",
        ),
        ({"sub/s.py": "from . import t", "sub/t.py": ""}, "uv run --directory sub s.py", "sub/s.py sub/t.py"),
        ({"a.py": "", "b.py": ""}, "env X=1 sh -c 'python a.py && python b.py'", "a.py b.py"),
        ({"hook.cjs": "", "s.js": ""}, "node --require=./hook.cjs s.js", "hook.cjs s.js"),
        ({"server.py": ""}, "fastmcp run server.py:app", "server.py"),
    ],
)
def test_program_is_what_the_command_names_in_the_project(
    tmp_path: Path, files: dict[str, str], command: str, program: str
):
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)

    assert sorted(read_program(shlex.split(command), str(tmp_path)).files) == program.split()
