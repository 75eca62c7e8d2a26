"""JSON-RPC over pipes and in memory; MCP on top of it, and MCP servers over HTTP."""
