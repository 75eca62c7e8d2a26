"""How many tokens a model reads: ten typical tools and their answers, with our toolkit and with FastMCP.

There is no tokenizer for every model, so tokens are estimated, with the same rule for all: a word or a number is one token
for every six characters, and every other character is one token. Only the ratio counts.
"""

import asyncio
import json
import math
import re
from typing import Any

from fastmcp import Client, FastMCP

from benchmarks.result import Result
from benchmarks.servers.typical_tools import CALLS
from holdfast.toolkit import Toolbox
from holdfast.toolkit.authentication import AnonymousAuthenticator
from holdfast.toolkit.return_type import EnvelopeKind
from holdfast.wire.in_memory import connect_memory
from holdfast.wire.mcp.client import negotiate
from holdfast.wire.mcp.eras import Implementation, OwnInfo
from holdfast.wire.mcp.server import server_peer
from holdfast.wire.peer import Peer

PEER = "FastMCP, the same ten tools"
_PIECE = re.compile(r"[^\W_]+|[^\w\s]|_")


def count_tokens(text: str) -> int:
    return sum(math.ceil(len(piece) / 6) for piece in _PIECE.findall(text))


def results() -> list[Result]:
    theirs = asyncio.run(_fastmcp())
    ours = asyncio.run(_ours("meta"))
    with_envelope = asyncio.run(_ours("content"))
    return [
        _row("toolkit.tokens.answers", ours["answers"], theirs["answers"], "<= 1.1"),
        _row("toolkit.tokens.manifest", ours["manifest"], theirs["manifest"], "<= 1.1"),
        _row("toolkit.tokens.tools_list", ours["tools_list"], theirs["tools_list"], "<= 1.1"),
        _row("toolkit.tokens.answers_with_envelope", with_envelope["answers"], theirs["answers"]),
        _row("toolkit.tokens.tools_list_with_envelope", with_envelope["tools_list"], theirs["tools_list"]),
    ]


def _row(name: str, ours: int, peer: int, goal: str = "") -> Result:
    return Result(name=name, ours=ours, peer=peer, peer_name=PEER, unit="tokens", goal=goal)


def _count(tools: list[dict[str, Any]], answers: list[dict[str, Any]]) -> dict[str, int]:
    """What a model reads: the text of the answers, and the name, description and input schema of each tool."""
    shown = [{name: tool[name] for name in ("name", "description", "inputSchema")} for tool in tools]
    texts = [block["text"] for answer in answers for block in answer["content"]]
    return {
        "answers": sum(map(count_tokens, texts)),
        "manifest": count_tokens(json.dumps(shown)),
        "tools_list": count_tokens(json.dumps(tools)),
    }


async def _ours(envelope: EnvelopeKind) -> dict[str, int]:
    box = Toolbox("typical", envelope=envelope)
    for function, _ in CALLS:
        box.tool(function)
    peer = Peer()
    server = box.server(AnonymousAuthenticator(box.aliases))
    async with connect_memory(server_peer(server), peer):
        client = await negotiate(peer, OwnInfo(implementation=Implementation("benchmark", "1")))
        tools = json.loads(bytes(await client.request("tools/list")))["tools"]
        answers = [
            json.loads(
                bytes(await client.request("tools/call", {"name": function.__name__, "arguments": arguments}))
            )
            for function, arguments in CALLS
        ]
    return _count(tools, answers)


async def _fastmcp() -> dict[str, int]:
    server = FastMCP("typical")
    for function, _ in CALLS:
        server.tool(function)
    async with Client(server) as client:
        tools = [
            tool.model_dump(mode="json", by_alias=True, exclude_none=True)
            for tool in await client.list_tools()
        ]
        answers = [
            (await client.call_tool_mcp(function.__name__, arguments)).model_dump(
                mode="json", by_alias=True, exclude_none=True
            )
            for function, arguments in CALLS
        ]
    return _count(tools, answers)
