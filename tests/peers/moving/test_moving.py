"""A FastMCP server that was moved to the toolkit gives its clients the same results as before."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
INSPECTOR = ROOT / "peers" / "node_modules" / ".bin" / "mcp-inspector"
MODULES = ("tests.peers.moving.before", "tests.peers.moving.after")
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("add", {"a": 2}),
    ("greet", {"name": "Ann"}),
    ("names", {}),
    ("item", {"name": "tea"}),
    ("totals", {"prices": {"tea": 2.5, "milk": 1.0}}),
    ("is_cheap", {"price": 1.5}),
    ("refuse", {}),
    ("picture", {}),
    ("work", {}),
    ("confirm", {}),
    ("confirm", {}),
]


async def use_with_fastmcp(module: str) -> dict[str, Any]:
    """What FastMCP's client gets from the server. In the handshake era: FastMCP's server cannot ask in the modern one."""
    reported: list[tuple[float, float | None]] = []
    asked: list[str] = []
    logged: list[tuple[str, str]] = []

    async def on_log(message: Any) -> None:
        data: Any = message.data
        logged.append((message.level, data if isinstance(data, str) else data["msg"]))

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total))

    async def on_question(message: str, response_type: Any, params: Any, context: Any) -> Any:
        asked.append(message)
        return 3 if len(asked) == 1 else response_type(value=4)  # both ways that FastMCP documents

    transport = StdioTransport(
        sys.executable, ["-m", module], env={"PYTHONPATH": str(ROOT)}, cwd=str(ROOT), keep_alive=False
    )
    async with Client(
        transport, elicitation_handler=on_question, log_handler=on_log, mode="legacy"
    ) as client:
        seen: dict[str, Any] = {}
        for name, arguments in CALLS:
            result = await client.call_tool(
                name, arguments, raise_on_error=False, progress_handler=on_progress
            )
            blocks = [
                block.model_dump(exclude_none=True, by_alias=True, mode="json") for block in result.content
            ]
            if name == "refuse":  # the text of an error names its code, too
                seen[name] = (result.is_error, "Not today." in blocks[0]["text"])
            else:
                answer = (result.is_error, [_plain(block) for block in blocks], result.structured_content)
                seen.setdefault(name, []).append(answer)
        tools = {tool.name: tool for tool in await client.list_tools()}
        seen["tools"] = {name: (tool.description, sorted(_properties(tool))) for name, tool in tools.items()}
        cheap = tools["is_cheap"]
        hints = cheap.annotations.read_only_hint if cheap.annotations else None
        seen["hints"] = (cheap.title, hints, (cheap.meta or {})["fastmcp"]["tags"])
        seen["menu"] = [content.text for content in await client.read_resource("shop://menu")]  # type: ignore[union-attr]
        seen["price"] = [content.text for content in await client.read_resource("shop://price/tea")]  # type: ignore[union-attr]
        prompt = await client.get_prompt("advise", {"topic": "tea"})
        seen["prompt"] = [message.content.text for message in prompt.messages]  # type: ignore[union-attr]
    return {**seen, "progress": reported, "asked": asked, "logged": logged}


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    """A block; JSON in a text as data, so that spaces do not count."""
    kept = {key: value for key, value in block.items() if not key.startswith("_")}
    try:
        return {**kept, "text": json.loads(kept["text"])}
    except (KeyError, ValueError):
        return kept


def _properties(tool: Any) -> dict[str, Any]:
    schema: Any = getattr(tool, "input_schema", None) or getattr(tool, "inputSchema", {})
    return schema.get("properties", {})


@pytest.mark.timeout(180)
async def test_moved_server_gives_fastmcps_client_the_same_results():
    before, after = [await use_with_fastmcp(module) for module in MODULES]

    assert after == before
    assert (len(before["tools"]), before["asked"], before["progress"]) == (
        10,
        ["How many?"] * 2,
        [(1.0, 2.0)],
    )
    assert (before["logged"], before["hints"]) == ([("info", "working")], ("Cheap?", True, ["prices"]))
    assert [result["result"] for _, _, result in before["confirm"]] == ["accept 3", "accept 4"]


async def inspect(module: str, *method: str) -> Any:
    """What the Inspector's command line prints."""
    process = await asyncio.create_subprocess_exec(
        *(INSPECTOR, "--cli", sys.executable, "-m", module, "--connect-timeout", "120000", "--method", *method),
        cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=-1, stderr=-1,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


TYPESCRIPT = """
const packages = new URL("file://ROOT/peers/node_modules/@modelcontextprotocol/").href;
const [command, ...args] = process.argv.slice(2);
const [{ Client }, { StdioClientTransport }] = await Promise.all(
  ["client/dist/index.mjs", "client/dist/stdio.mjs"].map((file) => import(packages + file)));
const client = new Client({ name: "typescript", version: "1" },
  { versionNegotiation: { mode: "legacy" }, capabilities: { elicitation: {} } });
client.setRequestHandler("elicitation/create", async () => ({ action: "accept", content: { value: 3 } }));
const parse = (text) => { try { return JSON.parse(text); } catch { return text; } }; // so that spaces do not count
await client.connect(new StdioClientTransport({ command, args, stderr: "ignore", cwd: "ROOT" }));
const results = {};
for (const [name, input] of CALLS) {
  const { content, structuredContent, isError } = await client.callTool({ name, arguments: input });
  results[name] = { structuredContent, isError: !!isError, content: content.map(({ type, text, data, mimeType }) =>
    ({ type, data, mimeType, text: isError ? text.includes("Not today.") : parse(text) })) };
}
results.tools = (await client.listTools()).tools.map((tool) => tool.name);
results.menu = (await client.readResource({ uri: "shop://menu" })).contents[0].text;
results.prompt = (await client.getPrompt({ name: "advise", arguments: { topic: "tea" } })).messages[0].content.text;
console.log(JSON.stringify(results));
await client.close();
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_moved_server_gives_the_typescript_sdk_the_same_results(tmp_path: Path):
    script = tmp_path / "client.mjs"
    script.write_text(TYPESCRIPT.replace("ROOT", str(ROOT)).replace("CALLS", json.dumps(CALLS)))
    results: list[Any] = []
    for module in MODULES:
        process = await asyncio.create_subprocess_exec(
            "node", script, sys.executable, "-m", module, stdout=-1, stderr=-1
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        results.append(json.loads(out))

    assert results[1] == results[0]
    assert (len(results[0]["tools"]), results[0]["menu"]) == (10, "tea, milk")


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(not INSPECTOR.exists(), reason="the Inspector is not installed")
async def test_moved_server_gives_the_inspectors_command_line_the_same_results():
    methods = [
        ("tools/list",),
        ("tools/call", "--tool-name", "item", "--tool-arg", "name=tea"),
        ("tools/call", "--tool-name", "names"),
        ("tools/call", "--tool-name", "picture"),
        ("resources/read", "--uri", "shop://menu"),
        ("prompts/get", "--prompt-name", "advise", "--prompt-args", "topic=tea"),
    ]
    before, after = [[_shown(await inspect(module, *method)) for method in methods] for module in MODULES]

    assert after == before
    assert (len(before[0]), before[1][1]) == (10, {"name": "tea", "price": 2.5})


def _shown(printed: dict[str, Any]) -> Any:
    """What a user of the Inspector looks at; JSON in a text as data."""
    if "tools" in printed:
        return {tool["name"]: tool["description"] for tool in printed["tools"]}
    if "content" in printed:
        return [_plain(block) for block in printed["content"]], printed.get("structuredContent")
    if "contents" in printed:
        return [(content["uri"], content["mimeType"], content["text"]) for content in printed["contents"]]
    return [(message["role"], message["content"]["text"]) for message in printed["messages"]]
