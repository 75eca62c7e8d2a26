"""The session options that an editor can change: the mode, and the trust, which it can only lower."""

from typing import Any

from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.permission import Mode
from holdfast.model.trust import Trust, lowest_trust

MODE_OPTION, TRUST_OPTION = "mode", "trust"
_MODES = (
    (Mode.ASK, "Ask", "Ask before a tool changes something"),
    (Mode.AUTO, "Auto", "Run every tool without asking"),
    (Mode.READ_ONLY, "Read only", "Run only tools that change nothing"),
)
_TRUST_LEVELS = (
    (Trust.DIRECT, "Direct", "Servers run with your own rights"),
    (Trust.SANDBOXED, "Sandboxed", "Servers run confined; this cannot be undone"),
)


def parse_mode(mode_id: Any) -> Mode:
    """Return the mode with this id. Raises BAD_ARGUMENT if there is none."""
    try:
        return Mode(mode_id)
    except ValueError:
        modes = ", ".join(mode.value for mode, _, _ in _MODES)
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"{str(mode_id)[:40]!r} is not a mode. The modes are: {modes}."
        ) from None


def describe_state(mode: Mode, trust: Trust) -> JsonObject:
    """Return the current mode and trust, as ACP's `modes` and `configOptions`."""
    modes: list[Json] = [
        {"id": known.value, "name": name, "description": text} for known, name, text in _MODES
    ]
    return {
        "modes": {"currentModeId": mode.value, "availableModes": modes},
        "configOptions": describe_options(mode, trust),
    }


def describe_options(mode: Mode, trust: Trust) -> list[Json]:
    """Return ACP's `configOptions`: all modes, and the trust levels that the session can still be set to."""
    modes: list[Json] = [
        {"value": known.value, "name": name, "description": text} for known, name, text in _MODES
    ]
    trust_levels: list[Json] = [
        {"value": known.value, "name": name, "description": text}
        for known, name, text in _TRUST_LEVELS
        if lowest_trust(known, trust) is known
    ]
    return [
        {
            "id": MODE_OPTION,
            "name": "Permission",
            "category": "mode",
            "type": "select",
            "currentValue": mode.value,
            "options": modes,
        },
        {
            "id": TRUST_OPTION,
            "name": "Trust",
            "type": "select",
            "currentValue": trust.value,
            "options": trust_levels,
        },
    ]
