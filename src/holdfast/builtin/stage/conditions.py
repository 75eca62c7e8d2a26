"""Conditions on a page, for wait and expect: what is expected, and what is there instead."""

import asyncio
import fnmatch
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

from holdfast.builtin.stage.codes import NOT_YET, PAGE_HUNG, STALE_REF
from holdfast.builtin.stage.fence import fence, one_line
from holdfast.builtin.stage.read_page import shows_text
from holdfast.builtin.stage.tab import Tab
from holdfast.toolkit import ToolError

State = Literal["visible", "hidden", "enabled", "disabled", "checked", "unchecked", "focused", "gone"]

_FIRST_PAUSE = 0.03
_LONGEST_PAUSE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a page must show. Every part that is given must be true."""

    text: str = ""
    not_text: str = ""
    number: int | None = None
    """The number of an element. Without it, `text` and `not_text` are about the whole page."""
    state: State | None = None
    value: str | None = None
    url: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One part of a condition that is not true. `actual` may contain text that the page wrote."""

    expected: str
    actual: str


async def wait_until(tab: Tab, condition: Condition, seconds: float) -> float:
    """Wait until the condition is true, and return how many seconds that took; raise NOT_YET with expected and actual after `seconds`."""
    start = monotonic()
    pause = _FIRST_PAUSE
    while True:
        try:
            mismatches = await compare(tab, condition)
        except ToolError as error:
            if error.code not in (STALE_REF, PAGE_HUNG) or monotonic() - start >= seconds:
                raise
            mismatches = [Mismatch(expected="a page that answers", actual="a page that is being loaded")]
        waited = monotonic() - start
        if not mismatches:
            return waited
        if waited >= seconds:
            raise ToolError(
                NOT_YET,
                f"Not true within {seconds:g} s.",
                expected=[one_line(mismatch.expected, 300) for mismatch in mismatches],
                actual=fence("\n".join(one_line(mismatch.actual, 600) for mismatch in mismatches)),
            )
        await asyncio.sleep(min(pause, max(0.0, seconds - waited)))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


async def compare(tab: Tab, condition: Condition) -> list[Mismatch]:
    """The parts of a condition that are not true now."""
    mismatches: list[Mismatch] = []
    if condition.url or condition.title:
        page = await tab.run(await tab.document(), "ready")
        for wanted, actual, what in (
            (condition.url, page["url"], "url"),
            (condition.title, page["title"], "title"),
        ):
            if wanted and not _matches(actual, wanted):
                mismatches.append(Mismatch(expected=f"{what} {wanted}", actual=f"{what} {actual}"))
    if condition.number is None:
        for wanted, is_there in ((condition.text, True), (condition.not_text, False)):
            if wanted and await shows_text(tab, wanted) != is_there:
                expected = f"{'the' if is_there else 'no'} text {wanted!r} on the page"
                mismatches.append(Mismatch(expected=expected, actual="no such text" if is_there else wanted))
        return mismatches
    facts = await _facts(tab, condition.number)
    return [*mismatches, *_compare_element(tab.ref(condition.number), condition, facts)]


async def _facts(tab: Tab, number: int) -> dict[str, Any]:
    try:
        return await tab.run(tab.find_ref(number), "facts", ref=number)
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
        if condition.state in ("gone", "hidden"):
            return []
        raise ToolError(STALE_REF, f"{ref} is no longer on the page.")
    mismatches: list[Mismatch] = []
    if condition.state is not None and not _STATES[condition.state](facts):
        states = ["visible" if facts["visible"] else "hidden", *facts["states"]]
        mismatches.append(Mismatch(expected=f"{ref} {condition.state}", actual=f"{ref} {' '.join(states)}"))
    if condition.value is not None and facts["value"] != condition.value:
        actual = f"{ref} = {facts['value']}" if facts["value"] is not None else f"{ref} has no value"
        mismatches.append(Mismatch(expected=f"{ref} = {condition.value}", actual=actual))
    texts = f"{facts['name']} {facts['text']}".lower()
    if condition.text and condition.text.lower() not in texts:
        mismatches.append(
            Mismatch(expected=f"{ref} contains {condition.text!r}", actual=f"{ref}: {facts['text']}")
        )
    if condition.not_text and condition.not_text.lower() in texts:
        mismatches.append(
            Mismatch(expected=f"{ref} without {condition.not_text!r}", actual=f"{ref}: {facts['text']}")
        )
    return mismatches


def _matches(actual: str, wanted: str) -> bool:
    return fnmatch.fnmatchcase(actual, wanted) if "*" in wanted else wanted in actual
