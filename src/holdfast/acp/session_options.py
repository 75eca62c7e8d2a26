"""The session options that an editor can change: the mode, and less trust."""

from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.trust import Trust, lowest_trust
from holdfast.session.permission import Mode

MODE, TRUST = "mode", "trust"
_MODES = (
    (Mode.ASK, "Ask", "Ask before a tool changes something"),
    (Mode.AUTO, "Auto", "Run every tool without asking"),
    (Mode.READ_ONLY, "Read only", "Run only tools that change nothing"),
)

_TRUST = (
    (Trust.DIRECT, "Direct", "Servers run with your own rights"),
    (Trust.SANDBOXED, "Sandboxed", "Servers run confined; this cannot be undone"),
)


def parse_mode(mode: Any) -> Mode:
    """Parse the mode that an editor sent."""
    try:
        return Mode(mode)
    except ValueError:
        modes = ", ".join(known.value for known, _, _ in _MODES)
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"{str(mode)[:40]!r} is not a mode. The modes are: {modes}."
        ) from None


def describe_state(mode: Mode, trust: Trust) -> JsonObject:
    """The current mode and options, in both forms that ACP defines: modes and config options."""
    available: list[Json] = [
        {"id": known.value, "name": name, "description": text} for known, name, text in _MODES
    ]
    return {
        "modes": {"currentModeId": mode.value, "availableModes": available},
        "configOptions": describe_options(mode, trust),
    }


def describe_options(mode: Mode, trust: Trust) -> list[Json]:
    """The config options: the mode, and the trust levels that the session can still have."""
    values: list[Json] = [
        {"value": known.value, "name": name, "description": text} for known, name, text in _MODES
    ]
    left: list[Json] = [
        {"value": known.value, "name": name, "description": text}
        for known, name, text in _TRUST
        if lowest_trust(known, trust) is known
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
