"""JSON-RPC over pipes and in memory, MCP on top of JSON-RPC, and MCP servers over HTTP."""
