"""Replaces the beginning of a long conversation with a summary for the model. The stored events are not changed."""

from dataclasses import replace

from pydantic_ai.messages import ModelMessage

from holdfast.agent.agent import TurnContext
from holdfast.agent.model.clients import ModelClients
from holdfast.agent.model.config import ModelLimits
from holdfast.agent.model.failures import ContextFullError
from holdfast.agent.model.history import History
from holdfast.agent.model.run import ModelRun, RunOptions
from holdfast.agent.model.sent_messages import elide_results
from holdfast.agent.model.usage import Usage
from holdfast.model.errors import HoldfastError
from holdfast.model.event import HistoryCompacted

COMPACT_AT = 0.8
"""When this share of the model's context is used, the conversation is summarized after the turn."""
KEPT_TURNS = 2
_MAX_SUMMARY = 20_000
_SUMMARY_PROMPT = (
    "Summarize the conversation so far for yourself: what the user wants, what was decided and done, which files and"
    " results matter, what is still open. Write only the summary."
)


def must_compact(used_tokens: int, limits: ModelLimits) -> bool:
    """Whether so much of the model's context is used that the conversation is summarized now."""
    return used_tokens > limits.context_tokens * COMPACT_AT


async def compact(clients: ModelClients, turn: TurnContext, options: RunOptions, history: History) -> Usage:
    """Let the model summarize all but the last turns, store the summary, and return the usage.

    Turns are kept whole, so calls stay with their results. Does nothing if there are too few turns.
    """
    turns = [*history.turn_starts]
    if len(turns) <= KEPT_TURNS:
        return Usage()
    kept_from = turns[-KEPT_TURNS]
    old = history.messages[: history.turn_starts[kept_from]]
    summary, used = await _summarize(clients, turn, options, old)
    if summary:
        await _replace_beginning(turn, history, summary, kept_from)
    return used


async def compact_all(
    clients: ModelClients, turn: TurnContext, options: RunOptions, history: History
) -> Usage:
    """Let the model summarize all turns before this one, because they no longer fit into the context. Return the usage.

    Long results are left out. If the turns are still too long to be summarized, the oldest are left out: half of them, three
    quarters, and then all but the last.
    """
    starts = [*history.turn_starts.values()]
    used = Usage()
    for dropped in dict.fromkeys((0, *(len(starts) * share // 4 for share in (2, 3)), len(starts) - 1)):
        if not 0 <= dropped < len(starts):
            continue
        # A summary may precede the first turn.
        old = elide_results(history.messages[starts[dropped] if dropped else 0 :])
        try:
            summary, more = await _summarize(clients, turn, options, old, raises_if_full=True)
        except ContextFullError:
            used += Usage(requests=1)
            continue
        used += more
        if summary:
            await _replace_beginning(turn, history, summary, turn.turn_id)
        break
    return used


async def _summarize(
    clients: ModelClients,
    turn: TurnContext,
    options: RunOptions,
    messages: list[ModelMessage],
    *,
    raises_if_full: bool = False,
) -> tuple[str, Usage]:
    """Return the summary, and what making it used. The summary is empty if the model could not write one."""
    run = ModelRun(clients, turn, replace(options, may_call=False), messages, is_shown=False)
    try:
        result = await run.run([{"type": "text", "text": _SUMMARY_PROMPT}])
    except ContextFullError:
        if raises_if_full:
            raise
        return "", run.usage
    except HoldfastError:
        return "", run.usage  # the next turn tries again
    return result.text[:_MAX_SUMMARY], run.usage


async def _replace_beginning(turn: TurnContext, history: History, summary: str, kept_from: str) -> None:
    await turn.add_model_event(HistoryCompacted(summary=summary, kept_from=kept_from))
    history.compact(summary, kept_from)
