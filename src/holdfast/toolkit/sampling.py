"""Two things that a call can ask of its client: an answer of the client's model (sampling), and the client's roots."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from holdfast.model import codes
from holdfast.model.json import Json, JsonObject
from holdfast.toolkit.errors import ToolError
from holdfast.toolkit.message import Messages, to_messages
from holdfast.wire.messages import Raw
from holdfast.wire.strict_json import DECODE_ERRORS

if TYPE_CHECKING:
    from pathlib import Path

_DEFAULT_MAX_TOKENS = 1024


class SampleOptions(TypedDict, total=False):
    """The options of `call.sample`."""

    max_tokens: int
    """1024 by default."""
    system: str
    """The system prompt."""
    temperature: float
    stop: Sequence[str]
    """The model stops when it says one of these."""
    models: Sequence[str]
    """Names, or parts of names, of models that would suit, the best first. The client may use another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the client's model said."""

    text: str
    content: list[JsonObject]
    """All content blocks, in MCP's form."""
    model: str = ""
    stop_reason: str = ""


@dataclass(frozen=True, slots=True)
class Root:
    """A folder or file that the client lets the server use."""

    uri: str
    name: str = ""

    @property
    def path(self) -> "Path | None":
        """The path of a `file:` root; None for other URIs."""
        from pathlib import Path
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(self.uri)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None


def sample_params(messages: Messages, options: SampleOptions) -> JsonObject:
    """The params of `sampling/createMessage`."""
    params: dict[str, Any] = {
        "messages": to_messages(messages),
        "maxTokens": options.get("max_tokens", _DEFAULT_MAX_TOKENS),
    }
    if "system" in options:
        params["systemPrompt"] = options["system"]
    if "temperature" in options:
        params["temperature"] = options["temperature"]
    if "stop" in options:
        params["stopSequences"] = list(options["stop"])
    if "models" in options:
        params["modelPreferences"] = {"hints": [{"name": name} for name in options["models"]]}
    return params


class _SampleResult(msgspec.Struct, rename="camel"):
    content: dict[str, Json] | list[dict[str, Json]]
    model: str = ""
    stop_reason: str | None = None


class _Roots(msgspec.Struct):
    roots: list[Root]


def read_sample(raw: Raw) -> Sample:
    """The answer of the model; raises BAD_ANSWER when it is not valid."""
    result: _SampleResult = _decode(raw, _SampleResult)
    blocks: list[dict[str, Json]] = result.content if isinstance(result.content, list) else [result.content]
    texts = (block.get("text") for block in blocks if block.get("type") == "text")
    return Sample(
        text="".join(text for text in texts if isinstance(text, str)),
        content=blocks,
        model=result.model,
        stop_reason=result.stop_reason or "",
    )


def read_roots(raw: Raw) -> list[Root]:
    """The roots of the client; raises BAD_ANSWER when they are not valid."""
    return _decode(raw, _Roots).roots


def _decode(raw: Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except DECODE_ERRORS as error:
        raise ToolError(codes.BAD_ANSWER, f"The client sent an invalid answer: {error}.") from None
