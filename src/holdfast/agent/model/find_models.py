"""Finds the models that this machine can use: those whose keys are in the environment, and those of a local Ollama."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

OLLAMA = "http://127.0.0.1:11434"
_TIMEOUT_SECONDS = 1.0
_MAX_BYTES = 1024 * 1024
_MAX_MODELS = 20
_SUGGESTED = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5",
    "OPENAI_API_KEY": "openai:gpt-5.5",
    "GOOGLE_API_KEY": "google:gemini-flash-latest",
    "GEMINI_API_KEY": "google:gemini-flash-latest",
    "OPENROUTER_API_KEY": "openrouter:anthropic/claude-sonnet-5",
    "MISTRAL_API_KEY": "mistral:mistral-large-latest",
    "DEEPSEEK_API_KEY": "deepseek:deepseek-chat",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model that can be used."""

    name: str
    reason: str
    """Why the model can be used, such as `OPENAI_API_KEY is set`."""


def find_by_keys(environ: Mapping[str, str]) -> list[FoundModel]:
    """Return one model of each provider in `_SUGGESTED` whose key is in the environment."""
    reasons: dict[str, str] = {}
    for variable, name in _SUGGESTED.items():
        if environ.get(variable):
            reasons.setdefault(name, f"{variable} is set")
    return [FoundModel(name=name, reason=reason) for name, reason in reasons.items()]


def find_in_ollama(address: str = OLLAMA) -> list[FoundModel]:
    """Return the models of Ollama, if it runs on this machine."""
    return [
        FoundModel(name=f"ollama:{name}", reason=f"Ollama runs at {address}")
        for name in _ollama_models(address)
    ]


def _ollama_models(address: str) -> Iterator[str]:
    from holdfast.model.fetch_url import Deadline, FetchError, fetch_url

    deadline = Deadline(_TIMEOUT_SECONDS)
    try:
        listed: Any = json.loads(
            fetch_url(f"{address}/api/tags", deadline=deadline, max_bytes=_MAX_BYTES, use_proxies=False)
        )
    except (FetchError, ValueError, RecursionError):
        return
    models = cast("dict[str, Any]", listed).get("models") if isinstance(listed, dict) else None
    for model in cast("list[Any]", models)[:_MAX_MODELS] if isinstance(models, list) else ():
        name = cast("dict[str, Any]", model).get("name") if isinstance(model, dict) else None
        if isinstance(name, str) and name.isprintable() and 0 < len(name) <= 100:
            yield name
