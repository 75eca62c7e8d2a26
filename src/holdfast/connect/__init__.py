"""Connections to MCP servers: opening and closing them, calling tools, and answering what servers ask.

`LinkPool` has all links of a host. A `Link` is a connection to one server, and the task that holds it open. It belongs to a
`Scope`: a session, or one of its runs. `Connector` opens the connections: `stdio` to local servers, `http` to remote ones, and
`in_process` to servers in the host's own process. `call` calls a tool over a link.
"""
