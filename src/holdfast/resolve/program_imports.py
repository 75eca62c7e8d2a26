"""Find the files that a Python or JavaScript source can import."""

import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from urllib.parse import unquote

from holdfast.resolve.script_languages import JAVASCRIPT_SUFFIXES, PYTHON_SUFFIXES, Language

UNCHECKED = ""
"""Yielded instead of a path if some imports could not be checked: there are too many, or a source or folder cannot be read."""
_MAX_MODULE_DEPTH = 32
_MAX_NAME_BYTES = 255  # no file can have a longer name
# No pattern here may begin at many places and read to the same end from each: the cost must be linear in the source. So each repetition
# is possessive (`++`), and stops at the character with which the pattern begins.
# From `from` or `import` to the end of the line, over brackets and escaped line ends. What looks like an import may be in a string or a
# comment: then the text that it swallows is searched with it.
_PYTHON_IMPORT = re.compile(r"\b(?:from|import)\b(?:[^\n\\(]++|\\.|\((?:[^)#]++|#[^\n]*+)*+\)?)*+", re.DOTALL)
# Python also takes other letters than those of ASCII, and compares names in their NFKC form.
_PYTHON_WORD = re.compile(r"[A-Za-z0-9_\x80-\U0010ffff]++")
_MAX_WORD = 1000  # a longer word is not normalized: it costs the square of the length
_RELATIVE_IMPORT = re.compile(r"\bfrom[ \t\f\r\n\\]*+(\.[. \t\f\r\n\\]*+)")
_STAR_IMPORT = re.compile(r"\bimport[( \t\f\r\n\\]*+\*")
# With these words, a Python source can import or run files under names that it computes, or from other folders.
_PYTHON_COMPUTES = frozenset(
    (
        *("exec", "eval", "execfile", "__import__", "__builtins__", "builtins", "importlib", "import_module"),
        *("imp", "runpy", "run_module", "run_path", "pkgutil", "zipimport", "site", "addsitedir"),
        *("__path__", "meta_path", "path_hooks", "marshal", "ctypes"),
        *("subprocess", "Popen", "execv", "execve", "execvp", "posix_spawn"),
    )
)
_CHANGES_SEARCH = re.compile(r"\bsys\s*+\.\s*+path\b|\bfrom\s++sys\b|\bsys\s++as\b")
_SEARCH_WORDS = frozenset(("path", "site", "addsitedir", "__path__"))
_LINE_END = re.compile(rb"\r\n|\r|\n")
_CODING = re.compile(rb"[ \t\f]*+#.*?coding[:=][ \t]*+([-\w.]+)")
_BLANK_OR_COMMENT = re.compile(rb"[ \t\f]*+(?:#|$)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_USUAL_CODINGS = (
    "utf-8",
    "utf8",
    "utf-8-sig",
    "ascii",
    "us-ascii",
    "latin-1",
    "iso-8859-1",
    "iso-8859-15",
    "cp1252",
)
# Any quoted relative path. It may not be an import, but hashing an extra file does no harm. The quotation marks are not
# part of a match: the one that ends a text in a comment may begin an import.
_JAVASCRIPT_IMPORT = re.compile(r"(?<=[\"'`])\.{1,2}(?:[/\\][^\"'`\n]*+)?(?=[\"'`])")
_JAVASCRIPT_WORD = re.compile(r"[\w$]++")
_JAVASCRIPT_URL = re.compile(r"\bURL\b")  # `new URL("worker.js", import.meta.url)`
_URL_WINDOW = 300  # in how many characters after `URL` the path is looked for
_JAVASCRIPT_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{0*+([0-9a-fA-F]{0,6})\}|([0-3]?[0-7]{1,2})|(\r\n|[\r\n\u2028\u2029])|([^xu0-7]))"
)
_CONTROL_ESCAPES = frozenset("nrtbfv")
# With these words, a JavaScript source can load files under names that it computes.
_JAVASCRIPT_COMPUTES = frozenset(
    (
        *("eval", "Function", "createRequire", "__dirname", "__filename", "meta", "fork", "Worker", "vm"),
        *("child_process", "_load", "Module", "runMain", "cwd"),
    )
)
# `require` and `import(` with anything but a text in quotes or, after `.`, a call of `require.resolve`.
_COMPUTED_IMPORT = re.compile(
    r"\brequire\b(?!\s*+\(\s*+[\"'][^\"'\n]*+[\"']\s*+\))|\bimport\s*+\((?!\s*+[\"'][^\"'\n]*+[\"']\s*+\))"
)
# An absolute path is not looked up: it may lead to any file of the computer.
_ABSOLUTE_IMPORT = re.compile(r"\b(?:require|import|from)\s*+(?:\(\s*+)?[\"'`](?:[/\\]|file:)")
_KERNEL_PATH = re.compile(rb"/proc/|/dev/fd\b")
_URL_IGNORES = str.maketrans("\\", "/", "\t\r\n")
_ADDED_SUFFIXES = (*JAVASCRIPT_SUFFIXES, ".json", ".node")
_PYTHON_COMPILED_SUFFIXES = (".pyc", ".so", ".abi3.so")
_QUOTED = re.compile(r"""["']([^"']+)["']""")
_TEXT_IN_QUOTES = re.compile(r"(?<=[\"'`])[^\"'`\n]{1,255}+(?=[\"'`])")
COMPILED_SUFFIXES = (".pyc", ".so", ".node")
"""The suffixes of compiled modules. They are hashed, but not searched for imports."""
PYTHON_MODULES = (*PYTHON_SUFFIXES, ".pyc", ".so")
JAVASCRIPT_MODULES = (".js", ".cjs", ".mjs", ".node")
_MAX_ENTRIES = 5000
_MAX_ENTRIES_OF_SOURCE = 50_000  # how many entries of folders are compared with the words of one source
_MAX_PACKAGES = 500


def import_candidates(
    path: str, source: bytes, languages: Collection[Language], search_folders: Iterable[str] = ()
) -> Iterator[str]:
    """The paths at which the files that a source imports can be. For JavaScript, most of them do not exist.

    `languages` are the languages that the source may be in. `search_folders` are the folders in which Python looks for modules, in addition
    to the folder of the source.
    """
    folder = path.rpartition("/")[0]
    if Language.JAVASCRIPT in languages:
        yield from _imported_by_javascript(folder, source)
    if Language.PYTHON in languages:
        text = _decode_python(source)
        words, are_all = _imported_words(text)
        if not are_all or "\ufffd" in text:  # in a name, U+FFFD would stand for letters that are not known
            yield UNCHECKED
        dots = max((found[1].count(".") for found in _RELATIVE_IMPORT.finditer(text)), default=0)
        own = [_folder_above(folder, level) for level in range(min(max(dots, 1), _MAX_MODULE_DEPTH))]
        finder = _ModuleFinder(words, has_star=_STAR_IMPORT.search(text) is not None)
        for root in dict.fromkeys((*own, *search_folders)):
            yield from finder.find(root, is_package=dots > 0 and root in own)


def loads_computed_names(source: bytes, languages: Collection[Language]) -> bool:
    """Whether a source may load files that `import_candidates` does not find: by a computed name, or in a way that is not read here.

    It may also just contain such a word: rather too often than too rarely.
    """
    if b"\0" in source or _KERNEL_PATH.search(source):
        return True
    if Language.PYTHON in languages:
        text = _decode_python(source)
        words, _ = _python_words(text)
        if words & _PYTHON_COMPUTES or ("sys" in words and _CHANGES_SEARCH.search(text)):
            return True
    if Language.JAVASCRIPT in languages:
        text = _without_escapes(source.decode(errors="replace"))
        words = frozenset(found[0] for found in _JAVASCRIPT_WORD.finditer(text))
        return bool(
            words & _JAVASCRIPT_COMPUTES or _COMPUTED_IMPORT.search(text) or _ABSOLUTE_IMPORT.search(text)
        )
    return False


def added_search_folders(path: str, source: bytes, working_folder: str = "") -> list[str]:
    """The folders that a Python source may add to those in which Python looks for modules: `sys.path.insert(0, "lib")`.

    If the source can change `sys.path`, these are all paths in quotes, relative to its own folder, to the one above and to the working folder.
    Most of them do not exist. `UNCHECKED` is among them if there are too many.
    """
    text = _decode_python(source)
    words, _ = _python_words(text)
    if not words & _SEARCH_WORDS or not words & {"sys", "site", "addsitedir", "__path__"}:
        return []
    folder = path.rpartition("/")[0]
    names = [*dict.fromkeys(name.rstrip("/") for name in _TEXT_IN_QUOTES.findall(text))]
    above = folder.rpartition("/")[0]
    bases = dict.fromkeys(filter(None, (folder, above, working_folder)))
    found = [f"{base}/{name}" for base in bases for name in ("", *names[:_MAX_PACKAGES]) if "\0" not in name]
    return [*found, UNCHECKED] if len(names) > _MAX_PACKAGES else found


def inline_metadata_texts(source: bytes) -> list[str]:
    """The texts in quotes in the block with which a Python script says what `uv run` installs: `# foo = { path = "./foo" }`."""
    texts: list[str] = []
    is_inside = False
    for line in _decode_python(source).splitlines():
        if line.rstrip() == "# /// script":
            is_inside = True
        elif is_inside and (not line.startswith("#") or line.rstrip() == "# ///"):
            break
        elif is_inside:
            texts += _QUOTED.findall(line)
    return texts[:_MAX_PACKAGES]


def python_module_candidates(folder: str, name: str) -> Iterator[str]:
    """The paths of the files that Python runs to import a module, if it is in this folder. Most of them do not exist."""
    parts = name.split(".", _MAX_MODULE_DEPTH)
    if len(parts) > _MAX_MODULE_DEPTH:
        yield UNCHECKED
    inner = folder
    for part in parts[:_MAX_MODULE_DEPTH]:
        if not part or len(os.fsencode(part)) > _MAX_NAME_BYTES:
            return
        inner = f"{inner}/{part}"
        yield from _module_candidates(inner)
    yield f"{inner}/__main__.py"
    yield f"{inner}/__main__.pyc"


def javascript_candidates(path: str) -> Iterator[str]:
    """The paths of the files that JavaScript may load for an imported path. Most of them do not exist."""
    yield path
    for suffix in _ADDED_SUFFIXES:
        yield f"{path}{suffix}"
        yield f"{path}/index{suffix}"
    if path.endswith(".js"):  # in TypeScript, the import of x.ts is written x.js
        yield f"{path.removesuffix('.js')}.ts"
    yield f"{path}/package.json"


def module_suffixes(languages: frozenset[Language]) -> tuple[str, ...]:
    """The suffixes of the modules that a script may load; of both languages if it is in neither."""
    python = PYTHON_MODULES if Language.PYTHON in languages else ()
    javascript = JAVASCRIPT_MODULES if Language.JAVASCRIPT in languages else ()
    return (*python, *javascript) or (*PYTHON_MODULES, *JAVASCRIPT_MODULES)


def module_names(folder: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """The names of the modules with these suffixes in a folder, and of its packages with a `/` at the end."""
    names: list[str] = []  # not yielded here: a caller that stops early would leave the folder open
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MAX_ENTRIES):
                if entry.name.endswith(suffixes):
                    names.append(entry.name)
                elif ".py" in suffixes and entry.name.isidentifier() and entry.is_dir():
                    folders.append(entry.name)
            is_complete = next(entries, None) is None
    except OSError:
        is_complete = False
    yield from names
    if not is_complete:
        yield UNCHECKED
    for name in folders[:_MAX_PACKAGES]:
        if _is_package(f"{folder}/{name}"):
            yield f"{name}/"
    if len(folders) > _MAX_PACKAGES:
        yield UNCHECKED


def _module_candidates(path: str) -> Iterator[str]:
    for inner in (path, f"{path}/__init__"):
        for suffix in (".py", *_PYTHON_COMPILED_SUFFIXES):
            yield f"{inner}{suffix}"


def _decode_python(source: bytes) -> str:
    """The text of a Python source."""
    has_mark = source.startswith(_BYTE_ORDER_MARK)
    source = source.removeprefix(_BYTE_ORDER_MARK)
    coding = "utf-8" if has_mark else _python_coding(source)
    return source.decode(coding, "replace") if coding in _USUAL_CODINGS else "\ufffd"


def _python_words(text: str) -> tuple[frozenset[str], bool]:
    """All words of a text, as Python compares names, and whether these are all."""
    words = {
        found[0] for found in _PYTHON_WORD.finditer(text)
    }  # not `findall`: other threads may run in between
    if text.isascii():
        return frozenset(words), True
    others = [word for word in words if not word.isascii()]
    short = [word for word in others if len(word) <= _MAX_WORD]
    # Normalized, a word can have characters that end it.
    words.update(part for word in short for part in _PYTHON_WORD.findall(unicodedata.normalize("NFKC", word)))
    return frozenset(words), len(short) == len(others)


def _imported_words(text: str) -> tuple[frozenset[str], bool]:
    """The words by which a source can import modules, and whether these are all.

    They are those of import statements and, if the source can compute names, those of texts in quotes.
    """
    lines = text.replace("\r\n", "\n")
    parts = [found[0] for found in _PYTHON_IMPORT.finditer(lines)]
    if _PYTHON_COMPUTES & _python_words(text)[0]:
        parts += (found[0] for found in _TEXT_IN_QUOTES.finditer(lines))
    return _python_words("\n".join(parts))


def _python_coding(source: bytes) -> str:
    """The encoding that a comment in one of the first two lines names. Python reads no further line, however long these are."""
    for line in _LINE_END.split(source, 2)[:2]:
        if matched := _CODING.match(line):
            return matched[1].decode("ascii", "replace").lower().replace("_", "-")
        if not _BLANK_OR_COMMENT.match(line):
            break
    return "utf-8"


class _ModuleFinder:
    """Finds the modules whose names are among the words of one source."""

    def __init__(self, words: Collection[str], *, has_star: bool) -> None:
        self._words = words
        self._has_star = has_star
        self._entries_left = _MAX_ENTRIES_OF_SOURCE

    def find(self, folder: str, *, is_package: bool, depth: int = 0) -> Iterator[str]:
        """The paths of the modules in a folder, and in the folders below it that a word names.

        `is_package` says whether `from … import *` may stand for all modules directly in the folder.
        """
        if depth > _MAX_MODULE_DEPTH or self._entries_left <= 0:
            yield UNCHECKED
            return
        files: list[str] = []  # not yielded here: a caller that stops early would leave the folder open
        folders: list[str] = []
        takes_all = is_package and self._has_star
        try:
            with os.scandir(folder) as entries:
                for entry in islice(entries, _MAX_ENTRIES):
                    self._entries_left -= 1
                    is_named = entry.name.partition(".")[0] in self._words
                    if (is_named or takes_all) and entry.name.endswith(PYTHON_MODULES):
                        files.append(entry.path)
                    elif is_named and "." not in entry.name and entry.is_dir():
                        folders.append(entry.path)
                is_complete = next(entries, None) is None
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError):
            is_complete = False
        yield from files
        if not is_complete:
            yield UNCHECKED
        for inner in folders:
            yield from _module_candidates(f"{inner}/__init__")
            yield from _module_candidates(f"{inner}/__main__")
            yield from self.find(inner, is_package=True, depth=depth + 1)


def _folder_above(folder: str, levels: int) -> str:
    for _ in range(min(levels, _MAX_MODULE_DEPTH)):
        folder = folder.rpartition("/")[0]
    return folder


def _imported_by_javascript(folder: str, source: bytes) -> Iterator[str]:
    text = source.decode(errors="replace")
    names = _JAVASCRIPT_IMPORT.findall(text)
    plain = _without_escapes(text)
    if plain is not text:  # `'.\\/x.js'` and `'\\x2e/x.js'` are `./x.js`
        names += _JAVASCRIPT_IMPORT.findall(plain)
    read = 0
    for found in _JAVASCRIPT_URL.finditer(plain):
        end = found.end() + _URL_WINDOW
        names += _TEXT_IN_QUOTES.findall(plain, max(read, found.end()), end)
        read = end - 1  # the quotation mark before a text may be the last character that was read
    for name in dict.fromkeys(names):
        # A module's name is a URL, too: `./x.js?v=1` and `./%78.js` are x.js.
        url = unquote(re.split(r"[?#]", name, maxsplit=1)[0].translate(_URL_IGNORES))
        for path in dict.fromkeys((name, url)):
            yield from javascript_candidates(f"{folder}/{path.rstrip('/')}")


def _without_escapes(text: str) -> str:
    """A JavaScript source with its escapes replaced, as in its strings; the text itself if it has none."""
    return _JAVASCRIPT_ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(escape: re.Match[str]) -> str:
    two, four, more, octal, line_end, other = escape.groups()
    if octal:
        return chr(int(octal, 8))
    if digits := two or four or more:
        return chr(min(int(digits, 16), 0x10FFFF))
    if line_end or more is not None:
        return ""
    return "\t" if other in _CONTROL_ESCAPES else other  # a URL is read without tabs and line breaks


def _is_package(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.startswith("__init__.") for entry in islice(entries, _MAX_ENTRIES))
    except OSError:
        return False
