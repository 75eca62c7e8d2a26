"""Makes the clients of models, and keeps their connections open."""

import inspect
import os
from collections.abc import Callable
from typing import Any

import httpx2
from genai_prices.data_snapshot import get_snapshot
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from holdfast.agent.model import failures
from holdfast.agent.model.config import CUSTOM_ENDPOINT, KEY_VARIABLES, ModelConfig, read_key
from holdfast.agent.model.find_models import OLLAMA
from holdfast.agent.model.transport import CustomEndpointTransport, LimitedTransport
from holdfast.model.errors import HoldfastError
from holdfast.tracing import Tracer

_CONNECT_SECONDS = 10.0
_READ_SECONDS = 24 * 60 * 60.0  # `limit_time` ends requests earlier
_CUSTOM_FORMATS = ("openai", "openai-responses", "openai-chat", "ollama", "anthropic")
# Providers whose libraries take no client of httpx2. Named here, so that the message does not ask to install their libraries first.
_UNSUPPORTED = ("bedrock", "groq", "huggingface", "xai")


class ModelClients:
    """Makes a client for each model once, and keeps connections open between requests. Call `close` at the end."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self.tracer = tracer
        """Traces the requests; None if tracing is off."""
        self.models_without_images: set[str] = set()
        """The names of models that rejected a request with images."""
        self._transport = LimitedTransport()
        self._http = _make_http(self._transport)
        self._models: dict[tuple[str, str, str], Model] = {}

    async def close(self) -> None:
        await self._http.aclose()

    def has(self, config: ModelConfig) -> bool:
        """Return whether the client of a model was made. If not, call `get` in a thread, because it may import a library."""
        return _cache_key(config) in self._models

    def get(self, config: ModelConfig) -> Model:
        """Return the client of a model. If it cannot be made, raise an error that says what to set."""
        key = _cache_key(config)
        if key not in self._models:
            model = self._make_or_explain(config)
            if model.system != CUSTOM_ENDPOINT:
                get_snapshot()  # imports the prices now, and not on the event loop when the first answer has ended
            self._models[key] = model
        return self._models[key]

    def _make_or_explain(self, config: ModelConfig) -> Model:
        try:
            return self._make_client(config)
        except HoldfastError:
            raise
        except ImportError as error:
            raise failures.missing_library(config, error.name or "") from None
        except Exception as error:
            # For a missing key, each provider's client raises another kind of error, which only names a variable.
            raise _explain(config, error) from None

    def _make_client(self, config: ModelConfig) -> Model:
        is_other_provider = bool(config.base_url) and _custom_format(config.name) == ""
        if config.api_key_env and not is_other_provider:
            _check_key(config, config.api_key_env)
        if config.name.partition(":")[0] in _UNSUPPORTED:
            raise failures.unsupported_provider(config)
        if (config.base_url or config.name.startswith("ollama:")) and not is_other_provider:
            return self._make_custom_client(config)
        return infer_model(config.name, provider_factory=lambda name: self._make_provider(config, name))

    def _make_provider(self, config: ModelConfig, name: str) -> Provider[Any]:
        provider_class: Callable[..., Provider[Any]] = infer_provider_class(name)
        parameters = inspect.signature(provider_class.__init__).parameters  # type: ignore[misc]
        if "http_client" not in parameters:
            raise failures.unsupported_provider(config)
        options: dict[str, object] = {"http_client": self._http}
        # With `model.base_url`, the key in `model.api_key_env` is that endpoint's.
        variable = config.api_key_env if not config.base_url else ""
        if variable := variable or _key_variable(config):
            _check_key(config, variable)
            options["api_key"] = read_key(variable)
        provider = provider_class(**options)
        _disable_retries(provider.client)
        return provider

    def _make_custom_client(self, config: ModelConfig) -> Model:
        """Make a client for `model.base_url` or Ollama. Keys and headers that the environment has for other endpoints are not sent there."""
        base_url = config.base_url or os.environ.get("OLLAMA_BASE_URL", "") or f"{OLLAMA}/v1"
        failures.check_base_url(base_url, "model.base_url" if config.base_url else "OLLAMA_BASE_URL")
        prefix = _custom_format(config.name)
        name = config.name.removeprefix(f"{prefix}:")
        if prefix == "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            anthropic = AsyncAnthropic(
                base_url=base_url.rstrip("/").removesuffix("/v1"),
                api_key=config.key or "none",
                http_client=self._make_custom_http({"x-api-key": config.key or "none"}),
                max_retries=0,
            )
            return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=anthropic))
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        from holdfast.agent.model.custom_chat_model import CustomChatModel

        client = AsyncOpenAI(
            base_url=base_url,
            api_key=config.key or "none",
            http_client=self._make_custom_http({"authorization": f"Bearer {config.key or 'none'}"}),
            max_retries=0,
        )
        provider = OpenAICompatibleProvider(CUSTOM_ENDPOINT, openai_client=client)
        is_chat = prefix in ("openai-chat", "ollama")
        return (CustomChatModel if is_chat else OpenAIResponsesModel)(name, provider=provider)

    def _make_custom_http(self, headers: dict[str, str]) -> httpx2.AsyncClient:
        return _make_http(CustomEndpointTransport(self._transport, headers))


def _key_variable(config: ModelConfig) -> str:
    """Return the environment variable with the key of the model's provider; empty if none is set."""
    names = KEY_VARIABLES.get(config.name.partition(":")[0], ())
    return next((name for name in names if os.environ.get(name)), "")


def _check_key(config: ModelConfig, variable: str) -> None:
    key = read_key(variable)
    if not key:
        raise failures.missing_key(config)
    if not key.isascii() or not key.isprintable():
        raise failures.bad_key(config, variable)


def _cache_key(config: ModelConfig) -> tuple[str, str, str]:
    return config.name, config.base_url, config.key


def _custom_format(name: str) -> str:
    """Return the API format of a model at `model.base_url`, as a prefix of model names; empty if the name begins with another provider."""
    prefix, colon, _ = name.partition(":")
    if not colon or prefix not in {*KEY_VARIABLES, "ollama"}:
        return "openai-chat"  # a name such as qwen3:8b has no prefix
    return prefix if prefix in _CUSTOM_FORMATS else ""


def _make_http(transport: httpx2.AsyncBaseTransport) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=transport,
        timeout=httpx2.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
        follow_redirects=False,
        trust_env=False,
    )


def _disable_retries(client: object) -> None:
    """Turn off the retries of a provider's client. `LimitedTransport` retries already, and never after an answer has begun."""
    if hasattr(client, "max_retries"):
        client.max_retries = 0  # type: ignore[attr-defined]


def _explain(config: ModelConfig, error: Exception) -> HoldfastError:
    text = str(error).lower()
    if "api_key" in text or "api key" in text or "environment variable" in text or "auth" in text:
        return failures.missing_key(config)
    return failures.unknown_model(config)
