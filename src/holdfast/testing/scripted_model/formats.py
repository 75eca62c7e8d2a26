"""Encodes answers in each of the formats: as the events of a stream, or as one JSON document.

`number` is the number of the request, from which ids in the answer are made.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec
from msgspec import structs

from holdfast.model.json import Json, JsonObject
from holdfast.testing.scripted_model.request import WireFormat
from holdfast.testing.scripted_model.steps import Answer, Call, Text, Think

Events: TypeAlias = Iterable[tuple[str, JsonObject]]
"""The name and the data of each event."""


def number_calls(answer: Answer, numbers: Iterator[int]) -> Answer:
    """Return the answer with an id for each call that has none."""
    parts = tuple(
        structs.replace(part, id=f"call_{next(numbers)}") if isinstance(part, Call) and not part.id else part
        for part in answer.parts
    )
    return structs.replace(answer, parts=parts)


def stream(wire_format: WireFormat, answer: Answer, model: str, number: int) -> Iterator[bytes]:
    """Yield the events of an answer as they are sent. Each call in it must have an id: see `number_calls`."""
    match wire_format:
        case WireFormat.CHAT:
            for _, data in _chat_events(answer, model, number):
                yield b"data: %b\n\n" % msgspec.json.encode(data)
            yield b"data: [DONE]\n\n"
        case WireFormat.RESPONSES:
            numbers = itertools.count()
            for name, data in _responses_events(answer, model, number):
                yield _named_event(name, {"type": name, "sequence_number": next(numbers), **data})
        case WireFormat.ANTHROPIC:
            for name, data in _anthropic_events(answer, model, number):
                yield _named_event(name, {"type": name, **data})


def document(wire_format: WireFormat, answer: Answer, model: str, number: int) -> JsonObject:
    """Return the answer as one JSON document, for a request without a stream. Each call in it must have an id: see `number_calls`."""
    match wire_format:
        case WireFormat.CHAT:
            return _chat_document(answer, model, number)
        case WireFormat.RESPONSES:
            items = [_responses_item(part, index) for index, part in enumerate(answer.parts)]
            return _responses_document(answer, model, number, items, status=_responses_status(answer))
        case WireFormat.ANTHROPIC:
            return {
                **_anthropic_message(answer, model, number),
                "content": [_anthropic_block(part) for part in answer.parts],
                "stop_reason": _anthropic_stop(answer),
            }


def _named_event(name: str, data: JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


def _pieces(part: Text | Think | Call) -> list[str]:
    """Split the text of a part, or the arguments of a call, into the texts of its events."""
    text = _arguments(part) if isinstance(part, Call) else part.text
    return [text[start : start + part.chunk] for start in range(0, len(text), part.chunk)]


def _arguments(call: Call) -> str:
    return msgspec.json.encode(call.arguments).decode()


def _has_calls(answer: Answer) -> bool:
    return any(isinstance(part, Call) for part in answer.parts)


# OpenAI Chat Completions


def _chat_events(answer: Answer, model: str, number: int) -> Events:
    def chunk(delta: JsonObject, finish: str | None = None) -> tuple[str, JsonObject]:
        choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": finish}
        return "", {**_chat_head(model, number, "chat.completion.chunk"), "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    calls = itertools.count()
    for part in answer.parts:
        match part:
            case Text():
                yield from (chunk({"content": piece}) for piece in _pieces(part))
            case Think():
                yield from (chunk({"reasoning_content": piece}) for piece in _pieces(part))
            case Call():
                index = next(calls)
                start: JsonObject = {"name": part.tool, "arguments": ""}
                yield chunk(
                    {"tool_calls": [{"index": index, "id": part.id, "type": "function", "function": start}]}
                )
                for piece in _pieces(part):
                    yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _chat_finish(answer))
    yield (
        "",
        {
            **_chat_head(model, number, "chat.completion.chunk"),
            "choices": [],
            "usage": _chat_usage(answer),
        },
    )


def _chat_document(answer: Answer, model: str, number: int) -> JsonObject:
    message: JsonObject = {
        "role": "assistant",
        "content": "".join(part.text for part in answer.parts if isinstance(part, Text)),
    }
    if thoughts := "".join(part.text for part in answer.parts if isinstance(part, Think)):
        message["reasoning_content"] = thoughts
    calls: list[Json] = [
        {"id": part.id, "type": "function", "function": {"name": part.tool, "arguments": _arguments(part)}}
        for part in answer.parts
        if isinstance(part, Call)
    ]
    if calls:
        message["tool_calls"] = calls
    return {
        **_chat_head(model, number, "chat.completion"),
        "choices": [{"index": 0, "message": message, "finish_reason": _chat_finish(answer)}],
        "usage": _chat_usage(answer),
    }


def _chat_head(model: str, number: int, kind: str) -> JsonObject:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1_700_000_000, "model": model}


def _chat_finish(answer: Answer) -> str:
    if answer.stop:
        return {"length": "length", "refusal": "content_filter"}[answer.stop]
    return "tool_calls" if _has_calls(answer) else "stop"


def _chat_usage(answer: Answer) -> JsonObject:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }


# OpenAI Responses


def _responses_events(answer: Answer, model: str, number: int) -> Events:
    started = _responses_document(answer, model, number, [], status="in_progress")
    yield "response.created", {"response": started}
    items: list[JsonObject] = []
    for index, part in enumerate(answer.parts):
        item = _responses_item(part, index)
        items.append(item)
        at: JsonObject = {"output_index": index, "item_id": item["id"]}
        yield "response.output_item.added", {"output_index": index, "item": _responses_started(part, item)}
        match part:
            case Text(text=text):
                done = _output_text(text)
                at |= {"content_index": 0}
                yield "response.content_part.added", {**at, "part": _output_text("")}
                for piece in _pieces(part):
                    yield "response.output_text.delta", {**at, "delta": piece, "logprobs": []}
                yield "response.output_text.done", {**at, "text": text, "logprobs": []}
                yield "response.content_part.done", {**at, "part": done}
            case Think(text=text):
                at |= {"summary_index": 0}
                start: JsonObject = {"type": "summary_text", "text": ""}
                yield "response.reasoning_summary_part.added", {**at, "part": start}
                for piece in _pieces(part):
                    yield "response.reasoning_summary_text.delta", {**at, "delta": piece}
                yield "response.reasoning_summary_text.done", {**at, "text": text}
                yield "response.reasoning_summary_part.done", {**at, "part": {**start, "text": text}}
            case Call():
                for piece in _pieces(part):
                    yield "response.function_call_arguments.delta", {**at, "delta": piece}
                arguments: JsonObject = {"name": part.tool, "arguments": _arguments(part)}
                yield "response.function_call_arguments.done", {**at, **arguments}
        yield "response.output_item.done", {"output_index": index, "item": item}
    status = _responses_status(answer)
    ended = _responses_document(answer, model, number, items, status=status)
    yield f"response.{status}", {"response": ended}


def _responses_status(answer: Answer) -> str:
    return "incomplete" if answer.stop else "completed"


def _responses_item(part: Text | Think | Call, index: int) -> JsonObject:
    match part:
        case Text(text=text):
            return {
                "type": "message",
                "id": f"msg_{index}",
                "status": "completed",
                "role": "assistant",
                "content": [_output_text(text)],
            }
        case Think(text=text, signature=signature):
            return {
                "type": "reasoning",
                "id": f"rs_{index}",
                "summary": [{"type": "summary_text", "text": text}],
                "encrypted_content": signature or None,
            }
        case Call():
            return {
                "type": "function_call",
                "id": f"fc_{index}",
                "status": "completed",
                "call_id": part.id,
                "name": part.tool,
                "arguments": _arguments(part),
            }


def _responses_started(part: Text | Think | Call, item: JsonObject) -> JsonObject:
    match part:
        case Text():
            return {**item, "status": "in_progress", "content": []}
        case Think():
            return {**item, "summary": [], "encrypted_content": None}
        case Call():
            return {**item, "status": "in_progress", "arguments": ""}


def _output_text(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _responses_document(
    answer: Answer, model: str, number: int, items: list[JsonObject], *, status: str
) -> JsonObject:
    incomplete = {"length": "max_output_tokens", "refusal": "content_filter"}.get(answer.stop)
    output: list[Json] = [*items]
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "model": model,
        "output": output,
        "error": None,
        "incomplete_details": {"reason": incomplete} if incomplete and status == "incomplete" else None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None
        if status == "in_progress"
        else {
            "input_tokens": answer.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.input_tokens + answer.output_tokens,
        },
    }


# Anthropic Messages


def _anthropic_events(answer: Answer, model: str, number: int) -> Events:
    usage: JsonObject = {"input_tokens": answer.input_tokens, "output_tokens": 1}
    message: JsonObject = {**_anthropic_message(answer, model, number), "usage": usage}
    yield "message_start", {"message": message}
    for index, part in enumerate(answer.parts):
        yield "content_block_start", {"index": index, "content_block": _anthropic_started(part)}
        for piece in _pieces(part):
            match part:
                case Text():
                    delta: JsonObject = {"type": "text_delta", "text": piece}
                case Think():
                    delta = {"type": "thinking_delta", "thinking": piece}
                case Call():
                    delta = {"type": "input_json_delta", "partial_json": piece}
            yield "content_block_delta", {"index": index, "delta": delta}
        if isinstance(part, Think) and part.signature:
            signed: JsonObject = {"type": "signature_delta", "signature": part.signature}
            yield "content_block_delta", {"index": index, "delta": signed}
        yield "content_block_stop", {"index": index}
    yield (
        "message_delta",
        {
            "delta": {"stop_reason": _anthropic_stop(answer), "stop_sequence": None},
            "usage": {"output_tokens": answer.output_tokens},
        },
    )
    yield "message_stop", {}


def _anthropic_message(answer: Answer, model: str, number: int) -> JsonObject:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens},
    }


def _anthropic_block(part: Text | Think | Call) -> JsonObject:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Think(text=text, signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Call():
            return {"type": "tool_use", "id": part.id, "name": part.tool, "input": part.arguments}


def _anthropic_started(part: Text | Think | Call) -> JsonObject:
    match part:
        case Text():
            return {"type": "text", "text": ""}
        case Think():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case Call():
            return {"type": "tool_use", "id": part.id, "name": part.tool, "input": {}}


def _anthropic_stop(answer: Answer) -> str:
    if answer.stop:
        return {"length": "max_tokens", "refusal": "refusal"}[answer.stop]
    return "tool_use" if _has_calls(answer) else "end_turn"
