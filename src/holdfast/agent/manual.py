"""The agent that needs no model: a person lists and calls tools by typing."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from holdfast.agent.agent import Command, Desk
from holdfast.connect.call import Answer
from holdfast.model.event import StopReason
from holdfast.model.json import JsonObject
from holdfast.model.limits import DEFAULT
from holdfast.wire.strict import Unreadable, read

COMMANDS = (
    Command(name="tools", description="List the tools there are", hint="[server]"),
    Command(name="call", description="Call a tool", hint='server.tool {"argument": "value"}'),
    Command(name="servers", description="Show the servers, and who was refused"),
    Command(name="why", description="Say why a server was refused, or what to beware of", hint="server"),
    Command(name="help", description="Say what can be typed"),
)
HELP = """This session has no model; you drive it yourself. Type:

  /tools [server]              the tools there are
  /call server.tool {json}     call a tool; several lines call several at once
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
        calls: list[str] = []
        others: list[str] = []
        for line in _lines(blocks):
            (calls if line.split(maxsplit=1)[0] == "/call" else others).append(line)
        for line in others:
            await desk.reply(await self._other(line, desk))
        if calls:
            answers = await asyncio.gather(*(self._call(line, desk) for line in calls))
            for answer in answers:
                await desk.reply(answer)
        if not calls and not others:
            await desk.reply(HELP)
        return StopReason.END_TURN

    async def _other(self, line: str, desk: Desk) -> str:
        command, _, rest = line.partition(" ")
        match command:
            case "/tools":
                return await _tools(desk, rest.strip())
            case "/servers":
                return _servers(desk)
            case "/why":
                return _why(desk, rest.strip())
            case "/help":
                return HELP
            case _ if command.startswith("/"):
                return f"There is no command {command}.\n\n{HELP}"
            case _:
                return HELP

    async def _call(self, line: str, desk: Desk) -> str:
        name, _, given = line.removeprefix("/call").strip().partition(" ")
        if not name:
            return "Say which tool: /call server.tool {json}\n"
        try:
            arguments = read((given.strip() or "{}").encode(), dict[str, Any], DEFAULT)
        except Unreadable as error:
            return f'The arguments of {name} are no JSON object: {error}. Write /call {name} {{"key": "value"}}\n'
        return _told(name, await desk.call(name, arguments))


def _lines(blocks: Sequence[JsonObject]) -> list[str]:
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    return [line.strip() for text in texts for line in text.splitlines() if line.strip()]


def _told(name: str, answer: Answer) -> str:
    text = _readable(answer)
    others = [str(block.get("type")) for block in answer.content if block.get("type") != "text"]
    shown = text if len(text) <= _SHORT else f"{text[:_SHORT]}… ({len(text)} characters in all)"
    beside = f" (and {', '.join(others)})" if others else ""
    return f"{name}{'' if answer.ok else ' failed'}{beside}:\n{shown}\n"


def _readable(answer: Answer) -> str:
    """The answer in words; of a toolkit's envelope, what is in it."""
    match answer.data:
        case {"ok": True, "_meta": dict(), "text": str(text)}:
            return text
        case {"ok": True, "_meta": dict(), **data}:
            shown = {key: value for key, value in data.items() if key != "diff"}
            return json.dumps(shown, indent=2, ensure_ascii=False)
        case {"ok": False, "code": str(code), "error": str(error), "hint": str(hint)}:
            return f"{code}: {error} {hint}"
        case data if answer.ok and not answer.text and data is not None:
            return json.dumps(data, indent=2, ensure_ascii=False)
        case _:
            return answer.text


async def _tools(desk: Desk, server: str) -> str:
    offers = [offer for offer in await desk.tools() if server in ("", offer.server.name)]
    if not offers:
        return f"{server or 'This session'} has no tools. /servers says how the servers are.\n"
    return "".join(
        f"{offer.name}  {(offer.tool.description or offer.tool.title or '').partition(chr(10))[0]}\n"
        for offer in offers
    )


def _servers(desk: Desk) -> str:
    standing = desk.standing()
    lines = [f"{name}: up" for name in standing.up]
    lines += [f"{name}: starting" for name in standing.starting]
    lines += [f"{refusal.server}: refused ({refusal.stage})" for refusal in standing.refusals]
    lines += [
        f"{name}: {len(held)} tools wait for approval" for name, held in standing.held_back.items() if held
    ]
    return "\n".join(lines or ["There are no servers."]) + "\n"


def _why(desk: Desk, server: str) -> str:
    standing = desk.standing()
    lines = [
        f"{refusal.stage}: {refusal.reason}" for refusal in standing.refusals if refusal.server == server
    ]
    lines += [f"beware: {caution.text}" for caution in standing.cautions if caution.server == server]
    if held := standing.held_back.get(server):
        lines.append(f"held back until approved: {', '.join(held)}")
    if not lines:
        known = server in (*standing.up, *standing.starting)
        lines = [f"{server} was not refused." if known else f"There is no server {server!r} here."]
    return "\n".join(lines) + "\n"
