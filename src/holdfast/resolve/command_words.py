"""Find what the words of a command can name: files, packages, modules, and the manifests that its launcher reads."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath

# Files with these suffixes are code, or settings that can name code. Other arguments, such as databases, are data.
CODE_SUFFIXES = frozenset(
    {
        ".bash",
        ".bat",
        ".cfg",
        ".cjs",
        ".class",
        ".cmd",
        ".conf",
        ".cts",
        ".env",
        ".exe",
        ".fish",
        ".go",
        ".ini",
        ".jar",
    }
    | {
        ".js",
        ".json",
        ".jsonc",
        ".jsx",
        ".ksh",
        ".kts",
        ".lua",
        ".mjs",
        ".mk",
        ".mts",
        ".phar",
        ".php",
        ".pl",
        ".ps1",
    }
    | {
        ".py",
        ".pyc",
        ".pyw",
        ".pyz",
        ".r",
        ".rb",
        ".sh",
        ".so",
        ".toml",
        ".ts",
        ".tsx",
        ".wasm",
        ".whl",
        ".yaml",
    }
    | {".yml", ".zsh"}
)
_INTERPRETER = re.compile(
    r"(?:python|pypy|pythonw)[0-9.]*|node|nodejs|deno|bun|tsx|ts-node|(?:ba|da|z|k|fi|a)?sh|ruby|perl|php|lua[0-9.]*|java|"
    r"Rscript|pwsh|powershell|osascript|julia|source|busybox"
)
_PACKAGE_RUNNERS = frozenset({"npx", "bunx", "pnpx", "npm", "pnpm", "yarn", "bun", "uv", "uvx", "pipx"})
_NPM_FILES = (".npmrc",)
_MANIFESTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("npx", "pnpx"), _NPM_FILES),
    **dict.fromkeys(("npm", "pnpm"), (*_NPM_FILES, "package.json", ".pnpmfile.cjs")),
    "yarn": (*_NPM_FILES, "package.json", ".yarnrc", ".yarnrc.yml"),
    **dict.fromkeys(("bun", "bunx"), (*_NPM_FILES, "package.json", "bunfig.toml")),
    "uv": ("pyproject.toml", "uv.lock", "uv.toml", "setup.py", "setup.cfg"),
    "poetry": ("pyproject.toml", "poetry.lock", "poetry.toml"),
    "pipenv": ("Pipfile", "Pipfile.lock"),
    **dict.fromkeys(
        ("hatch", "pdm", "rye", "pixi", "tox", "nox"), ("pyproject.toml", "tox.ini", "noxfile.py")
    ),
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "cargo": ("Cargo.toml", "build.rs", ".cargo/config.toml"),
    "go": ("go.mod", "main.go"),
    "deno": ("deno.json", "deno.jsonc", "package.json"),
    "bundle": ("Gemfile",),
    "rake": ("Rakefile",),
    "mvn": ("pom.xml",),
    **dict.fromkeys(("gradle", "gradlew"), ("build.gradle", "build.gradle.kts", "settings.gradle")),
    **dict.fromkeys(
        ("docker", "docker-compose", "podman"),
        ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml", "Dockerfile"),
    ),
}
# The files in a package's folder that can decide what runs, besides those that its package.json names.
PACKAGE_FILES = (
    *("package.json", "index.js", "index.mjs", "index.cjs", "index.ts"),
    *("index.json", "index.node", "__main__.pyc", "__init__.pyc"),
    *("__main__.py", "__init__.py", "pyproject.toml", "setup.py", "setup.cfg", "uv.lock"),
)
# Programs that run what they find in their working folder, by name.
_RUNNERS = frozenset({
    *_MANIFESTS, *_PACKAGE_RUNNERS, "cabal", "corepack", "dnx", "docker-compose", "mix", "nix", "podman-compose", "stack", "swift",
}) - {"docker", "podman", "bun", "deno"}  # fmt: skip
# Programs that read settings in their working folder, which can name code. They may also be given a relative script.
_SCRIPT_RUNNERS = frozenset({"bun", "deno", "dotnet", "tsx", "ts-node"})
_NODE_OPTIONS = frozenset({
    "-r", "--require", "--import", "--loader", "--experimental-loader", "-e", "--eval", "-p", "--print", "-pe",
})  # fmt: skip
# Programs that start the program in their arguments.
_WRAPPERS = frozenset({
    "env", "exec", "command", "nice", "ionice", "nohup", "setsid", "stdbuf", "sudo", "doas", "time", "timeout", "xargs",
    "sh", "ash", "bash", "dash", "ksh", "zsh", "fish", "busybox", "pwsh", "powershell", "cmd",
    "mise", "asdf", "volta", "fnm", "direnv", "dotenv", "dotenvx", "op", "doppler", "infisical", "nix-shell", "cross-env",
})  # fmt: skip
_FOLDER_OPTIONS = frozenset(
    {
        "--directory",
        "--project",
        "--prefix",
        "--cwd",
        "--dir",
        "-C",
        "--workdir",
        "--app-dir",
        "--chdir",
        "cd",
    }
)
_SUBCOMMANDS = frozenset({"run", "exec", "x", "dlx", "start", "tool", "task", "script", "run-script"})
# Options of launchers that take no value; the word after any other option may be its value.
_FLAGS = frozenset(
    {
        "-y",
        "--yes",
        "-q",
        "--quiet",
        "-s",
        "--silent",
        "-u",
        "-I",
        "-S",
        "-E",
        "-B",
        "-O",
        "-OO",
        "-P",
        "--isolated",
        "--",
    }
)
_PYTHON = re.compile(r"(?:python|pypy|pythonw)[0-9.]*t?")
_MODULE_OPTION = re.compile(r"-[bBdEhiIOPqRsSuvVx?]*[cm]")
_SCRIPT_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx", ".dll")
_IN_SHELL_TEXT = re.compile(r"[\s;&|()<>\"'`]+")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
MAX_WORDS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A word that may be a file. If not `is_program`, it counts only if it is code or executable."""

    path: str
    is_program: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPackage:
    """A word that may be a folder, a local package, or a script in a manifest."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModule:
    """A module that Python runs (`-m`)."""

    name: str


Named = NamedFile | NamedPackage | NamedModule


def base_folders(argv: Sequence[str]) -> list[str]:
    """The folders that the command is run in, besides its working folder: `uv run --directory server …`."""
    words = [*_words(argv)]
    found = [after for word, after in pairwise(words) if word in _FOLDER_OPTIONS]
    for word in words:
        option, equals, value = word.partition("=")
        if equals and option in _FOLDER_OPTIONS:
            found.append(value)
    return found


def manifests(argv: Sequence[str]) -> list[str]:
    """The files that the command's launchers read in the folder they are run in."""
    return [name for word in _words(argv) for name in _MANIFESTS.get(_program_name(word), ())]


def looks_up_modules(argv: Sequence[str]) -> bool:
    """Whether Python is started without a script (`-m`, `-c`), so that it looks for modules in its working folder."""
    words = [*_words(argv)] if _is_transparent(argv) else [*argv]
    return any(_runs_no_script(words[at + 1 :]) for at, word in enumerate(words) if _is_python(word))


def looks_up_packages(argv: Sequence[str]) -> bool:
    """Whether the command looks for packages, settings or tasks in its working folder: `npx x`, `uv run x`, `make`."""
    if not argv:
        return False
    if _is_transparent(argv):
        words = [*_words(argv)]
    else:
        words = [argv[0], *(word for word in argv[1:] if not word.startswith("-"))][:2]
        if not _INTERPRETER.fullmatch(_program_name(words[0])):
            words = words[:1]
    names = [_program_name(word).removesuffix("-cli.js") for word in words]
    if any(name in _RUNNERS for name in names) or (
        names[0] in ("docker", "podman") and "compose" in argv[1:2]
    ):
        return True
    loads_by_name = any(name in _SCRIPT_RUNNERS for name in names) or (
        "node" in names and any(word.split("=")[0] in _NODE_OPTIONS for word in argv)
    )
    return loads_by_name and not any(map(_is_relative_script, argv[1:]))


def find_named(argv: Sequence[str]) -> Iterator[Named]:
    """Everything that the words of a command can name, in order."""
    launcher, previous = "", ""
    for number, word in enumerate(_words(argv)):
        name = _program_name(word)
        yield NamedFile(path=word, is_program=number == 0 or bool(launcher))
        for part in _parts(word):
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
        for inner in (word, *(_IN_SHELL_TEXT.split(word) if _IN_SHELL_TEXT.search(word) else ())):
            if inner and count < MAX_WORDS:
                count += 1
                yield inner


def _parts(word: str) -> Iterator[str]:
    """The parts of a word that can be a path: `--import=./hook.js`, `-r./hook.js`, `server.py:app`, `file:///x.js`."""
    if "=" in word:
        yield word.partition("=")[2]
    if word.startswith("-") and not word.startswith("--") and len(word) > 2:
        yield word[2:]
    if word.startswith("file://"):
        yield word.removeprefix("file://")
    if ":" in word:
        yield word.partition(":")[0]


def _is_transparent(argv: Sequence[str]) -> bool:
    """Whether the command starts another program, which is somewhere in its words."""
    return bool(argv) and _program_name(argv[0]) in _WRAPPERS


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(_program_name(word)) is not None


def _runs_no_script(options: Sequence[str]) -> bool:
    """Whether Python's arguments run a module, a text or standard input, and no script."""
    is_value = False
    for option in options:
        if is_value:
            is_value = False
        elif _MODULE_OPTION.match(option) or option == "-":
            return True
        elif not option.startswith("-"):
            return False
        else:
            is_value = option in ("-W", "-X", "--check-hash-based-pycs")
    return True


def _is_relative_script(word: str) -> bool:
    is_elsewhere = word.startswith(("/", "-", "~")) or ":" in word
    return not is_elsewhere and PurePosixPath(word).suffix in _SCRIPT_SUFFIXES


def _program_name(word: str) -> str:
    return PurePosixPath(word).name.removesuffix(".exe").removesuffix(".cmd")
