"""One run of a model: sends requests, and makes the calls that the answers ask for, until an answer asks for none."""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings

from holdfast.agent.agent import TurnContext
from holdfast.agent.model import failures
from holdfast.agent.model.answer_size import AnswerSize
from holdfast.agent.model.budget import UNLIMITED_BUDGET, Budget
from holdfast.agent.model.clients import ModelClients
from holdfast.agent.model.config import ModelConfig
from holdfast.agent.model.failures import LimitReachedError
from holdfast.agent.model.history import (
    CUT_OFF,
    call_result,
    clean_response,
    encode_response,
    ends_properly,
    join_results,
    text_of,
    user_request,
)
from holdfast.agent.model.prompt import shown_blocks
from holdfast.agent.model.request_span import add_response_attributes, trace_request
from holdfast.agent.model.sent_messages import (
    ELIDE_AT,
    elide_results,
    fit_provider,
    has_images,
    without_images,
)
from holdfast.agent.model.timeouts import limit_time
from holdfast.agent.model.token_estimates import expected_tokens, used_tokens
from holdfast.agent.model.tools import ToolList, Toolset
from holdfast.agent.model.transport import Exchange, current_exchange
from holdfast.agent.model.usage import Usage, cost_of
from holdfast.connect.call import ToolResult
from holdfast.connect.catalog import CatalogTool
from holdfast.model import codes
from holdfast.model.errors import HoldfastError
from holdfast.model.event import ModelResponded, StopReason
from holdfast.model.ids import new_call_id
from holdfast.model.json import JsonObject
from holdfast.model.visible_text import replace_surrogates, to_line

log = logging.getLogger(__name__)
T = TypeVar("T")
_MAX_NAME = 100
_NO_CALLS = ModelSettings(tool_choice="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Which model runs, with which instructions and tools, and on which budget."""

    model: ModelConfig
    instructions: str = ""
    may_call: bool = True
    """Whether the model may call the session's tools."""
    budget: Budget = UNLIMITED_BUDGET
    take_messages: Callable[[], Awaitable[Sequence[str]]] | None = None
    """Called between two requests. Returns messages of other agents, already marked as theirs, for the next request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended, the text of its last message, and what it used."""

    reason: StopReason
    text: str
    usage: Usage
    notice: str = ""
    """Why a limit ended the run; empty if none did."""


class ModelRun:
    """Runs a model with a history, for a session's own agent or for a sub-agent."""

    def __init__(
        self,
        clients: ModelClients,
        turn: TurnContext,
        options: RunOptions,
        history: Sequence[ModelMessage] = (),
        *,
        is_shown: bool = True,
    ) -> None:
        """Without `is_shown`, the answer is neither published nor stored."""
        self.messages: list[ModelMessage] = [*history]
        """The conversation, with what this run adds to it."""
        self.usage = Usage()
        """What the run has used so far, even if it is cancelled."""
        self.unstored_usage = Usage()
        """What the run has used since the last answer that was stored with its usage. The next such answer is stored with all of it, so the
        usage of requests that failed, were cancelled or had an empty answer is stored too."""
        self.context_tokens = 0
        """How many tokens a request and its answer had together, in the last answer that reported them; 0 if none has."""
        self.has_answer = False
        """Whether an answer has arrived, whole or in part."""
        self._last_usage = Usage()
        self._is_shown = is_shown
        self._turn = turn
        self._options = options
        self._model: Model = clients.get(options.model)
        self._toolset = Toolset()
        self._model_seconds = 0.0
        self._tracer = clients.tracer
        self._models_without_images = clients.models_without_images

    async def run(self, blocks: Sequence[JsonObject]) -> RunResult:
        """Answer a prompt. If the endpoint fails, raise an error that says what to do."""
        self.messages.append(user_request(blocks))
        text = ""
        try:
            while True:
                tools = self._toolset.list(await self._turn.tools())
                response = await self._request(tools)
                text = text_of(response) or text
                match response.finish_reason:
                    case "length":
                        return self._result(StopReason.MAX_TOKENS, text)
                    case "content_filter":
                        return self._result(StopReason.REFUSAL, text)
                    case _ if not response.tool_calls:
                        return self._result(StopReason.END_TURN, text)
                    case _:
                        pass
        except LimitReachedError as limit:
            self._turn.report_failure(limit)
            return self._result(limit.reason, text, notice=limit.message)

    def _result(self, reason: StopReason, text: str, notice: str = "") -> RunResult:
        return RunResult(reason=reason, text=text, usage=self.usage, notice=notice)

    async def _request(self, tools: ToolList) -> ModelResponse:
        """Send the conversation, store the answer, and make the calls that it asks for."""
        total = self._turn.total
        total.check_request(self._options.model.limits)
        expected = expected_tokens(self.messages, tools, self._options.instructions)
        self._options.budget.start_request(max(expected, self.context_tokens))
        total.usage += Usage(requests=1)  # before the request: other sub-agents run at the same time
        if self._is_shown:
            self._turn.begin_message()
        try:
            streamed = await self._traced_stream(tools)
        except failures.ImagesRefusedError:
            name = self._options.model.name
            self._models_without_images.add(name)
            await self._turn.reply(f"{name} does not take images, so it answers without them.\n\n")
            streamed = await self._traced_stream(tools)
        response = clean_response(streamed)
        await self._add_refusal(response)
        self.has_answer = True
        if response.finish_reason == "length" or not self._options.may_call:
            # If the answer was too long, its last call may be incomplete.
            response.parts = [part for part in response.parts if not isinstance(part, ToolCallPart)]
        if not response.parts:
            return response
        calls = {part.tool_call_id: new_call_id() for part in response.tool_calls}
        self.messages.append(response)
        if self._is_shown:
            await self._turn.add_model_event(
                ModelResponded(
                    model=self._options.model.name,
                    message=encode_response(response),
                    calls=calls,
                    usage=self.unstored_usage.to_json(),
                )
            )
            self.unstored_usage = Usage()
        if calls:
            self.messages.append(
                ModelRequest(parts=await self._make_calls(response.tool_calls, calls, tools))
            )
        return response

    async def _add_refusal(self, response: ModelResponse) -> None:
        """Show why the model refuses to answer. Some API formats have a separate field for the reason."""
        refusal = (response.provider_details or {}).get("refusal")
        if isinstance(refusal, str) and refusal and not text_of(response):
            response.parts = [*response.parts, TextPart(content=replace_surrogates(refusal))]
            if self._is_shown:
                await self._turn.reply(refusal)

    async def _traced_stream(self, tools: ToolList) -> ModelResponse:
        if self._tracer is None:
            return await self._stream(tools)
        config, context = self._options.model, self._turn.context
        with trace_request(self._tracer, config, self._model, context.session_id) as span:
            response = await self._stream(tools)
            add_response_attributes(span, response, self._last_usage)
            return response

    async def _stream(self, tools: ToolList) -> ModelResponse:
        """Send one request, and publish the answer while it arrives."""
        options = self._options
        exchange = Exchange(options.model)
        token = current_exchange.set(exchange)
        loop = asyncio.get_running_loop()
        began = loop.time()
        left = options.model.limits.turn_seconds - self._model_seconds
        stream: StreamedResponse | None = None
        # Anthropic rejects a conversation with calls if the request has no definitions.
        has_tools = options.may_call or type(self._model).__name__ == "AnthropicModel"
        parameters = ModelRequestParameters(
            function_tools=tools.definitions if has_tools else [],
            instruction_parts=[InstructionPart(content=options.instructions)]
            if options.instructions
            else None,
        )
        messages = fit_provider(self.messages, self._model)
        exchange.has_images = has_images(messages)
        if exchange.has_images and options.model.name in self._models_without_images:
            messages, exchange.has_images = without_images(messages), False
        if self.context_tokens > options.model.limits.context_tokens * ELIDE_AT:
            messages = elide_results(messages)
        try:
            async with (
                limit_time(exchange, left),
                model_request_stream(
                    self._model,
                    messages,
                    model_settings=None if options.may_call or not parameters.function_tools else _NO_CALLS,
                    model_request_parameters=parameters,
                    instrument=False,
                ) as stream,
            ):
                if self._is_shown:
                    await self._publish(stream, exchange)
                else:
                    async for _ in stream:
                        exchange.last_progress = loop.time()
                response = stream.get()
                if not exchange.has_ended and not ends_properly(response, self._model):
                    await self._keep_partial(stream)
                    raise failures.cut_off(_host(self._model))
                return response
        except LimitReachedError:
            await self._keep_partial(stream)
            raise
        except HoldfastError:
            raise
        except Exception as error:  # a library raises errors of any kind if an answer has an unexpected form
            await self._keep_partial(stream)
            raise self._explain(error, exchange) from error
        finally:
            current_exchange.reset(token)
            self._model_seconds += loop.time() - began
            self._count_usage(stream, exchange)

    async def _keep_partial(self, stream: StreamedResponse | None) -> None:
        """Store the text of an answer that was cut off: the user saw it, so the model must know it."""
        if stream is None or not self._is_shown:
            return
        response = stream.get()
        if text := text_of(response):
            self.has_answer = True
            cut = replace(response, parts=[TextPart(content=text + CUT_OFF)])
            await self._turn.add_model_event(
                ModelResponded(model=self._options.model.name, message=encode_response(cut))
            )

    async def _publish(self, stream: StreamedResponse, exchange: Exchange) -> None:
        turn, loop = self._turn, asyncio.get_running_loop()
        size = AnswerSize(self._options.model.limits)
        async for event in stream:
            exchange.last_progress = loop.time()
            match event:
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                    if not text:  # None if the library does not know the kind of delta
                        continue
                    await turn.reply(text)
                case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)):
                    text = text or ""
                    if text:
                        await turn.think(text)
                case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=args)):
                    text = args if isinstance(args, str) else ""
                case PartStartEvent(part=TextPart(content=text)):
                    await turn.reply(text)
                case PartStartEvent(part=ThinkingPart(content=text)):
                    if text:
                        await turn.think(text)
                case PartStartEvent(part=ToolCallPart(args=args)):
                    text = args if isinstance(args, str) else ""
                    size.add_call()
                case _:
                    continue
            if text and not size.characters:
                await turn.flush()  # publish the first words before more of the answer is decoded
            size.add_text(text)

    def _count_usage(self, stream: StreamedResponse | None, exchange: Exchange) -> None:
        """Add what a request used, even if it failed or was cancelled."""
        used = None if stream is None else stream.usage
        usage = Usage(
            requests=1,
            input_tokens=used.input_tokens if used else 0,
            output_tokens=used.output_tokens if used else 0,
            cached_tokens=used.cache_read_tokens if used else 0,
        )
        cost = cost_of(stream)
        self._last_usage = usage + (Usage(unpriced=1) if cost is None else Usage(cost=cost))
        self.usage += self._last_usage
        self.unstored_usage += self._last_usage
        self._turn.total.usage += replace(self._last_usage, requests=0)
        self.context_tokens = usage.input_tokens + usage.output_tokens or self.context_tokens
        counted = self._last_usage
        if stream is not None and not usage.input_tokens and not usage.output_tokens:
            tokens_in, tokens_out = used_tokens(stream, exchange)
            counted = replace(counted, input_tokens=tokens_in, output_tokens=tokens_out)
        self._options.budget.add_usage(counted)

    def _explain(self, error: Exception, exchange: Exchange) -> HoldfastError:
        """Return the error to report. The library's own message is not used, because it may repeat what the endpoint sent."""
        if exchange.failure is not None:
            return exchange.failure
        if isinstance(error, ModelHTTPError):  # an error that the endpoint reports within its answer
            return failures.http_error(self._options.model, error.status_code, _host(self._model))
        # The traceback is not logged either: it contains the library's message.
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        log.warning("model's answer not readable", extra={"kind": type(error).__name__, "where": where})
        return failures.unreadable(_host(self._model))

    async def _make_calls(
        self, calls: Sequence[ToolCallPart], ids: dict[str, str], tools: ToolList
    ) -> list[ModelRequestPart]:
        """Make all calls at the same time, and collect the messages that other sessions sent in this time."""
        limits = [self._count_call() for _ in calls]
        work = [
            self._call(call, ids[call.tool_call_id], tools, limit)
            for call, limit in zip(calls, limits, strict=True)
        ]
        results = [await work[0]] if len(work) == 1 else await _run_together(work)
        for limit in filter(None, limits):
            raise limit  # only now: the calls that were within the limit are made first
        take_messages = self._options.take_messages
        texts = () if take_messages is None else await take_messages()
        return [*join_results(results), *(UserPromptPart(content=text) for text in texts)]

    def _count_call(self) -> HoldfastError | None:
        """Count a call. If a limit is reached, return the error that ends the turn: the call is not made."""
        if reached := self._turn.total.find_call_limit(self._options.model.limits):
            return reached
        try:
            self._options.budget.start_call()
        except HoldfastError as error:
            return error
        self.usage += Usage(calls=1)
        self._turn.total.usage += Usage(calls=1)
        return None

    async def _call(
        self, part: ToolCallPart, call_id: str, tools: ToolList, limit: HoldfastError | None
    ) -> list[ModelRequestPart]:
        tool = tools.by_name.get(part.tool_name)
        arguments: dict[str, Any] = part.args_as_dict()
        if tool is None or limit is not None or ("invalid_json" in arguments and len(arguments) == 1):
            result = await self._reject(part, call_id, tool, limit)
        else:
            result = await self._turn.call(tool.name, arguments, call_id=call_id)
        content = shown_blocks(result.content, result.data)
        return call_result(part, content, result.outcome, self._options.model.limits.max_result_characters)

    async def _reject(
        self, part: ToolCallPart, call_id: str, tool: CatalogTool | None, limit: HoldfastError | None
    ) -> ToolResult:
        """Refuse a call that cannot be made. The call is recorded, so that people see that the model tried."""
        if tool is None:
            server, name = "", to_line(part.tool_name[: 2 * _MAX_NAME])[:_MAX_NAME]
            message = f"There is no tool {name!r}. Use one of those that are listed."
            error = HoldfastError(codes.UNKNOWN_TOOL, message)
        else:
            server, name = tool.server.name, tool.definition.name
            message = "The arguments are not a JSON object. Nothing was called; send them again."
            error = HoldfastError(codes.BAD_ARGUMENT, message)
        if limit is not None:
            error = HoldfastError(limit.code, f"Nothing was called. {limit.message}")
        return await self._turn.reject_call(server, name, part.args_as_dict(), call_id=call_id, error=error)


def _host(model: Model) -> str:
    from urllib.parse import urlsplit

    with suppress(ValueError, AttributeError):
        return urlsplit(model.base_url or "").hostname or "The model's endpoint"
    return "The model's endpoint"


async def _run_together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at the same time. If one fails or the caller is cancelled, cancel the others, and wait for them before raising."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
