"""Find what the words of a command can name: files, packages, modules, and the files that its launcher reads."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath

# Files with these suffixes are code, or settings that can name code. Other files, such as databases, are data.
CODE_SUFFIXES = frozenset(
    (
        *(".bash", ".bat", ".cfg", ".cjs", ".class", ".cmd", ".conf", ".cts", ".dll", ".env", ".exe"),
        *(".fish", ".go", ".ini", ".jar", ".js", ".json", ".jsonc", ".jsx", ".ksh", ".kts", ".lua"),
        *(".mjs", ".mk", ".mts", ".phar", ".php", ".pl", ".ps1", ".py", ".pyc", ".pyw", ".pyz", ".r"),
        *(".rb", ".sh", ".so", ".toml", ".ts", ".tsx", ".wasm", ".whl", ".yaml", ".yml", ".zsh"),
    )
)
_INTERPRETER = re.compile(
    r"(?:python|pypy|pythonw)[0-9.]*|node|nodejs|deno|bun|tsx|ts-node|(?:ba|da|z|k|fi|a)?sh|ruby|perl|php|lua[0-9.]*|java|"
    r"Rscript|pwsh|powershell|osascript|julia|source|busybox|dotnet"
)
_PACKAGE_RUNNERS = frozenset({"npx", "bunx", "pnpx", "npm", "pnpm", "yarn", "bun", "uv", "uvx", "pipx"})
_NPM_FILES = (".npmrc",)
_PNPM_FILES = (*_NPM_FILES, "package.json", ".pnpmfile.cjs", "pnpm-workspace.yaml")
_UV_FILES = ("pyproject.toml", "uv.lock", "uv.toml", ".python-version")
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
    **dict.fromkeys(("bun", "bunx"), (*_NPM_FILES, "package.json", "bunfig.toml", "tsconfig.json", ".env")),
    **dict.fromkeys(("tsx", "ts-node"), ("package.json", "tsconfig.json")),
    "deno": ("deno.json", "deno.jsonc", "deno.lock", "package.json"),
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
        ("docker", "docker-compose", "podman", "podman-compose"), (*_COMPOSE_FILES, "Dockerfile", ".env")
    ),
    **dict.fromkeys(("mise", "asdf"), ("mise.toml", ".mise.toml", ".tool-versions")),
    "direnv": (".envrc", ".env"),
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
        *("--chdir", "cd"),
    )
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
_OPTION_C_OR_M = re.compile(r"-[bBdEhiIOPqRsSuvVx?]*[cm]")  # after any flags: `-Im`
_SHELL_SEPARATORS = re.compile(r"[\s;&|()<>\"'`]+")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
MAX_WORDS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A word that may be a file."""

    path: str
    is_program: bool = False
    """Whether the command runs it. If not, it counts only if it is code or executable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPackage:
    """A word that may be a folder, a local package, or a script in a manifest."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModule:
    """A module that Python runs (`-m`)."""

    name: str


NamedItem = NamedFile | NamedPackage | NamedModule


def base_folders(argv: Sequence[str]) -> list[str]:
    """The folders that the command changes into: `uv run --directory server …`."""
    words = [*_words(argv)]
    found = [after for word, after in pairwise(words) if word in _FOLDER_OPTIONS]
    for word in words:
        option, equals, value = word.partition("=")
        if equals and option in _FOLDER_OPTIONS:
            found.append(value)
    return found


def launcher_files(argv: Sequence[str]) -> list[str]:
    """The files that the command's launchers read in their working folder, if they exist."""
    return [name for word in _words(argv) for name in _LAUNCHER_FILES.get(_program_name(word), ())]


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


def runs_absolute_script(argv: Sequence[str]) -> bool:
    """Whether Python or Node runs a script with an absolute path: it then loads no code from its working folder."""
    is_known = _is_python(argv[0]) or _program_name(argv[0]) in ("node", "nodejs")
    return is_known and _script(argv).startswith("/")


def find_named_items(argv: Sequence[str]) -> Iterator[NamedItem]:
    """Everything that the words of a command can name, in order."""
    launcher, previous = "", ""
    for number, word in enumerate(_words(argv)):
        name = _program_name(word)
        yield NamedFile(path=word, is_program=number == 0 or bool(launcher))
        for part in _possible_paths(word):
            yield NamedFile(path=part, is_program=bool(launcher))
            if launcher:
                yield NamedPackage(name=part)
        if previous == "-m" and _MODULE.fullmatch(word):
            yield NamedModule(name=word)
            launcher = ""
        elif word.startswith("-m") and _MODULE.fullmatch(word[2:]):
            yield NamedModule(name=word[2:])
            launcher = ""
        elif _INTERPRETER.fullmatch(name) or name in _PACKAGE_RUNNERS:
            launcher = name
        elif launcher and not word.startswith("-") and word not in _SUBCOMMANDS:
            yield NamedPackage(name=word)
            if not previous.startswith("-") or previous in _FLAGS:
                launcher = ""  # the words after it are the program's arguments
        previous = word


def package_name(word: str) -> str:
    """The name of a package without its version: `@scope/name@1.2` is `@scope/name`."""
    name, _, _ = word[1:].partition("@")
    return word[:1] + name


def _words(argv: Sequence[str]) -> Iterator[str]:
    """The words of a command, and the words inside shell text: `sh -c "python server.py"`."""
    count = 0
    for word in argv:
        for inner in (word, *(_SHELL_SEPARATORS.split(word) if _SHELL_SEPARATORS.search(word) else ())):
            if inner and count < MAX_WORDS:
                count += 1
                yield inner


def _possible_paths(word: str) -> Iterator[str]:
    """The parts of a word that can be a path: `--import=./hook.js`, `-r./hook.js`, `server.py:app`, `file:///x.js`, `@options`."""
    if "=" in word:
        yield word.partition("=")[2]
    if word.startswith("-") and not word.startswith("--") and len(word) > 2:
        yield word[2:]
    if word.startswith("file://"):
        yield word.removeprefix("file://")
    if word.startswith("@"):
        yield word.removeprefix("@")
    if ":" in word:
        yield word.partition(":")[0]


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(_program_name(word)) is not None


def _script(argv: Sequence[str]) -> str:
    """The script that an interpreter runs; empty if there is none, or if (except for Python) options come before it."""
    program, *rest = argv
    if _is_python(program):
        return _python_script(rest)
    if _INTERPRETER.fullmatch(_program_name(program)):
        script = next((word for word in rest[:2] if word != "run"), "")
        return "" if script.startswith("-") else script
    return ""


def _python_script(options: Sequence[str]) -> str:
    """The script in Python's arguments; empty if Python runs a module (`-m`), a text (`-c`) or standard input."""
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


def _program_name(word: str) -> str:
    return PurePosixPath(word).name.removesuffix(".exe").removesuffix(".cmd")
