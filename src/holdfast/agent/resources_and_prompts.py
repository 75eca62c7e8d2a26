"""The slash commands that list and show the resources and the prompts of servers."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec

from holdfast.agent.agent import TurnContext
from holdfast.agent.describe_arguments import describe_json_error, example_object, shorten
from holdfast.model.errors import HoldfastError
from holdfast.model.json import Json, JsonObject
from holdfast.model.similar_names import suggest_name

_MAX_LINE = 200
_MAX_LISTED = 1000

Kind = Literal["resources", "prompts"]


async def show_resources(turn: TurnContext, argument: str) -> str:
    """List the resources of all servers or of one, or read one resource: `server uri`."""
    server, _, uri = argument.strip().partition(" ")
    if not uri.strip():
        return await _list(turn, "resources", server)
    try:
        result = await turn.request_feature(server, "resources/read", {"uri": uri.strip()})
    except HoldfastError as error:
        return f"{error.message}\n"
    contents = result.get("contents")
    parts = [_content_text(part) for part in (contents if isinstance(contents, list) else ())]
    return "\n".join(parts or ["(empty)"]) + "\n"


async def show_prompts(turn: TurnContext, argument: str) -> str:
    """List the prompts of all servers or of one, or show one prompt: `server name {json}`."""
    server, *rest = argument.split(maxsplit=2) or [""]
    if not rest:
        return await _list(turn, "prompts", server)
    name, *given = rest
    text = "".join(given) or "{}"
    try:
        arguments = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        problem = describe_json_error(text, error)
        return f"The arguments of {name} are not a JSON object{problem}. Write /prompts {server} {name} {example_object(text)}.\n"
    try:
        result = await turn.request_feature(server, "prompts/get", {"name": name, "arguments": arguments})
    except HoldfastError as error:
        return f"{error.message}\n{await _missing_arguments(turn, server, name, arguments)}"
    messages = result.get("messages")
    parts = [_message_text(message) for message in (messages if isinstance(messages, list) else ())]
    return "\n".join(parts or ["(empty)"]) + "\n"


async def _missing_arguments(turn: TurnContext, server: str, name: str, given: Mapping[str, Any]) -> str:
    """Say which arguments a prompt still needs, and how to give them. Empty if it needs none, or if the prompt cannot be found."""
    try:
        prompts = await turn.list_features(server, "prompts")
    except HoldfastError:
        return ""
    declared = next((prompt.get("arguments") for prompt in prompts if prompt.get("name") == name), None)
    names = [each for each in _argument_names(declared) if not each.endswith("?")]
    missing = [each for each in names if each not in given]
    if not missing:
        return ""
    example = json.dumps(dict.fromkeys(names, "…"), ensure_ascii=False)
    return f"It needs {', '.join(missing)}. Write /prompts {server} {name} {example}\n"


async def _list(turn: TurnContext, kind: Kind, server: str) -> str:
    available = turn.server_status().available
    if server and server not in available:
        return f"There is no server {server[:80]!r} here.{suggest_name(server, available)} /servers lists the servers.\n"
    lines: list[str] = []
    for name in (server,) if server else available:
        try:
            features = await turn.list_features(name, kind)
        except HoldfastError as error:
            if server:  # in a list of all servers, those without resources or prompts are left out
                return f"{error.message}\n"
            continue
        if kind == "resources":
            with suppress(HoldfastError):  # a server may have resources and no templates
                features = [*features, *await turn.list_features(name, "resourceTemplates")]
        lines += [f"- {name} {line}\n" for line in map(_describe_item, features[:_MAX_LISTED])]
    return "".join(lines) or f"There are no {kind}.\n"


def _describe_item(item: JsonObject) -> str:
    label = str(item.get("uri") or item.get("uriTemplate") or item.get("name") or "")
    description = str(item.get("description") or item.get("title") or "").partition("\n")[0]
    needs = ", ".join(_argument_names(item.get("arguments")))
    return f"{label}{f' ({needs})' if needs else ''}{f'  {shorten(description, _MAX_LINE)}' if description else ''}"


def _argument_names(arguments: Json) -> Iterator[str]:
    """Yield the names of a prompt's arguments. Optional ones end with a question mark."""
    for argument in arguments if isinstance(arguments, list) else ():
        if isinstance(argument, dict):
            yield f"{argument.get('name', '')}{'' if argument.get('required') else '?'}"


def _content_text(content: Json) -> str:
    match content:
        case {"text": str(text)}:
            return text
        case {"mimeType": str(kind)}:
            return f"({kind} not shown)"
        case _:
            return "(not text)"


def _message_text(message: Json) -> str:
    match message:
        case {"role": str(role), "content": {"type": "text", "text": str(text)}}:
            return f"{role}: {text}"
        case {"role": str(role)}:
            return f"{role}: (not text)"
        case _:
            return "(not text)"
