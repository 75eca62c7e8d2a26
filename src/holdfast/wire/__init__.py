"""The one hardened JSON-RPC peer, and what MCP says over it."""
