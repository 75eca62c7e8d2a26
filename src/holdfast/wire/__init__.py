"""JSON-RPC over pipes and memory, and MCP on top of it."""
