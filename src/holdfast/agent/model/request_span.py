"""The span of one request to a model, with the attributes of OpenTelemetry's conventions for GenAI."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model

from holdfast.agent.model.config import ModelConfig
from holdfast.agent.model.usage import Usage
from holdfast.model.errors import HoldfastError
from holdfast.tracing import SESSION_KEY, Span, Tracer

_PROVIDERS = {"google": "gcp.gemini", "google-gla": "gcp.gemini", "google-vertex": "gcp.vertex_ai"}
"""The names of providers in the conventions, by their names in pydantic-ai, where the two differ."""


@contextmanager
def trace_request(tracer: Tracer, config: ModelConfig, model: Model, session_id: str) -> Iterator[Span]:
    """Start a span that is the current one inside the block. If the request fails, the span gets the code of the error."""
    name = model.model_name
    span = tracer.start(
        f"chat {name}",
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(model.system, model.system),
            "gen_ai.request.model": name,
            SESSION_KEY: session_id,
            **_address(model.base_url or config.base_url),
        },
        kind="client",
    )
    try:
        with span.active():
            yield span
    except HoldfastError as error:
        span.fail(error.code.name)
        raise
    except BaseException as error:
        span.fail(type(error).__name__)
        raise
    finally:
        span.end()


def add_response_attributes(span: Span, response: ModelResponse, usage: Usage) -> None:
    """Add to the span which model answered, why it stopped, and how many tokens it used."""
    span.set(
        {
            "gen_ai.response.model": response.model_name or "",
            "gen_ai.response.finish_reasons": (response.finish_reason or "stop",),
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
        }
    )


def _address(url: str) -> dict[str, str | int]:
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return {}
    return {"server.address": parts.hostname, "server.port": port} if parts.hostname else {}
