"""Find what the words of a command can name: files, packages and modules. Also which files its launchers read.

A *launcher* is a program that starts another one or runs scripts: `npx`, `uv`, `make`. No words are executed or expanded here.
Words that name nothing do no harm, so the functions return too many items rather than too few.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import PurePosixPath

# Files with these suffixes are code, or settings that can name code.
CODE_SUFFIXES = frozenset(
    (
        *(".bash", ".bat", ".cfg", ".cjs", ".class", ".cmd", ".conf", ".cts", ".dll", ".env", ".exe"),
        *(".fish", ".go", ".ini", ".jar", ".js", ".json", ".jsonc", ".jsx", ".ksh", ".kts", ".lua"),
        *(".mjs", ".mk", ".mts", ".phar", ".php", ".pl", ".ps1", ".py", ".pyc", ".pyw", ".pyz", ".r"),
        *(".rb", ".sh", ".so", ".toml", ".ts", ".tsx", ".wasm", ".whl", ".yaml", ".yml", ".zsh"),
    )
)
DATA_SUFFIXES = frozenset(
    (
        *(".db", ".db3", ".duckdb", ".sqlite", ".sqlite3", ".csv", ".tsv", ".parquet", ".jsonl", ".ndjson"),
        *(".log", ".md", ".pdf", ".png", ".jpg", ".svg", ".xlsx", ".docx", ".pem", ".crt", ".key", ".pid"),
    )
)
"""Nothing executes files with these suffixes unless a command says so."""
_INTERPRETER = re.compile(
    r"(?:python|pypy|pythonw)[0-9.]*|node|nodejs|deno|bun|tsx|ts-node|(?:ba|da|z|k|fi|a|c|tc|mk|ya)?sh|ruby|perl|php|lua[0-9.]*|java|"
    r"Rscript|pwsh|powershell|osascript|julia|source|busybox|dotnet|[gmn]?awk|expect|tclsh[0-9.]*|wish|guile|racket|escript|"
    r"elixir|groovy|gjs|qjs|bb|nu|xonsh|elvish"
)
SHELL = re.compile(r"(?:ba|da|z|k|fi|a|c|tc|mk|ya)?sh|busybox|source")
"""Matches the names of shells."""
# Programs whose arguments are names of scripts in a manifest: `concurrently npm:build npm:serve`.
_SCRIPT_LISTS = frozenset(("concurrently", "npm-run-all", "run-s", "run-p"))
_PACKAGE_RUNNERS = frozenset(
    (
        *("npx", "bunx", "pnpx", "npm", "pnpm", "yarn", "bun", "uv", "uvx", "pipx"),
        *("poetry", "pdm", "hatch", "pipenv", "rye", "pixi", "mise", "poe", *_SCRIPT_LISTS),
    )
)
_PROJECT_BUILDERS = frozenset(
    ("uv", "poetry", "pdm", "hatch", "rye", "pixi", "pipenv", "tox", "nox", "pip", "pip3")
)
_NPM_FILES = (".npmrc",)
_PNPM_FILES = (*_NPM_FILES, "package.json", ".pnpmfile.cjs", "pnpm-workspace.yaml")
_PYTHON_VERSION_FILES = (".python-version", ".python-versions")
_UV_FILES = ("pyproject.toml", "uv.lock", "uv.toml", *_PYTHON_VERSION_FILES)
_MISE_FILES = (
    *("mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", "mise/config.toml"),
    *(".mise/config.toml", ".config/mise.toml", ".config/mise/config.toml"),
)
_MISE_FOLDERS = ("mise-tasks/", ".mise-tasks/", "mise/tasks/", ".mise/tasks/", ".config/mise/tasks/")
_PROCFILES = ("Procfile", "Procfile.dev", ".env", ".foreman", ".overmind.env")
_PROCFILE_RUNNERS = ("honcho", "foreman", "goreman", "forego", "overmind", "hivemind")
_COMPOSE_FILES = tuple(
    f"{name}{part}.{suffix}"
    for name in ("compose", "docker-compose")
    for part in ("", ".override")
    for suffix in ("yaml", "yml")
)
# The files that a launcher reads in its working folder, and that can decide what runs. A name with `/` at its end is a
# folder, and stands for all files in it.
_LAUNCHER_FILES: dict[str, tuple[str, ...]] = {
    "npx": _NPM_FILES,
    "npm": (*_NPM_FILES, "package.json"),
    **dict.fromkeys(("pnpm", "pnpx"), _PNPM_FILES),
    "yarn": (
        *(*_NPM_FILES, "package.json", ".yarnrc", ".yarnrc.yml", ".pnp.cjs", ".pnp.loader.mjs"),
        *(".yarn/releases/", ".yarn/plugins/"),
    ),
    **dict.fromkeys(
        ("bun", "bunx"),
        (
            *(*_NPM_FILES, "package.json", "bunfig.toml", "tsconfig.json", ".env", ".env.local"),
            *(".env.development", ".env.production", ".env.test"),
        ),
    ),
    **dict.fromkeys(("tsx", "ts-node"), ("package.json", "tsconfig.json")),
    **dict.fromkeys(_SCRIPT_LISTS, ("package.json",)),
    "deno": ("deno.json", "deno.jsonc", "deno.lock", "package.json", *_NPM_FILES),
    "uv": (*_UV_FILES, "setup.py", "setup.cfg"),
    "uvx": _UV_FILES,
    "poetry": ("pyproject.toml", "poetry.lock", "poetry.toml"),
    "pipenv": ("Pipfile", "Pipfile.lock", ".env"),
    **dict.fromkeys(
        ("hatch", "pdm", "rye", "pixi", "tox", "nox"),
        ("pyproject.toml", "tox.ini", "noxfile.py", "hatch.toml", "pixi.toml", "pdm.toml", ".python-version"),
    ),
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    "just": ("justfile", "Justfile", ".justfile", ".env"),
    "task": ("Taskfile.yml", "Taskfile.yaml", "Taskfile.dist.yml", "Taskfile.dist.yaml"),
    "cargo": ("Cargo.toml", "build.rs", "rust-toolchain", "rust-toolchain.toml", ".cargo/"),
    "go": ("go.mod", "go.work", "main.go"),
    "bundle": ("Gemfile", "Gemfile.lock", ".bundle/"),
    "rake": ("Rakefile", "rakefile", "Rakefile.rb"),
    **dict.fromkeys(("mvn", "mvnw"), ("pom.xml", ".mvn/", ".mvn/wrapper/")),
    **dict.fromkeys(
        ("gradle", "gradlew"),
        (
            *("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
            *("gradle.properties", "gradle/", "gradle/wrapper/"),
        ),
    ),
    **dict.fromkeys(
        ("docker", "docker-compose", "podman", "podman-compose"),
        (*_COMPOSE_FILES, "Dockerfile", "Containerfile", ".env"),
    ),
    "asdf": (".tool-versions",),
    "mise": (*_MISE_FILES, *_MISE_FOLDERS, ".tool-versions"),
    "direnv": (".envrc", ".env"),
    "poe": ("pyproject.toml", "poe_tasks.toml"),
    **dict.fromkeys(("invoke", "inv"), ("tasks.py", "invoke.yaml")),
    "fab": ("fabfile.py",),
    "doit": ("dodo.py",),
    "flask": ("app.py", "wsgi.py", ".flaskenv", ".env"),
    "composer": ("composer.json",),
    "gunicorn": ("gunicorn.conf.py",),
    **dict.fromkeys(("R", "Rscript"), (".Rprofile", ".Renviron")),
    "julia": ("Project.toml", "Manifest.toml", "LocalPreferences.toml"),
    **dict.fromkeys(("node", "nodejs"), ("node.config.json",)),
    "nodemon": ("nodemon.json", "package.json"),
    **dict.fromkeys(("dotenv", "dotenvx"), (".env",)),
    **dict.fromkeys(
        ("nix", "nix-shell", "nix-build"), ("flake.nix", "flake.lock", "shell.nix", "default.nix")
    ),
    "devbox": ("devbox.json", "devbox.lock"),
    "devenv": ("devenv.nix", "devenv.yaml", "devenv.lock"),
    **dict.fromkeys(
        ("bazel", "bazelisk"),
        ("BUILD", "BUILD.bazel", "WORKSPACE", "WORKSPACE.bazel", "MODULE.bazel", ".bazelrc"),
    ),
    "ant": ("build.xml",),
    "sbt": ("build.sbt", "project/"),
    "lein": ("project.clj",),
    **dict.fromkeys(("clojure", "clj"), ("deps.edn",)),
    "scons": ("SConstruct",),
    "ninja": ("build.ninja",),
    "dart": ("pubspec.yaml", "pubspec.lock"),
    "gulp": ("gulpfile.js", "gulpfile.mjs", "gulpfile.cjs", "gulpfile.ts"),
    "grunt": ("Gruntfile.js", "Gruntfile.cjs"),
    **dict.fromkeys(("pm2", "pm2-runtime"), ("ecosystem.config.js", "ecosystem.config.cjs")),
    "wrangler": ("wrangler.toml", "wrangler.json", "wrangler.jsonc"),
    **dict.fromkeys(
        ("nx", "turbo", "lerna"), ("package.json", "nx.json", "project.json", "turbo.json", "lerna.json")
    ),
    **dict.fromkeys(_PROCFILE_RUNNERS, _PROCFILES),
}
SETTINGS_SUFFIXES = frozenset((".json", ".jsonc", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".env"))
"""Files of settings. A program does not load the code next to them, unless they are a launcher's manifest."""
MANIFEST_NAMES = frozenset(name for names in _LAUNCHER_FILES.values() for name in names)
"""The names of the files that launchers read. Code in their folder runs because of them."""
# Files that contain commands. The files of the project that these commands name belong to the program, too.
TASK_FILES = frozenset(
    (
        *("GNUmakefile", "makefile", "Makefile", "justfile", "Justfile", ".justfile", "Rakefile", "rakefile"),
        *("Taskfile.yml", "Taskfile.yaml", "Taskfile.dist.yml", "Taskfile.dist.yaml", "tox.ini", "Pipfile"),
        *("deno.json", "deno.jsonc", "poe_tasks.toml", "composer.json", ".envrc"),
        *(".env", ".env.local", ".flaskenv", "node.config.json"),  # `NODE_OPTIONS=--require ./x.js`
        *(*_MISE_FILES, ".cargo/config.toml", ".cargo/config"),
        *(
            "Dockerfile",
            "Containerfile",
            *_COMPOSE_FILES,
            "Procfile",
            "Procfile.dev",
            ".Rprofile",
            "nodemon.json",
        ),
        *(".npmrc", "pnpm-workspace.yaml", ".yarnrc", ".yarnrc.yml", "bunfig.toml", "tsconfig.json"),
        *(
            "flake.nix",
            "shell.nix",
            "default.nix",
            "devbox.json",
            "build.xml",
            "nx.json",
            "project.json",
            "turbo.json",
        ),
    )
)
# Programs that can be told which task file to read: `make -f rules`.
_TASK_RUNNERS = frozenset(
    (
        *("make", "gmake", "just", "task", "rake", *_PROCFILE_RUNNERS),
        *("docker", "docker-compose", "podman", "podman-compose"),
    )
)
NPM_SETTINGS_FILES = frozenset((".npmrc", "pnpm-workspace.yaml"))
VERSION_FILES = (
    *(".tool-versions", *_MISE_FILES, ".prototools"),
    *(*_PYTHON_VERSION_FILES, ".node-version", ".nvmrc", ".ruby-version", ".java-version", ".go-version"),
)
"""The files that version managers read in the working folder: which version of a program they run."""
PACKAGE_SOURCE_FILES = (".npmrc", "pnpm-workspace.yaml", "uv.toml", "bunfig.toml", ".yarnrc", ".yarnrc.yml")
"""The files of settings that say from where packages are fetched."""
_JVM_SUFFIXES = (".java", ".kt", ".kts", ".scala", ".groovy", ".class", ".jar")
# Launchers that compile and run, or load, all sources in the folder, not only the files that the command names.
_SOURCE_SUFFIXES: dict[str, tuple[str, ...]] = {
    "cargo": (".rs", ".toml"),
    "go": (".go", ".mod", ".sum", ".s", ".c", ".h"),
    "dotnet": (".cs", ".fs", ".vb", ".csproj", ".fsproj", ".vbproj", ".props", ".targets"),
    **dict.fromkeys(("java", "gradle", "gradlew", "mvn", "mvnw"), _JVM_SUFFIXES),
    "swift": (".swift",),
    "zig": (".zig", ".zon"),
    "mix": (".ex", ".exs"),
}
_COMPLETE_PROGRAMS = (".jar", ".dll", ".war")  # `java -jar x.jar` and `dotnet x.dll` load no source files
# With these subcommands, these programs run what a file in their working folder, or in a folder above it, says. `""` stands for
# any subcommand.
_SCRIPT_RUNNERS = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("run", "run-script", "start", "test")),
    "deno": ("task",),
    **dict.fromkeys(("node", "nodejs"), ("--run",)),
    **dict.fromkeys(("make", "gmake", "just", "task", "rake", "invoke", "inv", "fab", "doit", "poe"), ("",)),
    **dict.fromkeys(_PROCFILE_RUNNERS, ("start",)),
    **dict.fromkeys(("cargo", "go", "dotnet", "mix", "swift"), ("run",)),
    **dict.fromkeys(("gradle", "gradlew", "mvn", "mvnw"), ("",)),
}
# With these options, a launcher runs a script of another package in the project.
_OTHER_PACKAGE_OPTIONS = {
    "npm": ("-w", "--workspace", "-ws", "--workspaces"),
    "pnpm": ("-F", "--filter", "-w", "--workspace-root", "-r", "--recursive"),
    "yarn": ("workspace", "workspaces"),
    "bun": ("-F", "--filter"),
    "uv": ("--package", "--all-packages"),
}
# The files in a package's folder that can decide what runs, besides those that its package.json names.
PACKAGE_FILES = (
    *("package.json", "index.js", "index.mjs", "index.cjs", "index.ts"),
    *("index.json", "index.node", "__main__.pyc", "__init__.pyc"),
    *("__main__.py", "__init__.py", "pyproject.toml", "setup.py", "setup.cfg", "uv.lock"),
)
_FOLDER_OPTIONS = frozenset(
    (
        *("--directory", "--project", "--prefix", "--cwd", "--dir", "-C", "--workdir", "--app-dir"),
        *("--chdir", "cd", "pushd"),
    )
)
# JavaScript tools run a file that is named after them: `vite-node` runs vite.config.ts.
_CONFIG_SUFFIXES = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts")
_TOOL_NAME = re.compile(r"[a-z][a-z0-9-]{1,40}")
_TOOL_SETTINGS_SUFFIXES = (".json", ".jsonc", ".toml", ".yaml", ".yml", ".ini", ".cfg", ".conf")
_TOOLS_WITH_OTHER_CONFIG = {"vite-node": "vite", "vitest": "vite"}
_MAX_TOOLS = 20
_JAVASCRIPT_RUNNERS = frozenset(
    ("npx", "bunx", "pnpx", "npm", "pnpm", "yarn", "bun", "node", "nodejs", "tsx")
)
_SUBCOMMANDS = frozenset({"run", "exec", "x", "dlx", "start", "tool", "task", "script", "run-script"})
# Options of launchers that take no value; the word after any other option may be its value.
_FLAGS = frozenset(
    (
        *("-y", "--yes", "-q", "--quiet", "-s", "--silent", "-u", "-I", "-S", "-E", "-B", "-O", "-OO"),
        *("-P", "--isolated", "--"),
    )
)
_PYTHON = re.compile(r"(?:python|pypy|pythonw)[0-9.]*t?")
_RELATIVE_BYTECODE = re.compile(r"pycache_prefix=(?!/)")  # `-X pycache_prefix=.cache`
_OPTION_C_OR_M = re.compile(r"-[bBdEhiIOPqRsSuvVx?]*[cm]")  # after any flags: `-Im`
_OPTION_C = re.compile(r"^-[bBdEhiIOPqRsSuvVx?]*c")  # with its value in the same word: `-cimport server`
_SHELL_SEPARATORS = re.compile(r"[\s;&|()<>\"'`]+")
_OPTION_M = re.compile(r"-[bBdEhiIOPqRsSuvVx?]*m([^/]*)")
_MODULE = re.compile(r"\w+(?:\.\w+)*")
_URL_SUFFIX = re.compile(r"[?#].*", re.DOTALL)
# What a shell replaces: patterns, braces, variables, `$'…'`, commands in backticks and `~`.
_PATTERN = re.compile(r"[*?{$`~]|\[.")
_EXPANDS_PATTERNS = frozenset(("find", "fd", "xargs", "parallel", "watchexec", "entr"))
_MAX_PATHS_IN_WORD = 100
_MAX_SHELL_TEXT = 65536
MAX_WORDS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A word that may be the path of a file."""

    path: str
    is_program: bool = False
    """Whether the command may run the file. If not, the file belongs to the program only if it is code or executable."""
    runner: str = ""
    """The interpreter or launcher that runs the file; empty if the file is the command itself, or if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPackage:
    """A word that may be a folder, a local package, or a script in a manifest."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModule:
    """A module that Python runs (`-m`)."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCode:
    """Code in the command itself: `python -c 'import server'`."""

    text: str


NamedItem = NamedFile | NamedPackage | NamedModule | NamedCode


def base_folders(argv: Sequence[str]) -> list[str]:
    """The folders that the command changes into: `uv run --directory server …`."""
    words = [*_words(argv)]
    folders = [after for word, after in pairwise(words) if word in _FOLDER_OPTIONS]
    for word in words:
        option, equals, value = word.partition("=")
        if equals and option in _FOLDER_OPTIONS:
            folders.append(value)
    return folders


def launcher_files(argv: Sequence[str]) -> list[str]:
    """The files that the command's launchers read in their working folder, if they exist."""
    programs = dict.fromkeys(program_name(word) for word in _words(argv))
    names = [name for program in programs for name in _LAUNCHER_FILES.get(program, ())]
    if not programs.keys() & _JAVASCRIPT_RUNNERS:
        return names
    tools = [program for program in programs if _TOOL_NAME.fullmatch(program)][:_MAX_TOOLS]
    tools += [_TOOLS_WITH_OTHER_CONFIG[tool] for tool in tools if tool in _TOOLS_WITH_OTHER_CONFIG]
    names += (f"{tool}.config{suffix}" for tool in tools for suffix in _CONFIG_SUFFIXES)
    names += (f".{tool}rc{suffix}" for tool in tools for suffix in _CONFIG_SUFFIXES[:3])
    return names


def tool_settings(argv: Sequence[str]) -> list[str]:
    """The files with settings that the command's programs may look for in their working folder, named after them: `fastmcp.json`."""
    programs = dict.fromkeys(program_name(word) for word in _words(argv))
    tools = [program for program in programs if _TOOL_NAME.fullmatch(program)][:_MAX_TOOLS]
    names = [f"{tool}{suffix}" for tool in tools for suffix in _TOOL_SETTINGS_SUFFIXES]
    names += (f".{tool}{suffix}" for tool in tools for suffix in _TOOL_SETTINGS_SUFFIXES)
    names += (f".{tool}rc{suffix}" for tool in tools for suffix in ("", *_TOOL_SETTINGS_SUFFIXES))
    return names


def names_files_by_pattern(argv: Sequence[str]) -> bool:
    """Whether a pattern or variable in the command stands for files that it may run: `sh -c 'python serv*.py'`."""
    words = [*_words(argv)]
    can_expand = any(SHELL.fullmatch(name) or name in _EXPANDS_PATTERNS for name in map(program_name, words))
    return can_expand and any(_PATTERN.search(word) for word in words)


def runs_task_files(argv: Sequence[str]) -> bool:
    """Whether a file that the command names may contain commands under any name: `make -f rules`."""
    return any(program_name(word) in _TASK_RUNNERS for word in _words(argv))


def reads_import_maps(argv: Sequence[str]) -> bool:
    """Whether a JSON file that the command names may map names to modules: `deno run --import-map=map.json main.ts`."""
    return any(program_name(word) in ("deno", "bun", "tsx", "ts-node") for word in _words(argv))


def builds_project(argv: Sequence[str]) -> bool:
    """Whether the command may build and install the Python project in its working folder. `uvx` does not."""
    words = [*_words(argv)]
    return any(
        program_name(word) in _PROJECT_BUILDERS and words[at + 1 : at + 2] != ["tool"]
        for at, word in enumerate(words)
    )


def is_manifest(name: str) -> bool:
    """Whether launchers read files with this name, or a variant of it: `Procfile.test`, `.env.local`."""
    return name in MANIFEST_NAMES or name.startswith((".env.", "Procfile.", "Makefile.", "Dockerfile."))


def source_suffixes(argv: Sequence[str]) -> tuple[str, ...]:
    """The suffixes of all the files below the working folder that the command may compile and run; empty for most commands."""
    words = [*_words(argv)]
    if any(word.endswith(_COMPLETE_PROGRAMS) for word in words):
        return ()
    suffixes: list[str] = []
    for at, word in enumerate(words):
        name = program_name(word)
        subcommands = _SCRIPT_RUNNERS.get(name, ("",))
        if name in _SOURCE_SUFFIXES and (
            at == 0 or any(sub in words[at + 1 : at + 4] for sub in subcommands)
        ):
            suffixes += _SOURCE_SUFFIXES[name]
    return tuple(suffixes)


def problem_with_workspace_option(argv: Sequence[str]) -> str:
    """A message if an option makes the command run another package of the project, so that its files cannot be found; empty otherwise."""
    launcher = program_name(argv[0]) if argv else ""
    for previous, word in pairwise(("", *argv[1:])):
        option = word.partition("=")[0]
        if option in _OTHER_PACKAGE_OPTIONS.get(launcher, ()):
            return (
                f"with {option!r}, {launcher} runs another package of the project. "
                "Write the command that this package runs, such as node packages/server/index.js"
            )
        is_program = not word.startswith("-") and not previous.startswith("-") and word != "run"
        if word == "--" or (is_program and launcher != "npm"):  # the rest are the program's arguments
            break
    return ""


def problem_with_missing_script(argv: Sequence[str]) -> str:
    """A message if only a file of the project says what the command runs; empty otherwise. Call this if no such file was found."""
    program, *words = argv or [""]
    launcher = program_name(program)
    first = next((word for word in words if not word.startswith("-")), "")
    runs_script = any(
        sub in ("", first) or (sub == "--run" and sub in words) for sub in _SCRIPT_RUNNERS.get(launcher, ())
    )
    is_elsewhere = any(word.startswith("/") or "@" in word for word in words)
    if not runs_script or is_elsewhere:
        return ""
    return (
        f"{launcher} runs what a file in the project's folder says, and no such file was found. "
        "Write the command that it should run, such as node build/index.js"
    )


def imports_from_working_folder(argv: Sequence[str]) -> bool:
    """Whether Python is started without a script (`-m`, `-c`): it then imports modules from its working folder."""
    words = [*_words(argv)]
    return any(not _python_script(words[at + 1 :]) for at, word in enumerate(words) if _is_python(word))


def runs_relative_script(argv: Sequence[str]) -> bool:
    """Whether the command runs a file that it names by a relative path: `./server`, `python server.py`, `bun run x.ts`."""
    program = argv[0]
    if "/" in program and _is_relative_path(program):
        return True
    script = _script(argv)
    is_file = "/" in script or PurePosixPath(script).suffix in CODE_SUFFIXES
    return is_file and _is_relative_path(script)


def named_scripts(argv: Sequence[str]) -> tuple[str, ...]:
    """The script that an interpreter runs, if its name looks like a path: `node ../server.js`. Empty for other programs."""
    script = _script(argv) if argv else ""
    is_file = "/" in script or PurePosixPath(script).suffix in CODE_SUFFIXES
    return (script,) if is_file and ":" not in script and "\0" not in script else ()


def runs_absolute_script(argv: Sequence[str]) -> bool:
    """Whether Python or Node runs a script with an absolute path: it then loads no code from its working folder."""
    script = _script(argv)
    if not (is_node_or_python(argv[0]) and script.startswith("/")):
        return False
    options = argv[1 : argv.index(script)]
    return not any(map(_RELATIVE_BYTECODE.search, options))


def is_node_or_python(word: str) -> bool:
    """Whether a program has the name of Python or Node."""
    return _is_python(word) or program_name(word) in ("node", "nodejs")


def find_named_items(argv: Sequence[str]) -> Iterator[NamedItem]:
    """Everything that the words of a command can name, in order."""
    # `launcher` is the last interpreter or launcher, until a word that it runs was found: the words after that one are arguments.
    launcher, previous, may_contain_code = "", "", False
    for number, (word, is_split) in enumerate(islice(_all_words(argv), MAX_WORDS)):
        name = program_name(word)
        may_contain_code |= _INTERPRETER.fullmatch(name) is not None and not SHELL.fullmatch(name)
        yield NamedFile(path=word, is_program=number == 0 or bool(launcher), runner=launcher)
        for part in _possible_paths(word):
            yield NamedFile(path=part, is_program=bool(launcher), runner=launcher)
            if launcher:
                yield NamedPackage(name=part)
        if ":" in word and _MODULE.fullmatch(module := word.rpartition("=")[2].partition(":")[0]):
            yield NamedModule(name=module)  # `uvicorn app.main:app`
        if is_split:
            # The words inside this one follow next, and decide which word is the program and which are its arguments.
            if may_contain_code:
                yield NamedCode(text=_OPTION_C.sub("", word, count=1))
            continue
        option = _OPTION_M.fullmatch(previous)
        if option is not None and not option[1] and "/" not in word:
            yield NamedModule(name=word)
            launcher = ""
        elif (option := _OPTION_M.fullmatch(word)) is not None and option[1]:
            yield NamedModule(name=option[1])
            launcher = ""
        elif _INTERPRETER.fullmatch(name) or name in _PACKAGE_RUNNERS or (word == "." and not launcher):
            launcher = name or word
        elif launcher and not word.startswith("-"):
            yield NamedPackage(name=word)  # `start` may be a subcommand or a script
            is_its_program = word not in _SUBCOMMANDS and (not previous.startswith("-") or previous in _FLAGS)
            if is_its_program and launcher not in _SCRIPT_LISTS:
                launcher = ""  # the words after it are the program's arguments
        previous = word


def package_name(word: str) -> str:
    """The name of a package without its version: `@scope/name@1.2` is `@scope/name`."""
    name, _, _ = word[1:].partition("@")
    return word[:1] + name


def has_too_many_words(argv: Sequence[str]) -> bool:
    """Whether the command has more words than are checked."""
    return next(islice(_all_words(argv), MAX_WORDS, None), None) is not None


def words_in_code(text: str) -> list[str]:
    """The words between the spaces, quotation marks and brackets of code."""
    return [word for word in _SHELL_SEPARATORS.split(text) if word][:MAX_WORDS]


def program_name(word: str) -> str:
    """The name of the program that a word of a command may be: without its folder and the suffixes of Windows."""
    return PurePosixPath(word).name.removesuffix(".exe").removesuffix(".cmd")


def shell_words(text: str) -> list[str]:
    """The words of a shell command, without the quotation marks and the operators between them."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = [*lexer] if len(text) <= _MAX_SHELL_TEXT else _SHELL_SEPARATORS.split(text)
    except ValueError:  # a quotation mark is missing
        words = _SHELL_SEPARATORS.split(text)
    return [word for word in words if word.strip(";&|()<>")]


def _words(argv: Sequence[str]) -> Iterator[str]:
    """The words of a command, and the words inside shell text: `sh -c "python server.py"`."""
    return (word for word, _ in islice(_all_words(argv), MAX_WORDS))


def _all_words(argv: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Each word, and whether the words inside of it follow next, because it may be shell text: a text in quotes."""
    for word in filter(None, argv):
        is_text = _SHELL_SEPARATORS.search(word) is not None
        yield word, is_text
        for inner in shell_words(word) if is_text else ():
            is_inner_text = _SHELL_SEPARATORS.search(inner) is not None
            yield inner, is_inner_text
            for part in filter(None, _SHELL_SEPARATORS.split(inner)) if is_inner_text else ():
                yield part, False


def _possible_paths(word: str) -> Iterator[str]:
    """The parts of a word that can be a path: `--import=./hook.js`, `-r./hook.js`, `server.py:app`, `file:///x.js`, `@options`."""
    if "=" in word:
        yield word.partition("=")[2]
    if word.startswith("-") and not word.startswith("--") and len(word) > 2:
        yield word[2:]
    if word.startswith("file://"):
        yield word.removeprefix("file://")
    if word.startswith("$") and "/" in word:  # in shell text: `$PWD/server.js`
        yield word.partition("/")[2]
    if word.startswith("@"):
        yield word.removeprefix("@")
    if "?" in word or "#" in word:  # Node also takes a URL: `--import=./hook.mjs?v=1`
        yield _URL_SUFFIX.sub("", word.partition("=")[2] if word.startswith("-") else word)
    if ":" in word:
        yield from word.split(":", _MAX_PATHS_IN_WORD)  # also `java -cp a.jar:b.jar`


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(program_name(word)) is not None


def _script(argv: Sequence[str]) -> str:
    """The script that an interpreter runs; empty if there is none, or if (except for Python) options come before it."""
    program, *rest = argv
    if _is_python(program):
        return _python_script(rest)
    if _INTERPRETER.fullmatch(program_name(program)):
        script = next((word for word in rest[:2] if word != "run"), "")
        return "" if script.startswith("-") else script
    return ""


def _python_script(options: Sequence[str]) -> str:
    """The script in Python's arguments; empty if Python runs a module (`-m`), code (`-c`) or standard input."""
    is_option_value = False
    for option in options:
        if is_option_value:
            is_option_value = False
        elif _OPTION_C_OR_M.match(option) or option == "-":
            return ""
        elif not option.startswith("-"):
            return option
        else:
            is_option_value = option in ("-W", "-X", "--check-hash-based-pycs")
    return ""


def _is_relative_path(word: str) -> bool:
    """Whether a word can be a path that depends on the working folder: not an option, a URL or an absolute path."""
    return not word.startswith(("/", "-", "~", "$")) and ":" not in word
