"""Makes the errors for a model that cannot answer. A function's docstring says when to raise its error.

Each error says what happened and what to do, and never repeats text from the endpoint.
"""

import shlex
from importlib.metadata import metadata
from urllib.parse import urlsplit

from holdfast.agent.model.config import KEY_VARIABLES, ModelConfig
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import StopReason

INSTALL = "Models need an extra that is not installed. Install it: pip install 'holdfast[models]'"


class LimitReachedError(HoldfastError):
    """One of Holdfast's limits ended the turn."""

    def __init__(self, message: str, reason: StopReason = StopReason.END_TURN) -> None:
        super().__init__(codes.MODEL_LIMIT, message)
        self.reason = reason


class ContextFullError(HoldfastError):
    """The conversation has more tokens than the model can read."""

    def __init__(self, message: str) -> None:
        super().__init__(codes.MODEL_UNAVAILABLE, message)


class ImagesRefusedError(HoldfastError):
    """The endpoint rejected a request with images."""

    def __init__(self, message: str) -> None:
        super().__init__(codes.MODEL_UNAVAILABLE, message)


def missing_key(config: ModelConfig) -> HoldfastError:
    """The key is not set."""
    if config.api_key_env:
        return _unavailable(
            f"The key of {config.name} is missing: the environment variable {config.api_key_env} is not set. Set it before you"
            " start Holdfast, or change model.api_key_env."
        )
    provider = config.name.partition(":")[0]
    names = " or ".join(KEY_VARIABLES.get(provider, ())) or "the variable of its provider"
    return _unavailable(
        f"The key of {config.name} is missing. Set {names} before you start Holdfast, or choose another model with /model."
    )


def bad_key(config: ModelConfig, variable: str) -> HoldfastError:
    """The key has a character that no key has, and that cannot be sent."""
    return _unavailable(
        f"The key of {config.name} cannot be sent: the environment variable {variable} has a character in it that no key has, such as a"
        " line break or a typographic quote. Set it to the key alone, and start Holdfast again."
    )


def check_base_url(url: str, setting: str = "model.base_url") -> None:
    """Raise an error if this cannot be the address of an endpoint. The error does not repeat the address, which may contain a password."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address, parts = False, urlsplit("")
    reason = ""
    if not is_address or not url.isprintable() or " " in url:
        reason = "is not an address that begins with http:// or https://"
    elif "@" in parts.netloc:
        reason = "has a user name or a password in it, which is not sent"
    elif "?" in url or "#" in url:
        reason = "has a query (after ?) or a fragment (after #)"
    if reason:
        raise _unavailable(
            f"{setting} {reason}. Set it to an address such as http://127.0.0.1:8080/v1. If the endpoint needs a key, model.api_key_env"
            " is the name of the variable that has it."
        )


def empty_answer(config: ModelConfig) -> HoldfastError:
    """The model answered with no words and no calls."""
    return _unavailable(
        f"{config.name} sent an empty answer. Prompt again, or choose another model with /model."
    )


def unknown_model(config: ModelConfig) -> HoldfastError:
    """The name does not begin with a provider that pydantic-ai knows."""
    return _unavailable(
        f"The model {config.name[:100]!r} is not known. Write provider:model, such as anthropic:claude-sonnet-5, or set"
        " model.base_url for an endpoint of your own."
    )


def unsupported_provider(config: ModelConfig) -> HoldfastError:
    """The provider's library does not take Holdfast's HTTP client (of httpx2), so the limits of its transport would not apply."""
    provider = config.name.partition(":")[0]
    return _unavailable(
        f"Models of {provider[:100]!r} are not supported, because Holdfast cannot limit their answers. Use another provider,"
        " such as openrouter, or an endpoint of your own: openai-chat:MODEL with model.base_url."
    )


def missing_library(config: ModelConfig, package: str) -> HoldfastError:
    """The provider needs a package that is not installed."""
    provider = config.name.partition(":")[0]
    extras = metadata("pydantic-ai-slim").get_all("Provides-Extra") or ()
    extra = provider if provider in extras else "openai"  # most other providers have the API of OpenAI
    requirement = (
        "holdfast[models]" if extra in ("anthropic", "google", "openai") else f"pydantic-ai-slim[{extra}]"
    )
    install = shlex.join(("pip", "install", requirement))
    needed = f"the package {package}" if package else "a package that is not installed"
    return _unavailable(f"Models of {provider!r} need {needed}. Install it: {install}")


def unreachable(config: ModelConfig, address: str, reason: str) -> HoldfastError:
    """The connection to the endpoint failed, or ended before the answer."""
    if config.base_url:
        advice = "Check that it is running, check model.base_url,"
    elif config.name.startswith("ollama:"):
        advice = "Check that Ollama is running,"
    else:
        advice = "Check that this machine can reach it,"
    return _unavailable(
        f"The model's endpoint at {address} could not be reached: {reason}. {advice} or choose another model with /model."
    )


def http_error(config: ModelConfig, status: int, host: str) -> HoldfastError:
    """The endpoint answered with an error."""
    match status:
        case 401 | 403:
            if config.base_url and not config.api_key_env:
                return _unavailable(
                    f"{host} needs a key (HTTP {status}). Name the variable that has it, with `holdfast model NAME --base-url"
                    " URL --api-key-env VARIABLE`, or choose another model with /model."
                )
            variable = config.api_key_env or " or ".join(
                KEY_VARIABLES.get(config.name.partition(":")[0], ("the key's variable",))
            )
            return _unavailable(
                f"{host} refused the key of {config.name} (HTTP {status}). Set {variable} to a valid key and start Holdfast"
                " again, or choose another model with /model."
            )
        case 404:
            return _unavailable(
                f"{host} does not know the model {config.name} (HTTP 404). Correct model.name or model.base_url, or choose"
                " another model with /model."
            )
        case 413:
            return _unavailable(f"The conversation is too large for {host} (HTTP 413). Start a new session.")
        case 429:
            return _unavailable(
                f"{host} refuses more requests for now (HTTP 429): a rate limit or an exhausted quota. Wait and try again, or"
                " choose another model with /model."
            )
        case _ if status >= 500:
            return _unavailable(
                f"{host} failed (HTTP {status}). Try again, or choose another model with /model."
            )
        case _:
            return _unavailable(
                f"{host} rejected the request (HTTP {status}). Check that {config.name} supports tools, or choose another model"
                " with /model."
            )


def images_refused(config: ModelConfig, status: int, host: str) -> HoldfastError:
    """The endpoint rejected a request with images. The caller may send it again without them."""
    return ImagesRefusedError(
        f"{host} rejected the request, which has an image (HTTP {status}). Choose a model that takes images with /model."
    )


def context_full(config: ModelConfig) -> HoldfastError:
    """The conversation has more tokens than the model can read."""
    return ContextFullError(
        f"The conversation is too long for {config.name}, and could not be shortened enough. Continue with a model that can read more tokens (/model), or start a"
        " new session. To have later conversations summarized in time, lower model.context_tokens to what the model can read."
    )


def context_full_in_turn(config: ModelConfig) -> HoldfastError:
    """The results of this turn's calls filled the model's context."""
    return _unavailable(
        f"The results of this turn's calls are too long for {config.name}. Prompt again to continue: the conversation is then"
        " summarized first."
    )


def redirected(host: str) -> HoldfastError:
    """The endpoint redirects. Redirects are never followed: the key and the conversation would be sent to another address."""
    return _unavailable(
        f"{host} redirects to another address, which is not followed. Set model.base_url to the final address."
    )


def blocked_address(host: str) -> HoldfastError:
    """The address belongs to the metadata service of a cloud, which hands out credentials."""
    return _unavailable(
        f"{host} is the metadata service of a cloud, not a model's endpoint. Correct model.base_url."
    )


def unreadable(host: str) -> HoldfastError:
    """The answer is not a stream of the expected format."""
    return _unavailable(
        f"{host} sent an answer that cannot be read. Check that model.base_url is the address of a model's endpoint, and that"
        " the model's prefix fits its format (openai-chat:, openai: or anthropic:)."
    )


def cut_off(host: str) -> HoldfastError:
    """The connection ended in the middle of an answer."""
    return _unavailable(f"{host} ended the connection in the middle of its answer. Prompt again.")


def no_progress(seconds: float) -> LimitReachedError:
    """The answer made no progress for too long. The endpoint may have sent keep-alives."""
    return LimitReachedError(
        f"The model made no progress for {seconds:g} s (model.idle_seconds). Prompt again, or choose another model with /model."
    )


def turn_timed_out(seconds: float) -> LimitReachedError:
    """The turn has no time left."""
    return LimitReachedError(
        f"The model took more than {seconds:g} s in this turn (model.turn_seconds). Prompt again to continue."
    )


def trial_timed_out(config: ModelConfig, seconds: float) -> HoldfastError:
    """The model did not answer a short prompt in time."""
    return _unavailable(
        f"{config.name} did not finish its answer to one short prompt within {seconds:g} s. Try again (the first answer of a local"
        " model may be slow, because the model is loaded first), or set it without trying it: add --no-try."
    )


def too_large(what: str) -> LimitReachedError:
    """An answer, or one event of it, is too large."""
    return LimitReachedError(
        f"The model's answer was cut off: {what}. Prompt again, or choose another model with /model.",
        StopReason.MAX_TOKENS,
    )


def too_many_requests(limit: int) -> LimitReachedError:
    """The turn made too many requests."""
    return LimitReachedError(
        f"The turn was ended after {limit} requests to the model (model.max_requests). Prompt again to continue.",
        StopReason.MAX_TURN_REQUESTS,
    )


def too_many_calls(limit: int) -> LimitReachedError:
    """The turn made too many calls."""
    return LimitReachedError(
        f"The turn was ended after {limit} tool calls (model.max_calls). Prompt again to continue.",
        StopReason.MAX_TURN_REQUESTS,
    )


def too_expensive(limit: float) -> LimitReachedError:
    """The turn costs too much."""
    return LimitReachedError(
        f"The turn was ended because it cost more than ${limit:.2f} (model.max_cost_cents). Prompt again to continue.",
        StopReason.MAX_TURN_REQUESTS,
    )


def change_advice(error: HoldfastError, how_to_choose: str) -> None:
    """Replace the advice to type `/model`, where the user cannot type it."""
    message = error.message.replace("with /model", f"with {how_to_choose}")
    error.message = message.replace("(/model)", f"({how_to_choose})")
    error.args = (error.message,)


def _unavailable(message: str) -> HoldfastError:
    return HoldfastError(codes.MODEL_UNAVAILABLE, message)
