"""The session options that an editor can change: the mode, and the trust, which it can only lower."""

from dataclasses import dataclass

from holdfast.model.json import Json, JsonObject
from holdfast.model.permission import Mode, lowest_mode
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionValues:
    """The current values of a session's options, and the highest mode that an editor can choose."""

    mode: Mode
    max_mode: Mode
    trust: Trust


def describe_state(values: OptionValues) -> JsonObject:
    """Return the current mode and trust, as ACP's `modes` and `configOptions`."""
    modes: list[Json] = [
        {"id": mode.value, "name": name, "description": text} for mode, name, text in _offered_modes(values)
    ]
    return {
        "modes": {"currentModeId": values.mode.value, "availableModes": modes},
        "configOptions": describe_options(values),
    }


def describe_options(values: OptionValues) -> list[Json]:
    """Return ACP's `configOptions`: the modes and the trust levels that the session can be set to."""
    modes: list[Json] = [
        {"value": mode.value, "name": name, "description": text}
        for mode, name, text in _offered_modes(values)
    ]
    trust_levels: list[Json] = [
        {"value": known.value, "name": name, "description": text}
        for known, name, text in _TRUST_LEVELS
        if lowest_trust(known, values.trust) is known
    ]
    return [
        {
            "id": MODE_OPTION,
            "name": "Permission",
            "category": "mode",
            "type": "select",
            "currentValue": values.mode.value,
            "options": modes,
        },
        {
            "id": TRUST_OPTION,
            "name": "Trust",
            "type": "select",
            "currentValue": values.trust.value,
            "options": trust_levels,
        },
    ]


def _offered_modes(values: OptionValues) -> list[tuple[Mode, str, str]]:
    """The modes up to the highest one. A terminal may have set a higher one: then that is listed, too, as the current one."""
    return [
        (mode, name, text)
        for mode, name, text in _MODES
        if mode is values.mode or lowest_mode(mode, values.max_mode) is mode
    ]
