"""The session options that an editor can change: the mode, and the trust, which it can only lower."""

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
    """The mode of this id. Raises BAD_ARGUMENT if there is no such mode."""
    try:
        return Mode(mode)
    except ValueError:
        modes = ", ".join(known.value for known, _, _ in _MODES)
        raise HoldfastError(
            codes.BAD_ARGUMENT, f"{str(mode)[:40]!r} is not a mode. The modes are: {modes}."
        ) from None


def describe_state(mode: Mode, trust: Trust) -> JsonObject:
    """The current mode and trust, as ACP's `modes` and as its `configOptions`."""
    available: list[Json] = [
        {"id": known.value, "name": name, "description": text} for known, name, text in _MODES
    ]
    return {
        "modes": {"currentModeId": mode.value, "availableModes": available},
        "configOptions": describe_options(mode, trust),
    }


def describe_options(mode: Mode, trust: Trust) -> list[Json]:
    """The config options: all modes, and the trust levels that the session can still be set to."""
    values: list[Json] = [
        {"value": known.value, "name": name, "description": text} for known, name, text in _MODES
    ]
    remaining: list[Json] = [
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
        {"id": TRUST, "name": "Trust", "type": "select", "currentValue": trust.value, "options": remaining},
    ]
