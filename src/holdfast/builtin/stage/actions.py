"""Mouse and keyboard actions, and waiting until an element is visible, does not move, is enabled and would receive a click."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from holdfast.builtin.stage.cdp import protocol as cdp
from holdfast.builtin.stage.codes import (
    COVERED,
    ELEMENT_DISABLED,
    NO_EFFECT,
    NO_ELEMENT,
    NOT_VISIBLE,
    STALE_REF,
    UNSUPPORTED_HERE,
)
from holdfast.builtin.stage.fence import fence, one_line
from holdfast.builtin.stage.frames import Document
from holdfast.builtin.stage.keys import MODIFIERS, Key, held_keys, key_for_character, parse_keys
from holdfast.builtin.stage.presses import Press, arm, finish_press
from holdfast.builtin.stage.read_page import similar_refs
from holdfast.builtin.stage.tab import Tab
from holdfast.model import codes
from holdfast.toolkit import ToolError

FieldValue: TypeAlias = str | bool | list[str]
Button = Literal["left", "right", "middle"]

_BUTTONS = {"left": 1, "right": 2, "middle": 4}
_DRAG_SECONDS = 0.5  # how long to wait for the page to start a drag
_DRAG_START = 8  # after how many pixels Chromium treats a movement as a drag
_MAX_KEYS = 2000  # longer texts are inserted at once
_FORMATS = (
    "Write a date as 2026-12-24, a time as 13:45, both as 2026-12-24T13:45, a month as 2026-12, a week as 2026-W52, a colour as"
    " #ff8800, and a number within the field's limits."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTarget:
    """The point at which an element can be clicked, in the tab's coordinates."""

    document: Document
    ref_number: int
    """The number in the element's ref."""
    x: float
    y: float
    is_download: bool = False
    """Whether the element is a link to a file that the browser saves."""


async def wait_until_actionable(tab: Tab, ref_number: int, *, enabled: bool, timeout: float) -> ActionTarget:
    """Wait until the element with this ref number is visible, does not move and is not covered; with `enabled`, also until it is enabled.

    If that takes longer than `timeout`, raise an error with the reason.
    """
    document = tab.find_ref(ref_number)
    # The page script waits for at most `ms`, and then needs a little time to answer.
    located = await tab.run(
        document,
        "locate",
        timeout + 2,
        ref=ref_number,
        ms=timeout * 1000,
        next=tab.next_ref,
        enabled=enabled,
    )
    tab.claim(document, located["next"])
    if located["state"] != "ok":
        raise await _not_actionable_error(tab, ref_number, located)
    x, y = located["x"], located["y"]
    # Convert the coordinates in the element's frame to coordinates in the tab. Each frame around the element may be covered, too.
    frame = tab.frames.get(document.frame_id)
    while frame is not None and frame.parent_id:
        owner = await tab.frame_element(frame)
        if owner is None:
            raise await stale_error(tab, ref_number)
        parent, element = owner
        await tab.run(parent, "bringIntoView", ref=element)
        offset = await tab.run(parent, "frameOffset", ref=element, x=x, y=y, next=tab.next_ref)
        tab.claim(parent, offset["next"])
        if "gone" in offset:
            raise await stale_error(tab, ref_number)
        if offset["cover"] is not None:
            raise _covered_error(tab, ref_number, offset["cover"])
        x, y = offset["x"], offset["y"]
        frame = tab.frames.get(parent.frame_id)
    return ActionTarget(document=document, ref_number=ref_number, x=x, y=y, is_download=located["download"])


async def _not_actionable_error(tab: Tab, ref_number: int, located: dict[str, Any]) -> ToolError:
    ref = tab.ref(ref_number)
    match located["state"]:
        case "gone":
            return await stale_error(tab, ref_number)
        case "hidden":
            return ToolError(NOT_VISIBLE, f"{ref} is not visible.")
        case "moving":
            return ToolError(NOT_VISIBLE, f"{ref} keeps moving.")
        case "disabled":
            return ToolError(ELEMENT_DISABLED, f"{ref} is disabled.")
        case _:
            return _covered_error(tab, ref_number, located["cover"])


def _covered_error(tab: Tab, ref_number: int, cover: dict[str, Any]) -> ToolError:
    name = tab.ref(cover["ref"]) if cover["ref"] >= 0 else "something else"
    return ToolError(
        COVERED,
        f"{tab.ref(ref_number)} is covered by {name}. Nothing was clicked.",
        cover=name,
        page=fence(one_line(cover["text"], 120)),
    )


async def stale_error(tab: Tab, ref_number: int) -> ToolError:
    """Return the error for an element that is gone. The error lists elements that look the same."""
    similar: list[str] = []
    if not tab.is_over:
        try:
            similar = await similar_refs(tab, ref_number)
        except ToolError:
            similar = []
    ref = tab.ref(ref_number)
    if not similar:
        return ToolError(STALE_REF, f"{ref} is no longer on the page.")
    return ToolError(STALE_REF, f"{ref} is no longer on the page.", similar=fence("\n".join(similar[:3])))


async def click(
    tab: Tab, target: ActionTarget, *, button: Button = "left", count: int = 1, modifiers: Sequence[str] = ()
) -> None:
    """Press and release a mouse button. If the press would hit another element, it is stopped, and COVERED is raised."""
    held = modifier_bits(modifiers)
    await _mouse(tab, "mouseMoved", target, held=held)
    armed = await _arm(tab, target)
    try:
        for press_count in range(1, count + 1):
            await _mouse(tab, "mousePressed", target, button=button, count=press_count, held=held)
            await _mouse(tab, "mouseReleased", target, button=button, count=press_count, held=held)
    finally:
        press = await finish_press(tab, armed)
    _check_press(tab, target, press)


async def hover(tab: Tab, target: ActionTarget) -> None:
    """Move the mouse over an element."""
    # Two movements, so that the mouse moves even if it is there already.
    await _mouse(tab, "mouseMoved", replace(target, x=target.x - 1))
    await _mouse(tab, "mouseMoved", target)


async def drag(tab: Tab, source: ActionTarget, target_ref_number: int, timeout: float) -> None:
    """Drag one element to another: press, move, release. The target is scrolled into view after the press."""
    await tab.send(cdp.InputSetInterceptDrags(enabled=True))
    tab.dragged = None
    try:
        await _mouse(tab, "mouseMoved", source)
        armed = await _arm(tab, source)
        try:
            await _mouse(tab, "mousePressed", source, button="left", count=1)
            press = await finish_press(tab, armed, keep=True)
            if press.outcome != "hit":
                await _mouse(tab, "mouseReleased", source, button="left", count=1)
        finally:
            await finish_press(tab, armed)
        _check_press(tab, source, press)
        for distance in (3, _DRAG_START):
            _move_pressed(tab, source.x + distance, source.y + distance)
        await tab.until(lambda: tab.dragged is not None, _DRAG_SECONDS)
        try:
            target = await wait_until_actionable(tab, target_ref_number, enabled=False, timeout=timeout)
        except ToolError:
            await _mouse(tab, "mouseReleased", source, button="left", count=1)
            raise
        if (data := tab.dragged) is not None:
            for kind in ("dragEnter", "dragOver", "drop"):
                await tab.send(cdp.InputDispatchDragEvent(type=kind, x=target.x, y=target.y, data=data))
        else:
            for fraction in (0.35, 0.7, 1.0):
                x = source.x + (target.x - source.x) * fraction
                y = source.y + (target.y - source.y) * fraction
                _move_pressed(tab, x, y)
        await _mouse(tab, "mouseReleased", target, button="left", count=1)
    finally:
        await tab.send(cdp.InputSetInterceptDrags(enabled=False))


def _move_pressed(tab: Tab, x: float, y: float) -> None:
    """Move the mouse with its button pressed. Does not wait for an answer: the browser sends none if the movement starts a drag."""
    command = cdp.InputDispatchMouseEvent(type="mouseMoved", x=x, y=y, button="left", buttons=1)
    tab.connection.post(command, tab.session)


async def scroll(tab: Tab, at: ActionTarget | None, dx: float, dy: float) -> None:
    """Turn the mouse wheel over an element, or over the middle of the window, which has 1280 x 800 pixels."""
    x, y = (at.x, at.y) if at is not None else (640.0, 400.0)
    await tab.send(cdp.InputDispatchMouseEvent(type="mouseWheel", x=x, y=y, delta_x=dx, delta_y=dy))


async def press(tab: Tab, combination: str) -> None:
    """Press keys together, such as `Control+A`."""
    key = parse_keys(combination)
    for held in held_keys(key.modifiers):
        await _key(tab, "rawKeyDown", held, key.modifiers)
    await _type_key(tab, key)
    for held in reversed(held_keys(key.modifiers)):
        await _key(tab, "keyUp", held, 0)


async def type_text(tab: Tab, text: str) -> None:
    """Type a text key by key. A long text is inserted at once, as if it were pasted."""
    if len(text) > _MAX_KEYS:
        await tab.send(cdp.InputInsertText(text=text))
        return
    for character in text:
        key = key_for_character(character)
        if key.code:
            await _type_key(tab, key)
        else:
            await tab.send(cdp.InputInsertText(text=character))


async def fill(tab: Tab, ref_number: int, value: FieldValue, timeout: float) -> None:
    """Give a field a value: replace its text, check or uncheck it, or choose options."""
    document = tab.find_ref(ref_number)
    field = await tab.run(document, "field", ref=ref_number)
    ref = tab.ref(ref_number)
    match field["kind"]:
        case "gone":
            raise await stale_error(tab, ref_number)
        case "hidden":
            raise ToolError(NOT_VISIBLE, f"{ref} is not visible.")
        case "disabled":
            raise ToolError(ELEMENT_DISABLED, f"{ref} is disabled or read-only.")
        case "check":
            wanted = {"true": True, "false": False}.get(str(value).lower())
            if wanted is None:
                raise ToolError(codes.BAD_ARGUMENT, f"{ref} is checked or not: use true or false.")
            if field["checked"] != wanted:
                await click(tab, await wait_until_actionable(tab, ref_number, enabled=True, timeout=timeout))
        case "select":
            await _choose(tab, document, ref_number, value if isinstance(value, list) else [str(value)])
        case "set":
            await _set(tab, document, ref_number, _text(ref, value))
        case "text" | "editable":
            await _fill_text(tab, document, ref_number, _text(ref, value), timeout)
        case "file":
            raise ToolError(UNSUPPORTED_HERE, f"{ref} takes files: use upload.")
        case _:
            raise ToolError(NO_EFFECT, f"{ref} is not a field.")


async def _set(tab: Tab, document: Document, ref_number: int, text: str) -> None:
    field = await tab.run(document, "setField", ref=ref_number, value=text)
    if field is None:
        raise await stale_error(tab, ref_number)
    if not field["taken"]:
        message = f"{tab.ref(ref_number)} does not take this value."
        page = fence(one_line(f"It has: {field['shown']}"))
        raise ToolError(NO_EFFECT, message, page=page, hint=_FORMATS)


async def _fill_text(tab: Tab, document: Document, ref_number: int, text: str, timeout: float) -> None:
    await wait_until_actionable(tab, ref_number, enabled=True, timeout=timeout)
    if not await tab.run(document, "focusField", ref=ref_number, select=True):
        raise ToolError(NO_EFFECT, f"{tab.ref(ref_number)} did not take the focus.")
    if text:
        await tab.send(cdp.InputInsertText(text=text))
    else:
        await press(tab, "Delete")
    try:
        shown = await tab.run(document, "shownValue", ref=ref_number, expected=text)
    except ToolError as error:
        if error.code is STALE_REF:  # the page reacted to the text by loading another page
            return
        raise
    if shown is not None and not shown["same"]:
        message = f"{tab.ref(ref_number)} changed or refused the text that was entered."
        hint = "Go on if that is what you want. Otherwise enter another text, or use type."
        raise ToolError(NO_EFFECT, message, page=fence(one_line(f"It has: {shown['shown']}")), hint=hint)


async def _choose(tab: Tab, document: Document, ref_number: int, values: list[str]) -> None:
    chosen = await tab.run(document, "choose", ref=ref_number, values=values)
    if chosen is None:
        raise await stale_error(tab, ref_number)
    if "chosen" not in chosen:
        raise ToolError(
            NO_ELEMENT,
            f"{tab.ref(ref_number)} does not have these options, or they are disabled. Nothing was chosen.",
            page=fence("\n".join(one_line(option, 80) for option in chosen["options"])),
            hint="Choose from these options.",
        )


async def focus(tab: Tab, ref_number: int, timeout: float, *, caret: Literal["end", "kept"]) -> None:
    """Focus an element, so that it gets the keys. With `caret="kept"`, an element that has the focus keeps its caret and selection."""
    document = tab.find_ref(ref_number)
    await wait_until_actionable(tab, ref_number, enabled=True, timeout=timeout)
    if not await tab.run(document, "focusField", ref=ref_number, caret=caret):
        raise ToolError(NO_EFFECT, f"{tab.ref(ref_number)} did not take the focus.")


def modifier_bits(names: Sequence[str]) -> int:
    """Return the DevTools protocol's bit mask for these modifiers. Raises BAD_ARGUMENT for an unknown one."""
    bits = 0
    for name in names:
        bit = MODIFIERS.get(name.lower())
        if bit is None:
            raise ToolError(
                codes.BAD_ARGUMENT, f"{name[:40]!r} is not a modifier. Use Control, Shift, Alt or Meta."
            )
        bits |= bit
    return bits


def _text(ref: str, value: FieldValue) -> str:
    if not isinstance(value, str):
        raise ToolError(codes.BAD_ARGUMENT, f"{ref} takes a string.")
    return value


async def _arm(tab: Tab, target: ActionTarget) -> list[Document]:
    armed = await arm(tab, target.document, target.ref_number)
    if armed is None:
        raise await stale_error(tab, target.ref_number)
    return armed


def _check_press(tab: Tab, target: ActionTarget, press: Press) -> None:
    if press.cover is not None:
        raise _covered_error(tab, target.ref_number, press.cover)
    if press.outcome == "missed" and tab.asked_for_program_at is not None:
        message = "The page asked to open another program, so it gets no more clicks. To load the page again, call goto with reload."
        raise ToolError(NO_EFFECT, message)
    if press.outcome == "missed":
        raise ToolError(
            NO_EFFECT,
            f"{tab.ref(target.ref_number)} did not get the click: the page moved, or took the mouse.",
        )


async def _mouse(
    tab: Tab, kind: str, at: ActionTarget, *, button: str = "none", count: int = 0, held: int = 0
) -> None:
    await tab.send(
        cdp.InputDispatchMouseEvent(
            type=kind,
            x=at.x,
            y=at.y,
            button=button,
            buttons=_BUTTONS.get(button, 0) if kind == "mousePressed" else 0,
            click_count=count,
            modifiers=held,
        )
    )


async def _type_key(tab: Tab, key: Key) -> None:
    await _key(tab, "keyDown" if key.text else "rawKeyDown", key, key.modifiers)
    await _key(tab, "keyUp", key, key.modifiers)
    await asyncio.sleep(0)  # a long text must not block other calls


async def _key(tab: Tab, kind: str, key: Key, modifiers: int) -> None:
    text = key.text if kind == "keyDown" else None
    await tab.send(
        cdp.InputDispatchKeyEvent(
            type=kind,
            modifiers=modifiers,
            key=key.key,
            code=key.code,
            text=text,
            unmodified_text=text,
            windows_virtual_key_code=key.number,
            commands=[key.command] if key.command and kind != "keyUp" else None,
        )
    )
