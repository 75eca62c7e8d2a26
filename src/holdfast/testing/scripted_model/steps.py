"""The steps of a script. Each step is the endpoint's response to one request."""

from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.model.json import JsonObject


class Text(Struct, frozen=True, tag="text"):
    """A part of an answer: text that the model writes."""

    text: str
    chunk: int = 16
    """How many characters each event of the stream has."""


class Think(Struct, frozen=True, tag="think"):
    """A part of an answer: the model's reasoning, with the signature that the client must send back unchanged."""

    text: str
    signature: str = ""
    """Chat Completions have no signature. In the Responses format it is `encrypted_content`."""
    chunk: int = 16
    """How many characters each event of the stream has."""


class Call(Struct, frozen=True, tag="call"):
    """A part of an answer: a tool call. Several in one answer are parallel calls."""

    tool: str
    """The name as the request lists it, such as `files__read`."""
    arguments: JsonObject = {}
    id: str = ""
    """By default, `call_1`, `call_2` and so on, counted over all answers of the endpoint."""
    chunk: int = 64
    """How many characters of the arguments each event of the stream has."""


Part: TypeAlias = Text | Think | Call


class Answer(Struct, frozen=True, kw_only=True, tag="answer"):
    """An answer of the model: its parts in order, and its usage."""

    parts: tuple[Part, ...] = ()
    input_tokens: int = 100
    output_tokens: int = 20
    stop: Literal["", "length", "refusal"] = ""
    """Why the model stopped. If empty, the answer is complete; the client should make the calls in it."""
    delay: float = 0.0
    """How many seconds the endpoint waits before it answers."""
    pause: float = 0.0
    """How many seconds the endpoint waits between two events of the stream."""
    cut_after: int | None = None
    """Close the connection after this many events of the stream."""
    hold_after: int | None = None
    """Send nothing more after this many events of the stream, but keep the connection open."""


class Fail(Struct, frozen=True, kw_only=True, tag="fail"):
    """An error response."""

    status: int = 500
    message: str = "The script says so."
    retry_after: float | None = None
    """The seconds in the header `Retry-After`; None for no such header."""
    delay: float = 0.0
    """How many seconds the endpoint waits before it responds."""


class Redirect(Struct, frozen=True, kw_only=True, tag="redirect"):
    """A redirect to another address."""

    location: str
    status: int = 307


class Endless(Struct, frozen=True, kw_only=True, tag="endless"):
    """A stream that never ends: of text, of reasoning, of one call's arguments, of calls, or of SSE comments."""

    what: Literal["text", "think", "arguments", "calls", "comments"] = "text"
    chunk: int = 64
    """How many characters of text, reasoning or arguments each event has."""
    pause: float = 0.0
    """How many seconds the endpoint waits between two events."""


class LongLine(Struct, frozen=True, kw_only=True, tag="long_line"):
    """One line of the stream with at least this many bytes."""

    size: int = 1 << 30


class SlowBytes(Struct, frozen=True, kw_only=True, tag="slow_bytes"):
    """A stream that never ends and has no content, sent one byte at a time."""

    pause: float = 0.1
    """How many seconds the endpoint waits after each byte."""


class RawAnswer(Struct, frozen=True, kw_only=True, tag="raw"):
    """A response with exactly these bytes as its body."""

    body: bytes
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = {}


class Hang(Struct, frozen=True, tag="hang"):
    """No response. The connection stays open until the client closes it."""


Step: TypeAlias = Answer | Fail | Redirect | Endless | LongLine | SlowBytes | RawAnswer | Hang


def answer(*parts: str | Part, input_tokens: int = 100, output_tokens: int = 20) -> Answer:
    """Make an answer from these parts. A string becomes a `Text`."""
    return Answer(
        parts=tuple(Text(part) if isinstance(part, str) else part for part in parts),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )
