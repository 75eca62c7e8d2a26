"""The script that reads and checks pages. It runs in every document, in an isolated world: a JavaScript context of its own.

The page's scripts can neither see this script nor change what it uses. This script is one function, joined from the files in this folder.
"""

import json
from pathlib import Path

from holdfast.model.visible_text import INVISIBLE_LETTERS

WORLD = "holdfast"
_PARTS = (
    *("dom", "text", "roles", "names", "states", "outline", "reading", "pointing", "presses", "fields"),
    *("conditions", "functions"),
)


def page_script() -> str:
    """Return the whole script. It defines the global object `stage`, unless the document has it already."""
    folder = Path(__file__).parent
    parts = "\n".join((folder / f"{part}.js").read_text(encoding="utf-8") for part in _PARTS)
    letters = f"const INVISIBLE_LETTERS = new RegExp({json.dumps(INVISIBLE_LETTERS.pattern)}, 'gu');"
    return f"(() => {{\n'use strict';\nif (globalThis.stage) return;\n{letters}\n{parts}}})();\n"


PAGE_SCRIPT = page_script()
