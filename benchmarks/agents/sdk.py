"""An agent on the Python ACP SDK that stores nothing: it streams, and replays from memory."""

import asyncio
from importlib import import_module
from typing import Any

# By name, because type checkers would take the module benchmarks/acp.py for this package.
acp: Any = import_module("acp")

CHUNK = "x" * 192


class Streamer:
    def on_connect(self, conn: Any) -> None:
        self.conn = conn
        self.chunks: dict[str, list[str]] = {}

    async def initialize(self, protocol_version: int, **kwargs: Any) -> Any:
        return acp.InitializeResponse(protocol_version=1)

    async def new_session(self, cwd: str, **kwargs: Any) -> Any:
        self.chunks["one"] = []
        return acp.NewSessionResponse(session_id="one")

    async def load_session(self, cwd: str, session_id: str, **kwargs: Any) -> Any:
        for text in self.chunks[session_id]:
            await self.conn.session_update(session_id, acp.update_agent_message_text(text))
        return acp.LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: Any, **kwargs: Any) -> Any:
        for _ in range(int(prompt[0].text)):
            self.chunks[session_id].append(CHUNK)
            await self.conn.session_update(session_id, acp.update_agent_message_text(CHUNK))
        return acp.PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Streamer()))
