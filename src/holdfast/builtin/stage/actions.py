"""Mouse and keyboard actions. They wait until the element is visible, stands still, is enabled and would receive the click."""

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
from holdfast.builtin.stage.presses import Press, arm, disarm
from holdfast.builtin.stage.read_page import similar_refs
from holdfast.builtin.stage.tab import Tab
from holdfast.model import codes
from holdfast.toolkit import ToolError

FieldValue: TypeAlias = str | bool | list[str]
Button = Literal["left", "right", "middle"]

_BUTTONS = {"left": 1, "right": 2, "middle": 4}
_DRAG_SECONDS = 0.5
_DRAG_START = 8  # pixels
_MAX_KEYS = 2000  # longer texts are inserted at once
_FORMATS = (
    "Write a date as 2026-12-24, a time as 13:45, both as 2026-12-24T13:45, a month as 2026-12, a week as 2026-W52, a colour as"
    " #ff8800, and a number within the field's limits."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Where an element can be hit, in the tab's coordinates."""

    document: Document
    number: int
    x: float
    y: float
    is_download: bool = False
    """Whether it is a link to a file that the browser saves."""


async def aim(tab: Tab, number: int, *, enabled: bool, timeout: float) -> Aim:
    """Wait until an element can be acted on; raise with the reason if it cannot in time."""
    document = tab.find_ref(number)
    found = await tab.run(
        document,
        "locate",
        timeout + 2,
        ref=number,
        ms=timeout * 1000,
        next=tab.next_ref,
        enabled=enabled,
    )
    tab.claim(document, found["next"])
    if found["state"] != "ok":
        raise await _aim_error(tab, number, found)
    x, y = found["x"], found["y"]
    frame = tab.frames.get(document.frame_id)
    while frame is not None and frame.parent_id:
        owner = await tab.frame_element(frame)
        if owner is None:
            raise await stale_error(tab, number)
        parent, element = owner
        await tab.run(parent, "bringIntoView", ref=element)
        offset = await tab.run(parent, "frameOffset", ref=element, x=x, y=y, next=tab.next_ref)
        tab.claim(parent, offset["next"])
        if "gone" in offset:
            raise await stale_error(tab, number)
        if offset["cover"] is not None:
            raise _covered_error(tab, number, offset["cover"])
        x, y = offset["x"], offset["y"]
        frame = tab.frames.get(parent.frame_id)
    return Aim(document=document, number=number, x=x, y=y, is_download=found["download"])


async def _aim_error(tab: Tab, number: int, found: dict[str, Any]) -> ToolError:
    ref = tab.ref(number)
    match found["state"]:
        case "gone":
            return await stale_error(tab, number)
        case "hidden":
            return ToolError(NOT_VISIBLE, f"{ref} is not visible.")
        case "moving":
            return ToolError(NOT_VISIBLE, f"{ref} does not stand still.")
        case "disabled":
            return ToolError(ELEMENT_DISABLED, f"{ref} is disabled.")
        case _:
            return _covered_error(tab, number, found["cover"])


def _covered_error(tab: Tab, number: int, cover: dict[str, Any]) -> ToolError:
    name = tab.ref(cover["ref"]) if cover["ref"] >= 0 else "something else"
    return ToolError(
        COVERED,
        f"{tab.ref(number)} is covered by {name}. Nothing was clicked.",
        cover=name,
        page=fence(one_line(cover["text"], 120)),
    )


async def stale_error(tab: Tab, number: int) -> ToolError:
    """The error for an element that is gone, with elements that look the same."""
    similar: list[str] = []
    if not tab.is_over:
        try:
            similar = await similar_refs(tab, number)
        except ToolError:
            similar = []
    ref = tab.ref(number)
    if not similar:
        return ToolError(STALE_REF, f"{ref} is no longer on the page.")
    return ToolError(STALE_REF, f"{ref} is no longer on the page.", similar=fence("\n".join(similar[:3])))


async def click(
    tab: Tab, target: Aim, *, button: Button = "left", count: int = 1, modifiers: Sequence[str] = ()
) -> None:
    """Press and release a mouse button. A press that would hit something else is stopped, and COVERED is raised."""
    held = modifier_bits(modifiers)
    await _mouse(tab, "mouseMoved", target, held=held)
    armed = await _arm(tab, target)
    try:
        for number in range(1, count + 1):
            await _mouse(tab, "mousePressed", target, button=button, count=number, held=held)
            await _mouse(tab, "mouseReleased", target, button=button, count=number, held=held)
    finally:
        press = await disarm(tab, armed)
    _check_press(tab, target, press)


async def hover(tab: Tab, target: Aim) -> None:
    """Move the mouse over an element."""
    await _mouse(tab, "mouseMoved", replace(target, x=target.x - 1))
    await _mouse(tab, "mouseMoved", target)


async def drag(tab: Tab, source: Aim, target_number: int, timeout: float) -> None:
    """Press on one element, move to another, and release. The other one is scrolled into view after the press."""
    await tab.send(cdp.InputSetInterceptDrags(enabled=True))
    tab.dragged = None
    try:
        await _mouse(tab, "mouseMoved", source)
        armed = await _arm(tab, source)
        try:
            await _mouse(tab, "mousePressed", source, button="left", count=1)
            press = await disarm(tab, armed, keep=True)
            if press.outcome != "hit":
                await _mouse(tab, "mouseReleased", source, button="left", count=1)
        finally:
            await disarm(tab, armed)
        _check_press(tab, source, press)
        for distance in (3, _DRAG_START):
            _move_pressed(tab, source.x + distance, source.y + distance)
        await tab.until(lambda: tab.dragged is not None, _DRAG_SECONDS)
        try:
            target = await aim(tab, target_number, enabled=False, timeout=timeout)
        except ToolError:
            await _mouse(tab, "mouseReleased", source, button="left", count=1)
            raise
        if (data := tab.dragged) is not None:
            for kind in ("dragEnter", "dragOver", "drop"):
                await tab.send(cdp.InputDispatchDragEvent(type=kind, x=target.x, y=target.y, data=data))
        else:
            for step in (0.35, 0.7, 1.0):
                x = source.x + (target.x - source.x) * step
                y = source.y + (target.y - source.y) * step
                _move_pressed(tab, x, y)
        await _mouse(tab, "mouseReleased", target, button="left", count=1)
    finally:
        await tab.send(cdp.InputSetInterceptDrags(enabled=False))


def _move_pressed(tab: Tab, x: float, y: float) -> None:
    """Move the mouse with its button pressed. When this starts a drag, the browser does not answer."""
    command = cdp.InputDispatchMouseEvent(type="mouseMoved", x=x, y=y, button="left", buttons=1)
    tab.connection.post(command, tab.session)


async def scroll(tab: Tab, at: Aim | None, dx: float, dy: float) -> None:
    """Turn the mouse wheel over an element, or over the middle of the window."""
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


async def fill(tab: Tab, number: int, value: FieldValue, timeout: float) -> None:
    """Give a field a value: replace its text, check or uncheck it, or choose options."""
    document = tab.find_ref(number)
    field = await tab.run(document, "field", ref=number)
    ref = tab.ref(number)
    match field["kind"]:
        case "gone":
            raise await stale_error(tab, number)
        case "hidden":
            raise ToolError(NOT_VISIBLE, f"{ref} is not visible.")
        case "disabled":
            raise ToolError(ELEMENT_DISABLED, f"{ref} is disabled or read-only.")
        case "check":
            wanted = {"true": True, "false": False}.get(str(value).lower())
            if wanted is None:
                raise ToolError(codes.BAD_ARGUMENT, f"{ref} is checked or not: use true or false.")
            if field["checked"] != wanted:
                await click(tab, await aim(tab, number, enabled=True, timeout=timeout))
        case "select":
            await _choose(tab, document, number, value if isinstance(value, list) else [str(value)])
        case "set":
            await _set(tab, document, number, _text(ref, value))
        case "text" | "editable":
            await _fill_text(tab, document, number, _text(ref, value), timeout)
        case "file":
            raise ToolError(UNSUPPORTED_HERE, f"{ref} takes files: use upload.")
        case _:
            raise ToolError(NO_EFFECT, f"{ref} is not a field.")


async def _set(tab: Tab, document: Document, number: int, text: str) -> None:
    field = await tab.run(document, "setField", ref=number, value=text)
    if field is None:
        raise await stale_error(tab, number)
    if not field["taken"]:
        message = f"{tab.ref(number)} does not take this value."
        page = fence(one_line(f"It has: {field['shown']}"))
        raise ToolError(NO_EFFECT, message, page=page, hint=_FORMATS)


async def _fill_text(tab: Tab, document: Document, number: int, text: str, timeout: float) -> None:
    await aim(tab, number, enabled=True, timeout=timeout)
    if not await tab.run(document, "focusField", ref=number, select=True):
        raise ToolError(NO_EFFECT, f"{tab.ref(number)} did not take the focus.")
    if text:
        await tab.send(cdp.InputInsertText(text=text))
    else:
        await press(tab, "Delete")
    try:
        shown = await tab.run(document, "shownValue", ref=number, expected=text)
    except ToolError as error:
        if error.code is STALE_REF:  # the page reacted by loading another
            return
        raise
    if shown is not None and not shown["same"]:
        message = f"{tab.ref(number)} changed or refused the text that was entered."
        hint = "Go on if that is what you want. Otherwise enter another text, or use type."
        raise ToolError(NO_EFFECT, message, page=fence(one_line(f"It has: {shown['shown']}")), hint=hint)


async def _choose(tab: Tab, document: Document, number: int, values: list[str]) -> None:
    chosen = await tab.run(document, "choose", ref=number, values=values)
    if chosen is None:
        raise await stale_error(tab, number)
    if "chosen" not in chosen:
        raise ToolError(
            NO_ELEMENT,
            f"{tab.ref(number)} does not have these options, or they are disabled. Nothing was chosen.",
            page=fence("\n".join(one_line(option, 80) for option in chosen["options"])),
            hint="Choose from these options.",
        )


async def focus(tab: Tab, number: int, timeout: float, *, caret: Literal["end", "kept"]) -> None:
    """Focus an element, so that it gets the keys. With `caret="kept"`, an element that has the focus keeps its caret and selection."""
    document = tab.find_ref(number)
    await aim(tab, number, enabled=True, timeout=timeout)
    if not await tab.run(document, "focusField", ref=number, caret=caret):
        raise ToolError(NO_EFFECT, f"{tab.ref(number)} did not take the focus.")


def modifier_bits(names: Sequence[str]) -> int:
    """The bit mask of these modifiers in the protocol; raises BAD_ARGUMENT for an unknown one."""
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


async def _arm(tab: Tab, target: Aim) -> list[Document]:
    armed = await arm(tab, target.document, target.number)
    if armed is None:
        raise await stale_error(tab, target.number)
    return armed


def _check_press(tab: Tab, target: Aim, press: Press) -> None:
    if press.cover is not None:
        raise _covered_error(tab, target.number, press.cover)
    if press.outcome == "missed" and tab.asked_for_program is not None:
        message = (
            "The page asked to open another program, so it gets no more clicks. Load it again: goto reload."
        )
        raise ToolError(NO_EFFECT, message)
    if press.outcome == "missed":
        raise ToolError(
            NO_EFFECT, f"{tab.ref(target.number)} did not get the click: the page moved, or took the mouse."
        )


async def _mouse(
    tab: Tab, kind: str, at: Aim, *, button: str = "none", count: int = 0, held: int = 0
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
    await asyncio.sleep(0)


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
