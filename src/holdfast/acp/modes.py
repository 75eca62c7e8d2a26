"""What an editor chooses for a session: its mode, and less trust."""

from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.trust import Trust, lowest
from holdfast.session.permission import Mode

MODE, TRUST = "mode", "trust"
_MODES = (
    (Mode.ASK, "Ask", "Ask before a tool changes something"),
    (Mode.AUTO, "Auto", "Run every tool without asking"),
    (Mode.READ_ONLY, "Read only", "Run only tools that change nothing"),
)

_TRUST = (
    (Trust.DIRECT, "Direct", "Servers run with your own rights"),
    (Trust.SANDBOXED, "Sandboxed", "Servers run confined; there is no way back"),
)


def parse_mode(mode: Any) -> Mode:
    """The mode that an editor named."""
    try:
        return Mode(mode)
    except ValueError:
        modes = ", ".join(known.value for known, _, _ in _MODES)
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"{str(mode)[:40]!r} is no mode. There are: {modes}."
        ) from None


def stored_mode(settings: JsonObject) -> Mode:
    """The mode that a session was left in."""
    try:
        return Mode(str(settings.get(MODE, Mode.ASK)))
    except ValueError:
        return Mode.ASK


def state(mode: Mode, trust: Trust) -> JsonObject:
    """The modes there are and the one that is on, in the two ways editors know."""
    available: list[Json] = [
        {"id": known.value, "name": name, "description": text} for known, name, text in _MODES
    ]
    return {
        "modes": {"currentModeId": mode.value, "availableModes": available},
        "configOptions": options(mode, trust),
    }


def options(mode: Mode, trust: Trust) -> list[Json]:
    """The session's options: the mode once more, and the trust it can still have."""
    values: list[Json] = [
        {"value": known.value, "name": name, "description": text} for known, name, text in _MODES
    ]
    left: list[Json] = [
        {"value": known.value, "name": name, "description": text}
        for known, name, text in _TRUST
        if lowest(known, trust) is known
    ]
    return [
        {
            "id": MODE,
            "name": "Permission",
            "category": "mode",
            "type": "select",
            "currentValue": mode.value,
            "options": values,
        },
        {"id": TRUST, "name": "Trust", "type": "select", "currentValue": trust.value, "options": left},
    ]
