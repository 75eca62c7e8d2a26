"""The configuration that a user pastes into each MCP client to connect it to the gateway."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass

SERVER_NAME = "holdfast"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The configuration of one MCP client."""

    title: str
    place: str
    """Where the user pastes the text: a file, or a terminal."""
    make_text: Callable[[str, str | None], str]
    """Makes the text for a URL and a token. The token is None if the gateway needs none."""


def _headers(token: str | None) -> dict[str, object]:
    return {} if token is None else {"headers": {"Authorization": f"Bearer {token}"}}


def _json(value: object) -> str:
    return json.dumps(value, indent=2)


def _claude_code(url: str, token: str | None) -> str:
    return _json({"mcpServers": {SERVER_NAME: {"type": "http", "url": url, **_headers(token)}}})


def _cursor(url: str, token: str | None) -> str:
    return _json({"mcpServers": {SERVER_NAME: {"url": url, **_headers(token)}}})


def _vscode(url: str, token: str | None) -> str:
    return _json({"servers": {SERVER_NAME: {"type": "http", "url": url, **_headers(token)}}})


def _zed(url: str, token: str | None) -> str:
    return _json({"context_servers": {SERVER_NAME: {"url": url, **_headers(token)}}})


def _codex(url: str, token: str | None) -> str:
    lines = [f"[mcp_servers.{SERVER_NAME}]", f"url = {json.dumps(url)}"]
    if token is not None:
        lines.append(f"http_headers = {{ Authorization = {json.dumps(f'Bearer {token}')} }}")
    return "\n".join(lines)


def _inspector(url: str, token: str | None) -> str:
    command = ["npx", "@modelcontextprotocol/inspector", "--cli", url, "--transport", "http"]
    header = [] if token is None else ["--header", f"Authorization: Bearer {token}"]
    return shlex.join([*command, *header, "--method", "tools/list"])


CLIENTS = {
    "claude-code": ClientConfig(
        title="Claude Code", place=".mcp.json in a project, or ~/.claude.json", make_text=_claude_code
    ),
    "cursor": ClientConfig(
        title="Cursor", place="~/.cursor/mcp.json, or .cursor/mcp.json in a project", make_text=_cursor
    ),
    "vscode": ClientConfig(
        title="VS Code", place=".vscode/mcp.json, or your user configuration", make_text=_vscode
    ),
    "zed": ClientConfig(title="Zed", place="Zed's settings.json", make_text=_zed),
    "codex": ClientConfig(title="Codex", place="~/.codex/config.toml", make_text=_codex),
    "inspector": ClientConfig(title="MCP Inspector", place="a terminal, as a command", make_text=_inspector),
}
