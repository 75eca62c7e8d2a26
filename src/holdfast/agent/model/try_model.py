"""Tries a model with one short request."""

import asyncio

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelRequest, UserPromptPart

from holdfast.agent.model import failures
from holdfast.agent.model.clients import ModelClients
from holdfast.agent.model.config import ModelConfig
from holdfast.agent.model.timeouts import limit_time
from holdfast.agent.model.transport import Exchange, current_exchange
from holdfast.masking.obtained_secrets import ObtainedSecrets
from holdfast.model.errors import HoldfastError

_TIMEOUT_SECONDS = 60.0
_PROMPT = "Answer with the word: ready"


async def try_model(config: ModelConfig) -> str:
    """Return the model's answer to a short prompt. If the model does not answer, raise an error that says what to do."""
    with ObtainedSecrets() as obtained:
        obtained.add_credentials(config.name, [config.key])  # libraries may repeat the key in a warning
        return await _ask(config)


async def _ask(config: ModelConfig) -> str:
    clients = ModelClients()
    exchange = Exchange(config)
    token = current_exchange.set(exchange)
    try:
        model = clients.get(config)
        request = ModelRequest(parts=[UserPromptPart(content=_PROMPT)])
        async with (
            limit_time(exchange, _TIMEOUT_SECONDS, failures.trial_timed_out(config, _TIMEOUT_SECONDS)),
            model_request_stream(model, [request], instrument=False) as stream,
        ):
            async for _ in stream:
                exchange.last_progress = asyncio.get_running_loop().time()
            return stream.get().text or ""
    except HoldfastError:
        raise
    except Exception as error:  # a library raises errors of any kind if an answer has an unexpected form
        raise exchange.failure or failures.unreadable(config.base_url or config.name) from error
    finally:
        current_exchange.reset(token)
        await clients.close()
