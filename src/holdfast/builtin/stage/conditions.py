"""Conditions on a page, for the tools `wait` and `expect`: waits until they are true, or says what is there instead."""

import asyncio
import fnmatch
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

from holdfast.builtin.stage.actions import stale_error
from holdfast.builtin.stage.codes import NOT_YET, PAGE_HUNG, STALE_REF
from holdfast.builtin.stage.fence import fence, one_line
from holdfast.builtin.stage.limits import SCRIPT_SECONDS
from holdfast.builtin.stage.read_page import FoundText, search_text
from holdfast.builtin.stage.tab import Tab
from holdfast.toolkit import ToolError

State = Literal["visible", "hidden", "enabled", "disabled", "checked", "unchecked", "focused", "gone"]

_FIRST_PAUSE = 0.03
_LONGEST_PAUSE = 0.25
_LEAST_SECONDS = 2.0  # a large page may need this time to answer, even if the caller's timeout is shorter


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a page must show: everything that the set fields say."""

    text: str = ""
    not_text: str = ""
    ref_number: int | None = None
    """The number in an element's ref. Without it, `text` and `not_text` are about the whole page."""
    state: State | None = None
    value: str | None = None
    url: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One field of a condition that the page does not fulfil. `actual` may contain text that the page wrote."""

    expected: str
    actual: str
    is_gone: bool = False
    """Whether the element is no longer on the page."""


async def wait_until(tab: Tab, condition: Condition, seconds: float) -> float:
    """Wait until the condition is true, and return how many seconds that took.

    After `seconds`, raises an error with what was expected and what is there: NOT_YET, STALE_REF if the element is gone, or PAGE_HUNG
    if the page does not answer.
    """
    start = monotonic()
    pause = _FIRST_PAUSE
    while True:
        left = seconds - (monotonic() - start)
        failed: ToolError | None = None
        try:
            mismatches = await compare(tab, condition, min(max(left, _LEAST_SECONDS), SCRIPT_SECONDS))
        except ToolError as error:
            if error.code not in (STALE_REF, PAGE_HUNG):
                raise
            failed = error
            mismatches = [Mismatch(expected="a page that answers", actual=error.message)]
        waited = monotonic() - start
        if not mismatches:
            return waited
        if waited >= seconds:
            raise await _error(tab, condition, seconds, mismatches, failed)
        await asyncio.sleep(min(pause, max(0.0, seconds - waited)))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


async def _error(
    tab: Tab, condition: Condition, seconds: float, mismatches: list[Mismatch], failed: ToolError | None
) -> ToolError:
    error = failed or ToolError(NOT_YET, f"Not true within {seconds:g} s.")
    if condition.ref_number is not None and any(mismatch.is_gone for mismatch in mismatches):
        error = await stale_error(tab, condition.ref_number)
    error.details |= {
        "expected": [one_line(mismatch.expected, 300) for mismatch in mismatches],
        "actual": fence("\n".join(one_line(mismatch.actual, 600) for mismatch in mismatches)),
    }
    return error


async def compare(tab: Tab, condition: Condition, timeout: float) -> list[Mismatch]:
    """Return the fields of a condition that the page does not fulfil now. Raises PAGE_HUNG if the page does not answer in time."""
    mismatches: list[Mismatch] = []
    if condition.url or condition.title:
        page = await tab.run(await tab.document(timeout=timeout), "ready", timeout)
        for wanted, actual, what in (
            (condition.url, page["url"], "url"),
            (condition.title, page["title"], "title"),
        ):
            if wanted and not _matches(actual, wanted):
                mismatches.append(Mismatch(expected=f"{what} {wanted}", actual=f"{what} {actual}"))
    facts = None if condition.ref_number is None else await _facts(tab, condition.ref_number, timeout)
    if condition.ref_number is not None and facts is not None:
        mismatches += _compare_element(tab.ref(condition.ref_number), condition, facts)
        if not facts["exists"]:
            return mismatches
    return [*mismatches, *await _compare_texts(tab, condition, facts, timeout)]


async def _compare_texts(
    tab: Tab, condition: Condition, facts: dict[str, Any] | None, timeout: float
) -> list[Mismatch]:
    """Compare the texts of the page or, if `facts` about an element are given, of that element."""
    place, shown = "on the page", ""
    if facts is not None and condition.ref_number is not None:
        place, shown = (
            f"in {tab.ref(condition.ref_number)}",
            f"{tab.ref(condition.ref_number)}: {facts['text']}",
        )
    mismatches: list[Mismatch] = []
    for wanted, is_there in ((condition.text, True), (condition.not_text, False)):
        if not wanted:
            continue
        if facts is not None and wanted.lower() in f"{facts['name']} {facts['text']}".lower():
            result = FoundText(is_found=True, unread=0)
        else:
            result = await search_text(tab, wanted, timeout, condition.ref_number)
        if result.is_found == is_there and (is_there or not result.unread):
            continue
        expected = f"{'the' if is_there else 'no'} text {wanted!r} {place}"
        is_shown = wanted.lower() in shown.lower()
        actual = wanted if result.is_found and not is_shown else shown or "no such text"
        more = f", but {result.unread} elements were not read" if result.unread else ""
        mismatches.append(Mismatch(expected=expected, actual=f"{actual}{more}"))
    return mismatches


async def _facts(tab: Tab, ref_number: int, timeout: float) -> dict[str, Any]:
    """Return what the page script's function `facts` says about an element."""
    try:
        return await tab.run(tab.find_ref(ref_number), "facts", timeout, ref=ref_number)
    except ToolError as error:
        if error.code is STALE_REF:
            return {"exists": False}
        raise


_STATES: dict[State, Callable[[dict[str, Any]], bool]] = {
    "visible": lambda facts: facts["visible"],
    "hidden": lambda facts: not facts["visible"],
    "enabled": lambda facts: facts["enabled"],
    "disabled": lambda facts: not facts["enabled"],
    "checked": lambda facts: facts["checked"],
    "unchecked": lambda facts: not facts["checked"],
    "focused": lambda facts: facts["focused"],
    "gone": lambda facts: False,
}


def _compare_element(ref: str, condition: Condition, facts: dict[str, Any]) -> list[Mismatch]:
    if not facts["exists"]:
        state = None if condition.state in ("gone", "hidden") else condition.state
        if state is not condition.state and condition.value is None and not condition.text:
            return []
        parts = (state, condition.value, condition.text, condition.not_text)
        expected = f"{ref} {next((part for part in parts if part), 'with no value')}"
        return [Mismatch(expected=expected, actual=f"{ref} is no longer on the page", is_gone=True)]
    mismatches: list[Mismatch] = []
    if condition.state is not None and not _STATES[condition.state](facts):
        states = ["visible" if facts["visible"] else "hidden", *facts["states"]]
        mismatches.append(Mismatch(expected=f"{ref} {condition.state}", actual=f"{ref} {' '.join(states)}"))
    if condition.value is not None and facts["value"] != condition.value:
        actual = f"{ref} = {facts['value']}" if facts["value"] is not None else f"{ref} has no value"
        mismatches.append(Mismatch(expected=f"{ref} = {condition.value}", actual=actual))
    return mismatches


def _matches(actual: str, wanted: str) -> bool:
    return fnmatch.fnmatchcase(actual, wanted) if "*" in wanted else wanted in actual
