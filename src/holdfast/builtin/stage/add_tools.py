"""The stage tools: the name, the error codes and the annotations of each. To import them takes longer than to import the rest."""

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
_READ = (
    "STALE_REF",
    "NO_ELEMENT",
    "PAGE_HUNG",
    "PAGE_CRASHED",
    "TAB_GONE",
    "BROWSER_GONE",
    "DIALOG_OPEN",
    "NOT_RUNNING",
)
_ACT = (*_READ, "NOT_VISIBLE", "ELEMENT_DISABLED", "COVERED", "NO_EFFECT")
_GO = (
    *("URL_DENIED", "LOAD_FAILED", "PAGE_CRASHED", "PAGE_HUNG", "DIALOG_OPEN"),
    *("TAB_GONE", "BROWSER_GONE", "TOO_MANY_TABS"),
)
_LAUNCH = ("NO_BROWSER", "LAUNCH_FAILED")
_TAB = ("TAB_GONE", "BROWSER_GONE", "NOT_RUNNING")
_FILES = ("BAD_PATH", "OUTSIDE_ROOTS", "NO_FILE", "NOT_A_FILE", "FILE_ERROR", "FILE_TOO_LARGE", "DENIED")


def add_tools(box: Toolbox, owners: Owners, files: SessionFiles, *, is_sandboxed: bool) -> None:
    """Add the tools that drive the browsers of these owners, for a direct or a sandboxed session."""
    shared = (owners, files)
    pages, reading, acting = PageTools(*shared), ReadingTools(*shared), ActingTools(*shared)
    waiting, observing = WaitingTools(*shared), ObservingTools(*shared)
    harmless = Annotations(destructive=False)

    def add(handler: Callable[..., Any], name: str, used_codes: Sequence[str], **more: Any) -> None:
        hints = msgspec.structs.replace(more.pop("annotations", Annotations()), open_world=True)
        box.tool(name=name, codes=sorted({*used_codes}), annotations=hints, **more)(handler)

    add(pages.open, "open", (*_GO, *_LAUNCH), annotations=harmless)
    if not is_sandboxed:
        add(pages.attach, "attach", ("LOAD_FAILED", "UNSUPPORTED_HERE", "BROWSER_GONE", "PAGE_HUNG"))
    add(pages.close, "close", ("NOT_RUNNING",), annotations=harmless)
    add(pages.stages, "stages", (), operation="window_info")
    add(pages.tabs, "tabs", (*_TAB, "PAGE_HUNG"), operation="window_info")
    add(pages.tab, "tab", (*_GO, "NOT_RUNNING"), annotations=harmless)
    add(pages.goto, "goto", (*_GO, "NOT_RUNNING"), annotations=harmless)
    add(reading.snapshot, "snapshot", (*_READ, "BAD_CURSOR"), operation="query")
    add(reading.find, "find", _READ, operation="query")
    add(reading.read, "read", _READ, operation="query")
    add(reading.elements, "elements", _READ, operation="query")
    add(acting.click, "click", _ACT)
    add(acting.hover, "hover", _ACT, annotations=harmless)
    add(acting.drag, "drag", _ACT)
    add(acting.fill, "fill", (*_ACT, "UNSUPPORTED_HERE"), annotations=Annotations(idempotent=True))
    add(acting.type, "type", _ACT)
    add(acting.press, "press", _ACT)
    add(acting.scroll, "scroll", _ACT, annotations=harmless)
    add(acting.upload, "upload", (*_ACT, *_FILES))
    add(waiting.wait, "wait", (*_READ, "NOT_YET"), operation="query", deadline=90)
    add(waiting.expect, "expect", (*_READ, "NOT_YET"), operation="query", deadline=90)
    add(observing.dialogs, "dialogs", _TAB, operation="dialog")
    saving = (*_TAB, *_FILES, "NO_ELEMENT", "NOT_YET", "UNSUPPORTED_HERE")
    add(observing.downloads, "downloads", saving, annotations=harmless)
    add(observing.screenshot, "screenshot", (*_READ, "UNSUPPORTED_HERE"), operation="screenshot")
    add(observing.console, "console", _TAB, operation="logs")
    add(observing.requests, "requests", (*_TAB, "NO_ELEMENT"), operation="logs")
    add(
        observing.evaluate,
        "evaluate",
        (*_READ, "SCRIPT_FAILED"),
        operation="eval",
        requires_eval_flag=True,
    )
