"""JSON-RPC over pipes, over sockets and in memory, MCP on top of JSON-RPC, and MCP servers over HTTP.

A *peer* is one end of a JSON-RPC connection; the *remote peer* is the other end. The *owner* of a connection, request or throttle is the
session or caller that uses it: limits and fair shares apply to each owner. MCP has two *eras*: in the handshake era, a client begins with
`initialize`; in the modern era, every request is self-contained. The first exchange, in which a client learns the server's era, is the
*negotiation*.

In `wire.http`, a *session* is an MCP session, which has an `Mcp-Session-Id`; it is not a Holdfast session. A `caller_id` identifies who sent
an HTTP request.
"""
