"""The keys of a keyboard, as the DevTools protocol describes them."""

from dataclasses import dataclass

from holdfast.model import codes
from holdfast.toolkit import ToolError

MODIFIERS = {"alt": 1, "control": 2, "ctrl": 2, "meta": 4, "cmd": 4, "command": 4, "shift": 8}
_MODIFIER_KEYS = {
    1: ("Alt", "AltLeft", 18),
    2: ("Control", "ControlLeft", 17),
    4: ("Meta", "MetaLeft", 91),
    8: ("Shift", "ShiftLeft", 16),
}
_SHIFT = 8
_ALT_CONTROL_META = 7  # with any of these, a key types no text
# The key's code, its Windows key code, and the text that it types, by its name.
_NAMED = {
    "Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "Escape": ("Escape", 27, ""), "Backspace": ("Backspace", 8, ""),
    "Delete": ("Delete", 46, ""), "Insert": ("Insert", 45, ""), "Space": ("Space", 32, " "), "Home": ("Home", 36, ""),
    "End": ("End", 35, ""), "PageUp": ("PageUp", 33, ""), "PageDown": ("PageDown", 34, ""), "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""), "ArrowRight": ("ArrowRight", 39, ""), "ArrowDown": ("ArrowDown", 40, ""),
    **{f"F{number}": (f"F{number}", 111 + number, "") for number in range(1, 13)},
}  # fmt: skip
_ALIASES = {
    "esc": "Escape", "return": "Enter", "del": "Delete", "left": "ArrowLeft", "right": "ArrowRight", "up": "ArrowUp",
    "down": "ArrowDown", "spacebar": "Space", "": "Space",
}  # fmt: skip
_BY_LOWER_NAME = {name.lower(): name for name in _NAMED}
_PUNCTUATION = {
    ";": ("Semicolon", 186), "=": ("Equal", 187), ",": ("Comma", 188), "-": ("Minus", 189), ".": ("Period", 190), "/": ("Slash", 191),
    "`": ("Backquote", 192), "[": ("BracketLeft", 219), "\\": ("Backslash", 220), "]": ("BracketRight", 221), "'": ("Quote", 222),
}  # fmt: skip
# Editing commands, by modifiers and key. A browser's window derives them from the keys; a headless browser has no window.
_COMMANDS = {
    (2, "a"): "selectAll",
    (2, "c"): "copy",
    (2, "x"): "cut",
    (2, "v"): "paste",
    (2, "z"): "undo",
    (2 | _SHIFT, "z"): "redo",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key, with the modifiers that are held while it is pressed."""

    key: str
    code: str = ""
    number: int = 0
    """The Windows key code, which the DevTools protocol uses on every system."""
    text: str = ""
    """What the key types."""
    modifiers: int = 0
    """A sum of the values in `MODIFIERS`."""
    command: str = ""
    """The editing command of the key, such as `copy`."""


def parse_keys(combination: str) -> Key:
    """Return the key of a combination such as `Control+A`, `Enter` or `Shift+ArrowDown`. Raises BAD_ARGUMENT for unknown keys."""
    *held, name = combination.split("+") if combination not in ("+", "") else ["+"]
    if combination.endswith("++"):
        held, name = combination[:-2].split("+"), "+"
    modifiers = 0
    for word in held:
        bit = MODIFIERS.get(word.strip().lower())
        if bit is None:
            raise ToolError(
                codes.BAD_ARGUMENT, f"{word!r} is not a modifier. Use Control, Shift, Alt or Meta."
            )
        modifiers |= bit
    return _named_key(name.strip() if name.strip() else name, modifiers)


def key_for_character(character: str) -> Key:
    """Return the key that types a character.

    Its `code` is empty if no key types the character, or only another key with Shift, such as 1 for `!`.
    """
    if character in ("\n", "\r"):
        return _named_key("Enter", 0)
    if character == "\t":
        return _named_key("Tab", 0)
    return _character_key(character, _SHIFT if character.isupper() else 0)


def held_keys(modifiers: int) -> list[Key]:
    """Return the modifier keys, such as Control, for these modifiers."""
    return [
        Key(key=key, code=code, number=number)
        for bit, (key, code, number) in _MODIFIER_KEYS.items()
        if modifiers & bit
    ]


def _named_key(name: str, modifiers: int) -> Key:
    known = _ALIASES.get(name.lower()) if name != " " else "Space"
    known = known or _BY_LOWER_NAME.get(name.lower())
    if (known is not None and len(name) != 1) or known == "Space":
        assert known is not None
        code, number, text = _NAMED[known]
        key = " " if known == "Space" else known
        typed = "" if modifiers & _ALT_CONTROL_META else text
        return Key(key=key, code=code, number=number, text=typed, modifiers=modifiers)
    if len(name) == 1:
        if modifiers & _ALT_CONTROL_META and not modifiers & _SHIFT:
            name = name.lower()  # Control+A does not mean Control+Shift+A
        return _character_key(name, modifiers)
    raise ToolError(
        codes.BAD_ARGUMENT,
        f"{name[:40]!r} is not a key. Use a character or one of: {', '.join(list(_NAMED)[:15])}, F1 to F12.",
    )


def _character_key(character: str, modifiers: int) -> Key:
    code, number = "", 0
    if character.isascii() and character.isalpha():
        code, number = f"Key{character.upper()}", ord(character.upper())
    elif character.isascii() and character.isdigit():
        code, number = f"Digit{character}", ord(character)
    elif character in _PUNCTUATION:
        code, number = _PUNCTUATION[character]
    elif character == " ":
        code, number = "Space", 32
    command = _COMMANDS.get((modifiers, character.lower()), "")
    key = character.upper() if modifiers & _SHIFT and character.isalpha() else character
    return Key(
        key=key,
        code=code,
        number=number,
        text="" if modifiers & _ALT_CONTROL_META else key,
        modifiers=modifiers,
        command=command,
    )
