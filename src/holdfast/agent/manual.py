"""The agent that needs no model: a person lists and calls tools by typing."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.agent.agent import Command, Desk
from holdfast.agent.arguments import described, example, required
from holdfast.agent.typed import CALL, Typed, typed
from holdfast.connect.call import Answer
from holdfast.connect.catalog import Offer
from holdfast.model import codes
from holdfast.model.event import StopReason
from holdfast.model.json import Json, JsonObject
from holdfast.model.limits import DEFAULT
from holdfast.wire.strict import Unreadable, read

COMMANDS = (
    Command(
        name="tools",
        description="List the tools, those of a server, or all about one tool",
        hint="[server | server.tool]",
    ),
    Command(name="call", description="Call a tool", hint='server.tool {"argument": "value"}'),
    Command(name="servers", description="Show the servers, and who was refused"),
    Command(name="why", description="Say why a server was refused, or what to beware of", hint="server"),
    Command(name="help", description="Say what can be typed"),
)
HELP = """This session has no model; you drive it yourself. Type:

    /tools                       the tools there are
    /tools server                those of one server, and what each needs
    /tools server.tool           all about one: what it does, and its arguments
    /call server.tool {json}     call a tool; the JSON may take several lines, and several calls run at once
    /servers                     the servers, and who was refused
    /why server                  why a server was refused
    /help                        this text
"""
_SHORT = 4000


class Manual:
    """Does what the typed commands say; other words are answered with what can be typed."""

    commands = COMMANDS

    async def turn(self, blocks: Sequence[JsonObject], desk: Desk) -> StopReason:
        """Run every command of the prompt: calls side by side, the rest one after another."""
        commands = typed(blocks)
        for one in commands:
            if one.command not in ("", CALL):
                await desk.reply(await _answer(one, desk))
        calls = [one for one in commands if one.command == CALL]
        for answer in await asyncio.gather(*(_call(one, desk) for one in calls)):
            await desk.reply(answer)
        if not commands or any(not one.command for one in commands):
            await desk.reply(HELP)
        return StopReason.END_TURN


async def _answer(one: Typed, desk: Desk) -> str:
    match one.command:
        case "/tools":
            return await _tools(desk, one.rest)
        case "/servers":
            return _servers(desk)
        case "/why":
            return _why(desk, one.rest)
        case "/help":
            return HELP
        case _:
            return f"There is no command {one.command[:80]}. /help says what can be typed.\n"


async def _call(one: Typed, desk: Desk) -> str:
    name, *given = one.rest.split(maxsplit=1)[:2] or [""]
    if not name:
        return "Say which tool: /call server.tool {json}. /tools lists them.\n"
    if one.open:
        return f"The JSON for {name} is not closed: a bracket is open where it ends. Nothing was called; close it and send it again.\n"
    try:
        arguments = read("".join(given or "{}").encode(), dict[str, Any], DEFAULT)
    except (Unreadable, UnicodeEncodeError) as error:
        return (
            f"The arguments of {name} are no JSON object: {error}. Nothing was called. "
            f'Write /call {name} {{"key": "value"}}; /tools {name} says what it takes.\n'
        )
    return _told(name, await desk.call(name, arguments))


def _told(name: str, answer: Answer) -> str:
    others = [str(block.get("type")) for block in answer.content if block.get("type") != "text"]
    text = _readable(name, answer) or ("" if others else "(empty)")
    shown = text if len(text) <= _SHORT else f"{text[:_SHORT]}… ({len(text)} characters in all)"
    beside = f" (and {', '.join(others)})" if others else ""
    return f"{name}{'' if answer.ok else ' failed'}{beside}:\n{shown}\n"


def _readable(name: str, answer: Answer) -> str:
    """The answer in words; of a toolkit's envelope, what is in it."""
    match answer.data:
        case {"ok": True, "_meta": dict(), "text": str(text)}:
            return text
        case {"ok": True, "_meta": dict(), **data}:
            # What our file tools changed is shown beside it, as a diff.
            shown = {
                key: value for key, value in data.items() if key != "diff" or not name.startswith("files.")
            }
            return json.dumps(shown, indent=2, ensure_ascii=False)
        case {"ok": False, "code": str(code), "error": str(error), "hint": str(hint), **more}:
            return f"{code}: {error} {hint}{''.join(_issues(more.get('details')))}"
        case data if answer.ok and not answer.text and data is not None:
            return json.dumps(data, indent=2, ensure_ascii=False)
        case _:
            return f"{answer.text} {_hint(answer)}".rstrip()


def _hint(answer: Answer) -> str:
    """What to do about a failure; whoever did not permit a call has said so."""
    known = codes.find(answer.code)
    return known.hint if known is not None and known is not codes.NOT_PERMITTED else ""


def _issues(details: Json) -> Iterator[str]:
    """What is wrong with each argument, on a line of its own."""
    match details:
        case {"issues": list() as issues}:
            for issue in issues:
                match issue:
                    case {"field": str(field), "message": str(message)}:
                        yield f"\n- {field}: {message}"
                    case _:
                        pass
        case _:
            pass


async def _tools(desk: Desk, wanted: str) -> str:
    offers = await desk.tools()
    if wanted:
        of_server = [offer for offer in offers if offer.server.name == wanted]
        named = [offer for offer in offers if wanted in (offer.name, offer.model_name)]
        if of_server or not named:
            return "".join(map(_with_needs, of_server)) or _no_tools(desk, wanted)
        return _about(named[0])
    shown = "".join(f"- {offer.name}{_first_line(offer)}\n" for offer in offers)
    none = "This session has no tools. /servers says how the servers are.\n"
    return (shown or none) + _still_starting(desk)


def _with_needs(offer: Offer) -> str:
    needs = ", ".join(required(offer.tool))
    return f"- {offer.name} ({needs or 'needs nothing'}){_first_line(offer)}\n"


def _about(offer: Offer) -> str:
    tool = offer.tool
    title = f"{offer.name}: {tool.title}" if tool.title else offer.name
    said = f"{tool.description.strip()}\n\n" if tool.description else ""
    return f"{title}\n\n{said}{described(tool)}\n    /call {offer.name} {example(tool)}\n"


def _first_line(offer: Offer) -> str:
    line = (offer.tool.description or offer.tool.title or "").strip().partition("\n")[0]
    return f"  {line}" if line else ""


def _still_starting(desk: Desk) -> str:
    starting = desk.standing().starting
    return f"Still starting, their tools come later: {', '.join(starting)}.\n" if starting else ""


def _no_tools(desk: Desk, wanted: str) -> str:
    if wanted in desk.standing().starting:
        return f"{wanted} is still starting; its tools come later.\n"
    if wanted in dict(_standing(desk)):
        return f"{wanted} has no tools now. /why {wanted} may say why.\n"
    return f"There is no server or tool {wanted[:80]!r} here. /tools lists the tools, /servers the servers.\n{_still_starting(desk)}"


def _servers(desk: Desk) -> str:
    return "".join(f"- {name}: {state}\n" for name, state in _standing(desk)) or "There are no servers.\n"


def _standing(desk: Desk) -> Iterator[tuple[str, str]]:
    standing = desk.standing()
    yield from ((name, "up") for name in standing.up)
    yield from ((name, "starting") for name in standing.starting)
    yield from ((refusal.server, f"refused ({refusal.stage})") for refusal in standing.refusals)
    for name, held in standing.held_back.items():
        if held:
            yield (
                name,
                "1 tool waits for approval" if len(held) == 1 else f"{len(held)} tools wait for approval",
            )


def _why(desk: Desk, server: str) -> str:
    if not server:
        return f"Say which server: /why server. There are:\n\n{_servers(desk)}"
    standing = desk.standing()
    lines = [
        f"{refusal.stage}: {refusal.reason}" for refusal in standing.refusals if refusal.server == server
    ]
    lines += [f"beware: {caution.text}" for caution in standing.cautions if caution.server == server]
    if held := standing.held_back.get(server):
        lines.append(
            f"held back until approved: {', '.join(held)}. To look at them and approve: holdfast servers approve"
        )
    if not lines:
        known = server in (*standing.up, *standing.starting)
        unknown = f"There is no server {server[:80]!r} here. /servers lists them."
        lines = [f"{server} was not refused." if known else unknown]
    return "\n".join(lines) + "\n"
