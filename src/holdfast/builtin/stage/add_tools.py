"""Adds the stage tools to a toolbox: the name, the error codes and the annotations of each.

`server` imports this module when it adds the tools, so that the first browser can be prepared during the import.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.builtin.stage.files import SessionFiles
from holdfast.builtin.stage.owners import Owners
from holdfast.builtin.stage.tools.acting import ActingTools
from holdfast.builtin.stage.tools.observing import ObservingTools
from holdfast.builtin.stage.tools.pages import PageTools
from holdfast.builtin.stage.tools.reading import ReadingTools
from holdfast.builtin.stage.tools.waiting import WaitingTools
from holdfast.toolkit import Annotations, Toolbox

# The codes that each kind of tool can fail with.
_READ_CODES = (
    "STALE_REF",
    "NO_ELEMENT",
    "PAGE_HUNG",
    "PAGE_CRASHED",
    "TAB_GONE",
    "BROWSER_GONE",
    "DIALOG_OPEN",
    "NOT_RUNNING",
)
_ACT_CODES = (*_READ_CODES, "NOT_VISIBLE", "ELEMENT_DISABLED", "COVERED", "NO_EFFECT")
_GO_CODES = (
    *("URL_DENIED", "LOAD_FAILED", "PAGE_CRASHED", "PAGE_HUNG", "DIALOG_OPEN"),
    *("TAB_GONE", "BROWSER_GONE", "TOO_MANY_TABS"),
)
_LAUNCH_CODES = ("NO_BROWSER", "LAUNCH_FAILED")
_TAB_CODES = ("TAB_GONE", "BROWSER_GONE", "NOT_RUNNING")
_FILES_CODES = (
    "BAD_PATH",
    "OUTSIDE_ROOTS",
    "NO_FILE",
    "NOT_A_FILE",
    "FILE_ERROR",
    "FILE_TOO_LARGE",
    "DENIED",
)


def add_tools(box: Toolbox, owners: Owners, files: SessionFiles, *, is_sandboxed: bool) -> None:
    """Add the tools that drive the owners' browsers. A sandboxed session does not get `attach`."""
    shared = (owners, files)
    pages, reading, acting = PageTools(*shared), ReadingTools(*shared), ActingTools(*shared)
    waiting, observing = WaitingTools(*shared), ObservingTools(*shared)
    harmless = Annotations(destructive=False)

    def add(handler: Callable[..., Any], name: str, used_codes: Sequence[str], **more: Any) -> None:
        hints = msgspec.structs.replace(more.pop("annotations", Annotations()), open_world=True)
        box.tool(name=name, codes=sorted({*used_codes}), annotations=hints, **more)(handler)

    add(pages.open, "open", (*_GO_CODES, *_LAUNCH_CODES), annotations=harmless)
    if not is_sandboxed:
        add(pages.attach, "attach", ("LOAD_FAILED", "UNSUPPORTED_HERE", "BROWSER_GONE", "PAGE_HUNG"))
    add(pages.close, "close", ("NOT_RUNNING",), annotations=harmless)
    add(pages.stages, "stages", (), operation="window_info")
    add(pages.tabs, "tabs", (*_TAB_CODES, "PAGE_HUNG"), operation="window_info")
    add(pages.tab, "tab", (*_GO_CODES, "NOT_RUNNING"), annotations=harmless)
    add(pages.goto, "goto", (*_GO_CODES, "NOT_RUNNING"), annotations=harmless)
    add(reading.snapshot, "snapshot", (*_READ_CODES, "BAD_CURSOR"), operation="query")
    add(reading.find, "find", _READ_CODES, operation="query")
    add(reading.read, "read", _READ_CODES, operation="query")
    add(reading.elements, "elements", _READ_CODES, operation="query")
    add(acting.click, "click", _ACT_CODES)
    add(acting.hover, "hover", _ACT_CODES, annotations=harmless)
    add(acting.drag, "drag", _ACT_CODES)
    add(acting.fill, "fill", (*_ACT_CODES, "UNSUPPORTED_HERE"), annotations=Annotations(idempotent=True))
    add(acting.type, "type", _ACT_CODES)
    add(acting.press, "press", _ACT_CODES)
    add(acting.scroll, "scroll", _ACT_CODES, annotations=harmless)
    add(acting.upload, "upload", (*_ACT_CODES, *_FILES_CODES))
    add(waiting.wait, "wait", (*_READ_CODES, "NOT_YET"), operation="query", deadline=90)
    add(waiting.expect, "expect", (*_READ_CODES, "NOT_YET"), operation="query", deadline=90)
    add(observing.dialogs, "dialogs", _TAB_CODES, operation="dialog")
    saving = (*_TAB_CODES, *_FILES_CODES, "NO_ELEMENT", "NOT_YET", "UNSUPPORTED_HERE")
    add(observing.downloads, "downloads", saving, annotations=harmless)
    add(observing.screenshot, "screenshot", (*_READ_CODES, "UNSUPPORTED_HERE"), operation="screenshot")
    add(observing.console, "console", _TAB_CODES, operation="logs")
    add(observing.requests, "requests", (*_TAB_CODES, "NO_ELEMENT"), operation="logs")
    add(
        observing.evaluate,
        "evaluate",
        (*_READ_CODES, "SCRIPT_FAILED"),
        operation="eval",
        requires_eval_flag=True,
    )
