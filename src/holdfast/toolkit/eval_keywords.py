"""Refuse to evaluate code that contains certain keywords.

The check stops accidents, not attackers: it is easy to bypass. Only the sandbox confines the code. Eval tools run only if
the server allows it (`--allow-eval`). The code itself is never logged, only its hash.
"""

import hashlib
import logging
from collections.abc import Iterator
from typing import Any, cast

from holdfast.model import codes
from holdfast.model.normal_form import normalize
from holdfast.model.visible_text import strip_invisible, to_line
from holdfast.toolkit.errors import ToolError

KEYWORDS = (
    *("__import__", "__subclasses__", "__globals__", "__builtins__", "subprocess", "os.system", "os.popen"),
    *("os.exec", "os.spawn", "pty.spawn", "ctypes", "importlib"),
    *("child_process", "process.binding", "process.mainmodule", "process.kill", "process.exit", "require("),
    *("import(", "deno.run", "bun.spawn", "eval(", "new function(", "execsync", "shell.openexternal"),
)

log = logging.getLogger(__name__)


def check_keywords(tool: str, arguments: Any) -> None:
    """Raise EVAL_BLOCKED if a string anywhere in the decoded arguments contains one of the keywords."""
    for payload in _strings(arguments):
        folded = normalize("NFKC", payload).casefold()
        # Spaces or invisible characters may split a keyword.
        visible = "".join(strip_invisible(folded).split())
        for keyword in KEYWORDS:
            if keyword in folded or keyword.replace(" ", "") in visible:
                log.warning(
                    "eval payload blocked: %s",
                    to_line(tool),
                    extra={"tool": tool, "keyword": keyword, "payload_sha256": _hash(payload)},
                )
                raise ToolError(codes.EVAL_BLOCKED, f"{tool} does not run code with {keyword!r} in it.")


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, part in cast("dict[str, Any]", value).items():
                yield name
                yield from _strings(part)
        case list():
            for part in cast("list[Any]", value):
                yield from _strings(part)
        case _:
            pass


def _hash(payload: str) -> str:
    return hashlib.sha256(payload.encode(errors="surrogatepass")).hexdigest()
