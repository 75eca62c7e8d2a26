"""The session options that an editor can change: the mode, the model, the agent, and the trust, which it can only lower."""

from dataclasses import dataclass

from holdfast.model.json import Json, JsonObject
from holdfast.model.permission import Mode, lowest_mode
from holdfast.model.trust import Trust, lowest_trust

MODE_OPTION, MODEL_OPTION, AGENT_OPTION, TRUST_OPTION = "mode", "model", "agent", "trust"
_MODES = (
    (Mode.ASK, "Ask", "Ask before a tool changes something"),
    (Mode.AUTO, "Auto", "Run tools without asking, unless a rule requires it"),
    (Mode.READ_ONLY, "Read only", "Run only tools that change nothing"),
)
_TRUST_LEVELS = (
    (Trust.DIRECT, "Direct", "Servers run with your own rights"),
    (Trust.SANDBOXED, "Sandboxed", "Servers run confined; this cannot be undone"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionValues:
    """The values of a session's options, and the highest mode that the editor can choose."""

    mode: Mode
    max_mode: Mode
    trust: Trust
    model: str = ""
    models: tuple[str, ...] = ()
    """The models that can be chosen. If empty, the option is left out."""
    agent: str = ""
    agents: tuple[tuple[str, str], ...] = ()
    """The names and descriptions of the agents that can be chosen. If empty, the option is left out."""


def describe_state(values: OptionValues) -> JsonObject:
    """Return the values and the choices as ACP's `modes` and `configOptions`."""
    modes: list[Json] = [
        {"id": mode.value, "name": name, "description": text} for mode, name, text in _offered_modes(values)
    ]
    return {
        "modes": {"currentModeId": values.mode.value, "availableModes": modes},
        "configOptions": describe_options(values),
    }


def describe_options(values: OptionValues) -> list[Json]:
    """Return ACP's `configOptions`: the mode, model, agent and trust, each with its choices."""
    modes: list[Json] = [
        {"value": mode.value, "name": name, "description": text}
        for mode, name, text in _offered_modes(values)
    ]
    trust_levels: list[Json] = [
        {"value": trust.value, "name": name, "description": text}
        for trust, name, text in _TRUST_LEVELS
        if lowest_trust(trust, values.trust) is trust
    ]
    names: list[Json] = [{"value": name, "name": name} for name in values.models]
    model: list[Json] = [
        {
            "id": MODEL_OPTION,
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": values.model,
            "options": names if values.model else [{"value": "", "name": "None"}, *names],
        }
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
        *(model if names else ()),
        *(_describe_agents(values) if values.agents else ()),
        {
            "id": TRUST_OPTION,
            "name": "Trust",
            "type": "select",
            "currentValue": values.trust.value,
            "options": trust_levels,
        },
    ]


def _describe_agents(values: OptionValues) -> list[Json]:
    agents: list[Json] = [
        {"value": name, "name": name, **({"description": text} if text else {})}
        for name, text in values.agents
    ]
    return [
        {
            "id": AGENT_OPTION,
            "name": "Agent",
            "description": "Choosing an agent restarts the session's servers. The limits of the session's earlier agents still apply.",
            "type": "select",
            "currentValue": values.agent,
            "options": agents if values.agent else [{"value": "", "name": "None"}, *agents],
        }
    ]


def _offered_modes(values: OptionValues) -> list[tuple[Mode, str, str]]:
    """Return the modes up to `max_mode`, and the current mode, which may be higher."""
    return [
        (mode, name, text)
        for mode, name, text in _MODES
        if mode is values.mode or lowest_mode(mode, values.max_mode) is mode
    ]
