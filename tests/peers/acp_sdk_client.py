"""A client built on the Python ACP SDK. It starts an agent and prints a report as JSON."""

import asyncio
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

# By name, because type checkers would take the folder tests/acp for this package.
acp: Any = import_module("acp")
schema: Any = import_module("acp.schema")


class Editor:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.said: list[str] = []
        self.permissions = 0

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.seen.append(update.session_update)
        if update.session_update == "agent_message_chunk":
            self.said.append(update.content.text)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **kwargs: Any) -> Any:
        self.permissions += 1
        chosen = {"outcome": "selected", "optionId": options[0].option_id}
        return schema.RequestPermissionResponse.model_validate({"outcome": chosen})


async def main(cwd: str, server: str, *command: str) -> dict[str, Any]:
    report: dict[str, Any] = {}
    tools = schema.McpServerStdio(name="tools", command=sys.executable, args=[server], env=[])
    editor = Editor()
    async with acp.spawn_agent_process(
        editor, *command, env=dict(os.environ), use_unstable_protocol=True
    ) as (
        agent,
        _,
    ):
        hello = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        report["version"] = hello.protocol_version
        session = (await agent.new_session(cwd=cwd, mcp_servers=[tools])).session_id
        prompt = [acp.text_block('/call tools.echo {"text": "hi"}\n/call tools.count')]
        report["stopped"] = (await agent.prompt(session_id=session, prompt=prompt)).stop_reason
        report["permissions"] = editor.permissions
        waiting = asyncio.create_task(
            agent.prompt(
                session_id=session,
                prompt=[acp.text_block(f'/call tools.wait {{"started": "{cwd}/started"}}')],
            )
        )
        while not Path(cwd, "started").exists():
            await asyncio.sleep(0.02)
        await agent.cancel(session_id=session)
        report["cancelled"] = (await waiting).stop_reason
        report["listed"] = len((await agent.list_sessions()).sessions)
        await agent.set_session_mode(session_id=session, mode_id="auto")
        try:
            await agent.load_session(cwd=cwd, session_id="sess_0123456789abcdef", mcp_servers=[])
        except acp.RequestError as error:
            report["unknown"] = error.code
    again = Editor()
    async with acp.spawn_agent_process(again, *command, env=dict(os.environ), use_unstable_protocol=True) as (
        agent,
        _,
    ):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        loaded = await agent.load_session(cwd=cwd, session_id=session, mcp_servers=[tools])
        assert loaded is not None
        assert loaded.modes is not None
        report["mode"] = loaded.modes.current_mode_id
        report["replayed"] = "user_message_chunk" in again.seen
        report["same replies"] = "".join(again.said) == "".join(editor.said)
        await agent.close_session(session_id=session)
        await agent.resume_session(cwd=cwd, session_id=session, mcp_servers=[tools])
        report["works after resume"] = (await agent.prompt(session_id=session, prompt=prompt)).stop_reason
        report["not asked in auto"] = again.permissions
    return report


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
