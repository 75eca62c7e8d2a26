"""One call of one tool: whatever happens, there is an answer."""

import asyncio
import time
import unicodedata
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from holdfast.connect.catalog import Offer
from holdfast.connect.hearing import Progress
from holdfast.connect.link import Link
from holdfast.connect.links import Links
from holdfast.connect.readable import block, readable
from holdfast.connect.scope import Scope
from holdfast.model import codes
from holdfast.model.aliases import Aliases
from holdfast.model.call import ToolCall
from holdfast.model.carriers import context_meta
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Outcome
from holdfast.model.json import JsonObject
from holdfast.model.mask import Mask
from holdfast.model.secrets import secrets_of
from holdfast.model.server import Http, Lifetime, Sse, Stdio
from holdfast.wire.mcp.tools import CallResult
from holdfast.wire.peer import PeerError

STATE_LOST_KEY = "dev.holdfast/state_lost"
# What only the host says: who is calling, what the protocol asks for, and whom the progress of a call concerns.
_RESERVED = ("dev.holdfast/", "io.modelcontextprotocol/")
_PROGRESS = "progresstoken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a call: the result for the agent, and for programs how it went and why."""

    result: CallResult
    outcome: Outcome
    code: str = ""
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the tool did what it was asked."""
        return self.outcome is Outcome.COMPLETED

    @property
    def text(self) -> str:
        """The text of the answer, block by block."""
        return "\n".join(str(said.get("text", "")) for said in self.content if said.get("type") == "text")

    @property
    def content(self) -> list[JsonObject]:
        """The answer's blocks."""
        return [block(raw) for raw in self.result.content]

    @property
    def data(self) -> Any:
        """The answer as structured data, where the tool gives some."""
        structured = self.result.structured_content
        return None if isinstance(structured, UnsetType) else readable(structured)

    @property
    def size(self) -> int:
        """How many bytes it has, as it came."""
        structured = self.result.structured_content
        return sum(map(len, self.result.content)) + (
            0 if isinstance(structured, UnsetType) else len(structured)
        )

    @property
    def state_lost(self) -> bool:
        """Whether the server was started anew before this call, and has forgotten the earlier ones."""
        return STATE_LOST_KEY in self.result.meta


async def call(
    links: Links,
    scope: Scope,
    offer: Offer,
    asked: ToolCall,
    *,
    timeout: float,
    progress: Progress | None = None,
) -> Answer:
    """Call a tool over the scope's link; every failure is folded into the answer, but the caller's own cancellation."""
    spec = offer.server
    link: Link | None = None
    words = ""
    left = timeout
    try:
        found = links.standing(scope, spec)
        if found is None:
            began = time.monotonic()
            async with asyncio.timeout(timeout):
                found = await links.connected(scope, spec)
            left -= time.monotonic() - began
        link, connection = found
        with link.used():
            try:
                result = await connection.call(
                    offer.tool.name,
                    Raw(asked.arguments),
                    meta=_meta(scope, offer, asked.meta, links.aliases),
                    timeout=left,
                    progress=progress,
                )
            except HoldfastError:
                words = connection.last_words()
                raise
    except TimeoutError:
        answer = failed(_too_late(offer, timeout))
    except PeerError as error:
        said = Mask.of(secrets_of(spec)).line(error.message)
        answer = failed(HoldfastError(codes.PEER_ERROR, f"{offer.name} was refused: {said} ({error.rpc})"))
    except HoldfastError as error:
        if error.code is codes.TIMEOUT and link is not None:
            error = _too_late(offer, timeout)
        if error.code is codes.CONNECTION_CLOSED and link is not None and link.was_live:
            why = f" {error.message}" if isinstance(spec.transport, Http | Sse) else ""
            error = HoldfastError(
                codes.CONNECTION_CLOSED,
                f"{spec.name!r} is gone and has not answered {offer.name}; whether it did it is not known.{why}",
            )
        answer = failed(error, words)
    else:
        answer = Answer(result=result, outcome=Outcome.FAILED if result.is_error else Outcome.COMPLETED)
    return _with_lost_state(answer, spec.name) if link is not None and link.take_lost_state() else answer


def _too_late(offer: Offer, seconds: float) -> HoldfastError:
    return HoldfastError(codes.TIMEOUT, f"{offer.name} did not answer within {seconds:g} s.")


def _meta(scope: Scope, offer: Offer, meta: JsonObject | None, aliases: Aliases) -> JsonObject | None:
    """What goes along with a call: a server shared by sessions is told with each one whose it is."""
    kept = {key: value for key, value in meta.items() if not _is_reserved(key, aliases)} if meta else None
    if offer.server.lifetime is Lifetime.HOST:
        context = scope.context
        folder = context.cwd if isinstance(offer.server.transport, Stdio) else ""
        return {**(kept or {}), **aliases.meta(context, folder), **context_meta(context)}
    return kept


def _is_reserved(key: str, aliases: Aliases) -> bool:
    """Whether only the host says this; however it is spelled, for some reader might take it for the same."""
    plain = unicodedata.normalize("NFKC", key).strip().casefold()
    return plain.startswith(_RESERVED) or plain == _PROGRESS or plain in aliases.folded_keys


def failed(error: HoldfastError, words: str = "") -> Answer:
    """A failure as the agent sees it; `words` are the server's last ones."""
    message = f"{error.message}\n{words}" if words else error.message
    text = f"{error.code.name}: {message}"
    return Answer(
        result=CallResult(content=[_text(text)], is_error=True),
        outcome=Outcome.FAILED,
        code=error.code.name,
        message=message,
    )


def _with_lost_state(answer: Answer, server: str) -> Answer:
    """Say once that the server was started anew: to programs in `_meta`, to models in words."""
    notice = f"{codes.STATE_LOST.name}: {server} was started anew; what it knew from earlier calls is gone."
    result = msgspec.structs.replace(
        answer.result,
        content=[_text(notice), *answer.result.content],
        meta={**answer.result.meta, STATE_LOST_KEY: True},
    )
    return Answer(result=result, outcome=answer.outcome, code=answer.code, message=answer.message)


def _text(text: str) -> Raw:
    return Raw(msgspec.json.encode({"type": "text", "text": text}))
