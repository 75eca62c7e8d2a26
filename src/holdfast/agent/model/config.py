"""The configuration of a model: its name, endpoint, key and limits."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.settings import ModelSettings

CUSTOM_ENDPOINT = "own"
"""In stored messages: the name of the provider for Ollama, and for an endpoint with OpenAI's format at `model.base_url`. Reasoning is sent
back only to the provider that wrote it."""
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """The limits of a turn, and of each answer of the model in it."""

    max_requests: int = 100
    max_calls: int = 500
    max_cost: float = 0.0
    """In US dollars; 0 means no limit."""
    idle_seconds: float = 300.0
    """How long an answer may make no progress. Only complete events with content count, not keep-alives."""
    turn_seconds: float = 3600.0
    """How long the model may take in a turn. The time that tools take is not counted."""
    context_tokens: int = 128_000
    max_event_bytes: int = 8 * _MIB
    """The size of one server-sent event of an answer."""
    max_event_values: int = 5000
    """How many values one event may have: numbers, texts, lists and objects. The longer the request, the more are allowed, because some
    endpoints repeat a part of the request in their answer."""
    max_response_bytes: int = 64 * _MIB
    max_characters: int = 1_000_000
    """The length of one answer: its text, its reasoning and the arguments of its calls together."""
    max_response_calls: int = 128
    max_result_characters: int = 100_000
    """The length of a tool's result, as the model sees it."""
    retries: int = 3
    max_retry_seconds: float = 30.0
    """The longest wait before a retry. If the endpoint asks for a longer one, the request fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A model, its endpoint, its key and its limits.

    An agent definition may name one of the models in the settings. Everything else comes from the user's settings and choices, never
    from a project's files.
    """

    name: str
    base_url: str = ""
    api_key_env: str = ""
    limits: ModelLimits = ModelLimits()

    @property
    def key(self) -> str:
        """The key of the endpoint, from the environment variable `api_key_env`; empty if there is none."""
        return read_key(self.api_key_env) if self.api_key_env else ""


def read_key(variable: str) -> str:
    """Return the key in an environment variable, without white space around it, such as a line break from a file."""
    return os.environ.get(variable, "").strip()


def make_config(settings: ModelSettings, name: str = "") -> ModelConfig:
    """Make the configuration of the model with this name; by default, of `model.name`."""
    return ModelConfig(
        name=name or settings.name,
        base_url=settings.base_url,
        api_key_env=settings.api_key_env if _is_key_for(settings, name or settings.name) else "",
        limits=ModelLimits(
            max_requests=settings.max_requests,
            max_calls=settings.max_calls,
            max_cost=settings.max_cost_cents / 100,
            idle_seconds=settings.idle_seconds,
            turn_seconds=settings.turn_seconds,
            context_tokens=settings.context_tokens,
        ),
    )


def _is_key_for(settings: ModelSettings, name: str) -> bool:
    """Return whether `model.api_key_env` is for this model. Without `model.base_url`, it is for the provider of `model.name`."""
    if settings.base_url or not settings.name:
        return True
    key_provider, provider = settings.name.partition(":")[0], name.partition(":")[0]
    return key_provider == provider or (
        key_provider in KEY_VARIABLES and KEY_VARIABLES[key_provider] == KEY_VARIABLES.get(provider)
    )


KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openai-chat": ("OPENAI_API_KEY",),
    "openai-responses": ("OPENAI_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "openrouter": ("OPENROUTER_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "cerebras": ("CEREBRAS_API_KEY",),
    "together": ("TOGETHER_API_KEY",),
    "fireworks": ("FIREWORKS_API_KEY",),
    "moonshotai": ("MOONSHOTAI_API_KEY",),
}
"""The environment variables that hold the keys of providers, by the prefix of model names."""
